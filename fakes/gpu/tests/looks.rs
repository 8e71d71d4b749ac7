//! What happens does not depend on when somebody looks: random programs of three processes on two GPUs end
//! alike whether they are looked at once or thousands of times.
#![allow(clippy::unwrap_used, reason = "a part of tests")]

mod actor;

use actor::{Actor, Scene};
use fake_gpu::{Queue, Ticket};

const MS: u64 = 1_000_000;
/// All programs are over by then.
const END: u64 = 1000 * MS;
/// Each look rounds what is left of slowed pieces by 2^-16 ns at most, and each end by 1 ns.
const ROUNDING: u64 = 20;

#[test]
#[ignore = "a part of the other tests"]
fn acting_process() {
    actor::act();
}

/// Knuth's MMIX generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Has processes do a program, looks every `step` ns at most, and returns when each piece was done and
/// the GPU time that each process has had.
fn run(seed: u64, step: u64) -> (Vec<Option<u64>>, Vec<u64>) {
    let scene = Scene::virtual_time(&format!("looks-{seed}-{step}"), "a100-80gb:2");
    let gpus = &scene.gpus;
    let mut random = Random(seed);
    gpus.set_together(1, seed.is_multiple_of(2));
    gpus.set_slice_ns(0, [0, 300_000, 5 * MS][random.below(3) as usize]);
    let mut actors: Vec<Actor> = (0..3).map(|_| scene.actor()).collect();
    let queues: Vec<Vec<Queue>> =
        actors.iter_mut().map(|actor| [0, 0, 1].map(|gpu| actor.queue(gpu)).to_vec()).collect();
    let (mut tickets, mut looks) = (Vec::new(), Random(step));
    for _ in 0..12 {
        for _ in 0..random.below(12) {
            let who = random.below(3) as usize;
            let queue = queues[who][random.below(3) as usize];
            let other = queues[who][random.below(3) as usize];
            if random.below(3) == 0 {
                let last = gpus.last(other);
                actors[who].ask(&format!("after {} {} {}", queue.0, other.0, last.number));
            }
            let (ns, sms) = (random.below(4 * MS), random.below(150) as u32);
            tickets.push(actors[who].submit(queue, ns, sms));
        }
        let until = gpus.now_ns() + random.below(9 * MS);
        look(&scene, until, step, &mut looks, &tickets);
    }
    look(&scene, END, step, &mut looks, &tickets);
    let busy = gpus.busy_ns();
    let of = |actor: &Actor| {
        busy.iter().filter(|(pid, ..)| *pid == actor.pid()).map(|(.., ns)| ns).sum()
    };
    (
        tickets.iter().map(|ticket| gpus.done_at_ns(*ticket)).collect(),
        actors.iter().map(of).collect(),
    )
}

/// Lets time pass, looking at any piece now and then.
fn look(scene: &Scene, until: u64, step: u64, looks: &mut Random, tickets: &[Ticket]) {
    while scene.gpus.now_ns() < until {
        let left = until - scene.gpus.now_ns();
        scene.gpus.advance_ns(left.min(1 + looks.below(step)));
        if !tickets.is_empty() {
            scene.gpus.done(tickets[looks.below(tickets.len() as u64) as usize]);
        }
    }
}

#[test]
fn what_happens_does_not_depend_on_who_looks_when() {
    for seed in 0..12 {
        let (once, had) = run(seed, u64::MAX);
        assert!(once.iter().all(Option::is_some), "all is done in the end");
        for step in [7 * MS, 90_000] {
            let (often, had_often) = run(seed, step);
            for (at, (one, other)) in once.iter().zip(&often).enumerate() {
                let apart = one.unwrap().abs_diff(other.unwrap());
                assert!(
                    apart <= ROUNDING,
                    "seed {seed}, step {step}, piece {at}: {one:?} {other:?}"
                );
            }
            for (one, other) in had.iter().zip(&had_often) {
                assert!(one.abs_diff(*other) <= ROUNDING, "seed {seed}: {had:?} {had_often:?}");
            }
        }
    }
}
