//! Who runs when: turns, queues, sharing of multiprocessors. Time stands still but for what a test lets
//! pass, so that all numbers are exact.
#![allow(clippy::unwrap_used, reason = "a part of tests")]

mod actor;

use actor::{Scene, gpu};
use fake_gpu::{Gpus, Place, Queue, Ticket, Work};

const MS: u64 = 1_000_000;
/// What a change of process costs.
const SWITCH: u64 = 20_000;
/// Multiprocessors of the model.
const SMS: u32 = 108;

#[test]
#[ignore = "a part of the other tests"]
fn acting_process() {
    actor::act();
}

/// GPU time of a process.
fn busy(gpus: &Gpus, pid: u32) -> u64 {
    gpus.busy_ns().into_iter().filter(|(other, ..)| *other == pid).map(|(.., ns)| ns).sum()
}

fn submit(gpus: &Gpus, queue: Queue, ns: u64, sms: u32) -> Ticket {
    gpus.submit(queue, Work { ns, sms }).unwrap()
}

#[test]
fn alone_a_piece_takes_its_time_exactly() {
    let scene = Scene::virtual_time("alone", "a100-80gb");
    let gpus = &scene.gpus;
    assert_eq!(gpus.sms(gpu(0)), SMS);
    let queue = gpus.queue(gpu(0)).unwrap();
    assert_eq!(gpus.last(queue), Ticket { queue, number: 0 });
    assert!(gpus.done(gpus.last(queue)));
    gpus.advance_ns(12_345);
    let ticket = submit(gpus, queue, 7_654_321, SMS);
    assert_eq!(gpus.last(queue), ticket);
    gpus.advance_ns(7_654_320);
    assert!(!gpus.done(ticket));
    assert_eq!(gpus.done_at_ns(ticket), None);
    gpus.advance_ns(1);
    assert!(gpus.done(ticket));
    gpus.advance_ns(MS);
    assert_eq!(gpus.done_at_ns(ticket), Some(12_345 + 7_654_321));
    assert_eq!(busy(gpus, std::process::id()), 7_654_321);
}

#[test]
fn a_queue_does_one_after_the_other_and_many_short_ones_take_their_sum() {
    let scene = Scene::virtual_time("order", "a100-80gb");
    let gpus = &scene.gpus;
    let queue = gpus.queue(gpu(0)).unwrap();
    let tickets: Vec<_> = (0..1000).map(|_| submit(gpus, queue, 1_777, 1)).collect();
    gpus.advance_ns(10 * MS);
    for (at, ticket) in (1..).zip(tickets) {
        assert_eq!(gpus.done_at_ns(ticket), Some(at * 1_777));
    }
    assert_eq!(busy(gpus, std::process::id()), 1_777_000);
}

#[test]
fn a_full_queue_refuses_until_a_piece_is_done_and_old_ends_are_forgotten() {
    let scene = Scene::virtual_time("full", "a100-80gb");
    let gpus = &scene.gpus;
    let queue = gpus.queue(gpu(0)).unwrap();
    let first = submit(gpus, queue, 100, 1);
    for _ in 1..1024 {
        submit(gpus, queue, 100, 1);
    }
    assert_eq!(gpus.submit(queue, Work { ns: 1, sms: 1 }), None);
    gpus.advance_ns(100);
    assert_eq!(gpus.done_at_ns(first), Some(100));
    let last = submit(gpus, queue, 100, 1);
    gpus.advance_ns(MS);
    assert_eq!(gpus.done_at_ns(last), Some(1025 * 100));
    assert!(gpus.done(first));
    assert_eq!(gpus.done_at_ns(first), None);
}

#[test]
fn two_processes_take_equal_turns_however_often_one_looks() {
    for step in [40_400_000, 100_000, 7_001] {
        let scene = Scene::virtual_time(&format!("two-{step}"), "a100-80gb");
        let gpus = &scene.gpus;
        let (mut one, mut two) = (scene.actor(), scene.actor());
        let queues = [one.queue(0), two.queue(0)];
        one.submit(queues[0], 100 * MS, SMS);
        two.submit(queues[1], 100 * MS, 1);
        // Ten turns of each and twenty changes.
        while gpus.now_ns() < 40_400_000 {
            gpus.advance_ns(step.min(40_400_000 - gpus.now_ns()));
            gpus.done(gpus.last(queues[0]));
        }
        assert_eq!(busy(gpus, one.pid()), 20 * MS, "looking each {step} ns");
        assert_eq!(busy(gpus, two.pid()), 20 * MS, "looking each {step} ns");
    }
}

#[test]
fn turns_go_round_among_those_who_have_work() {
    let scene = Scene::virtual_time("round", "a100-80gb");
    let gpus = &scene.gpus;
    let mut actors = [scene.actor(), scene.actor(), scene.actor(), scene.actor()];
    for (actor, ms) in actors.iter_mut().zip([100, 100, 0, 100]) {
        let queue = actor.queue(0);
        actor.submit(queue, ms * MS, SMS);
    }
    gpus.advance_ns(4 * 3 * (2 * MS + SWITCH));
    let had: Vec<_> = actors.iter().map(|actor| busy(gpus, actor.pid())).collect();
    assert_eq!(had, [8 * MS, 8 * MS, 0, 8 * MS]);
}

#[test]
fn a_kernel_pauses_at_the_end_of_a_turn_and_goes_on_in_the_next() {
    let scene = Scene::virtual_time("pause", "a100-80gb");
    let gpus = &scene.gpus;
    gpus.set_slice_ns(0, MS);
    let (mut one, mut two) = (scene.actor(), scene.actor());
    let long = one.queue(0);
    let long = one.submit(long, 3 * MS, SMS);
    let short = two.queue(0);
    let short = two.submit(short, MS / 2, SMS);
    gpus.advance_ns(100 * MS);
    // A turn of the long one, then all of the short one, then the rest.
    assert_eq!(gpus.done_at_ns(short), Some(MS + SWITCH + MS / 2));
    assert_eq!(gpus.done_at_ns(long), Some(3 * MS + MS / 2 + 2 * SWITCH));
}

#[test]
fn who_comes_to_an_idle_gpu_starts_at_once_and_who_comes_to_a_busy_one_waits_for_the_turn() {
    let scene = Scene::virtual_time("come", "a100-80gb");
    let gpus = &scene.gpus;
    let (mut one, mut two) = (scene.actor(), scene.actor());
    let queues = [one.queue(0), two.queue(0)];
    let first = one.submit(queues[0], MS, SMS);
    gpus.advance_ns(5 * MS);
    let second = two.submit(queues[1], 7 * MS, SMS);
    gpus.advance_ns(3 * MS);
    let third = one.submit(queues[0], MS, SMS);
    gpus.advance_ns(20 * MS);
    assert_eq!(gpus.done_at_ns(first), Some(MS));
    // It began at 5 ms and was in its second turn at 8 ms.
    assert_eq!(gpus.done_at_ns(third), Some(9 * MS + SWITCH + MS));
    assert_eq!(gpus.done_at_ns(second), Some(12 * MS + 2 * SWITCH + MS));
}

#[test]
fn queues_of_one_process_run_at_the_same_time_and_slow_down_when_they_need_too_much() {
    let scene = Scene::virtual_time("queues", "a100-80gb");
    let gpus = &scene.gpus;
    let queues: Vec<_> = (0..3).map(|_| gpus.queue(gpu(0)).unwrap()).collect();
    let ends = |need: [u32; 3], ns: [u64; 3]| {
        let begin = gpus.now_ns();
        let three = queues.iter().zip(need).zip(ns);
        let tickets: Vec<_> = three.map(|((q, sms), ns)| submit(gpus, *q, ns, sms)).collect();
        gpus.advance_ns(100 * MS);
        tickets.iter().map(|t| gpus.done_at_ns(*t).unwrap() - begin).collect::<Vec<_>>()
    };
    assert_eq!(ends([36, 36, 36], [MS, 2 * MS, 3 * MS]), [MS, 2 * MS, 3 * MS]);
    assert_eq!(ends([SMS, SMS, 500], [MS, MS, MS]), [3 * MS, 3 * MS, 3 * MS]);
    // At 0.8 of full speed while two run, then alone.
    assert_eq!(ends([81, 54, 1], [MS, 2 * MS, 0]), [MS * 5 / 4, MS * 5 / 4 + MS, 0]);
    let all: u64 = [3 * MS, 3 * MS, MS * 5 / 4 + MS].iter().sum();
    assert_eq!(busy(gpus, std::process::id()), all, "counted once, whatever runs at once");
    gpus.set_sms(0, 1);
    assert_eq!(ends([1, 7, 1], [MS, MS, MS]), [3 * MS, 3 * MS, 3 * MS]);
}

#[test]
fn together_processes_share_the_multiprocessors() {
    let scene = Scene::virtual_time("together", "a100-80gb");
    let gpus = &scene.gpus;
    gpus.set_together(0, true);
    gpus.set_sms(0, 100);
    let (mut one, mut two) = (scene.actor(), scene.actor());
    let queues = [one.queue(0), two.queue(0)];
    let first = one.submit(queues[0], 10 * MS, 60);
    let second = two.submit(queues[1], 10 * MS, 40);
    gpus.advance_ns(50 * MS);
    assert_eq!(gpus.done_at_ns(first), Some(10 * MS));
    assert_eq!(gpus.done_at_ns(second), Some(10 * MS));
    let third = one.submit(queues[0], 10 * MS, 100);
    let fourth = two.submit(queues[1], 5 * MS, 100);
    gpus.advance_ns(50 * MS);
    assert_eq!(gpus.done_at_ns(fourth), Some(60 * MS));
    assert_eq!(gpus.done_at_ns(third), Some(65 * MS));
    assert_eq!(busy(gpus, one.pid()), 25 * MS);
    assert_eq!(busy(gpus, two.pid()), 20 * MS);
}

#[test]
fn a_queue_waits_for_another_on_whatever_gpu() {
    let scene = Scene::virtual_time("after", "a100-80gb:2");
    let gpus = &scene.gpus;
    let [here, beside, there] = [0, 0, 1].map(|at| gpus.queue(gpu(at)).unwrap());
    let first = submit(gpus, here, 4 * MS, 1);
    gpus.after(beside, first);
    let waits = gpus.last(beside);
    assert_eq!(waits.number, 1, "the wait is an entry");
    let second = submit(gpus, beside, MS, 1);
    gpus.after(there, second);
    let third = submit(gpus, there, MS, 1);
    gpus.after(here, third);
    let fourth = submit(gpus, here, MS, 1);
    assert!(!gpus.done(waits));
    gpus.advance_ns(100 * MS);
    assert_eq!(gpus.done_at_ns(fourth), Some(7 * MS), "all in one look");
    assert_eq!(gpus.done_at_ns(third), Some(6 * MS));
    assert_eq!(gpus.done_at_ns(second), Some(5 * MS));
    assert_eq!(gpus.done_at_ns(waits), Some(4 * MS));
    gpus.after(here, third);
    assert_eq!(gpus.last(here).number, fourth.number, "what is done is not waited for");
}

#[test]
fn who_only_waits_does_not_hold_the_gpu() {
    let scene = Scene::virtual_time("waits", "a100-80gb:2");
    let gpus = &scene.gpus;
    let (mut one, mut two) = (scene.actor(), scene.actor());
    let (elsewhere, waits) = (one.queue(1), one.queue(0));
    let far = one.submit(elsewhere, 3 * MS, SMS);
    one.ask(&format!("after {} {} {}", waits.0, elsewhere.0, far.number));
    let last = one.submit(waits, MS, SMS);
    let queue = two.queue(0);
    let other = two.submit(queue, 3 * MS, SMS);
    gpus.advance_ns(50 * MS);
    assert_eq!(gpus.done_at_ns(other), Some(3 * MS));
    assert_eq!(gpus.done_at_ns(last), Some(4 * MS + SWITCH));
}

#[test]
fn an_empty_piece_is_done_when_all_before_it_is() {
    let scene = Scene::virtual_time("empty", "a100-80gb");
    let gpus = &scene.gpus;
    let queue = gpus.queue(gpu(0)).unwrap();
    gpus.advance_ns(500);
    let empty = submit(gpus, queue, 0, 1);
    assert_eq!(gpus.done_at_ns(empty), Some(500));
    submit(gpus, queue, MS, 1);
    let behind = submit(gpus, queue, 0, 1);
    gpus.advance_ns(5 * MS);
    assert_eq!(gpus.done_at_ns(behind), Some(MS + 500));
}

#[test]
fn the_work_of_the_dead_vanishes() {
    let scene = Scene::virtual_time("dead", "a100-80gb");
    let gpus = &scene.gpus;
    let (mut one, mut two) = (scene.actor(), scene.actor());
    let queues = [one.queue(0), two.queue(0)];
    let endless = one.submit(queues[0], 1000 * 1000 * MS, SMS);
    let other = two.submit(queues[1], 4 * MS, SMS);
    gpus.advance_ns(MS);
    assert_eq!(busy(gpus, one.pid()), MS);
    one.kill();
    gpus.advance_ns(10 * MS);
    assert!(gpus.done(endless), "gone counts as done");
    gpus.advance_ns(10 * MS);
    assert!(gpus.done(other));
    assert_eq!(busy(gpus, two.pid()), 4 * MS);
    assert_eq!(busy(gpus, one.pid()), MS, "what the dead has had is still known");
}

#[test]
fn a_queue_that_is_let_go_first_runs_dry() {
    let scene = Scene::virtual_time("dry", "a100-80gb");
    let gpus = &scene.gpus;
    let queue = gpus.queue(gpu(0)).unwrap();
    let ticket = submit(gpus, queue, MS, SMS);
    gpus.drop_queue(queue);
    assert_eq!(gpus.submit(queue, Work { ns: 1, sms: 1 }), None);
    assert!(!gpus.done(ticket));
    gpus.advance_ns(2 * MS);
    assert!(gpus.done(ticket));
    assert_eq!(gpus.done_at_ns(ticket), Some(MS), "known until another has its number");
    let all: Vec<_> = (0..1024).map(|_| gpus.queue(gpu(0)).unwrap()).collect();
    assert!(gpus.queue(gpu(0)).is_err());
    assert!(!all.contains(&queue));
    assert!(gpus.done(ticket));
}

#[test]
fn instances_have_turns_and_multiprocessors_of_their_own() {
    let scene = Scene::new("instances", "a100-80gb");
    let made = scene.machine.edit(|state| {
        state.gpu_mut(0)?.set_mig(true)?;
        // 3g.40gb, twice.
        let ids = [state.create_instance(0, 9, None)?, state.create_instance(0, 9, None)?];
        for id in ids {
            state.create_compute(0, id, 2, None)?;
        }
        Ok(ids)
    });
    let places = made.unwrap().map(|id| Place { gpu: 0, instance: Some((id, 0)) });
    let gpus = Gpus::open(&scene.machine).unwrap();
    gpus.set_virtual_ns(Some(0));
    assert_eq!(gpus.sms(places[0]), 42);
    let tickets = places.map(|place| {
        let queues = [gpus.queue(place).unwrap(), gpus.queue(place).unwrap()];
        queues.map(|queue| submit(&gpus, queue, 5 * MS, 21))
    });
    gpus.advance_ns(50 * MS);
    assert!(tickets.iter().flatten().all(|ticket| gpus.done_at_ns(*ticket) == Some(5 * MS)));
    gpus.set_sms(0, 54);
    assert_eq!(gpus.sms(places[0]), 21);
    let queues = [gpus.queue(places[0]).unwrap(), gpus.queue(places[0]).unwrap()];
    let tickets = queues.map(|queue| submit(&gpus, queue, 5 * MS, 21));
    gpus.advance_ns(50 * MS);
    assert!(tickets.iter().all(|ticket| gpus.done_at_ns(*ticket) == Some(60 * MS)));
}

#[test]
fn kills_in_the_middle_stop_nobody_and_leave_no_queue_behind() {
    let scene = Scene::new("kills", "a100-80gb:2");
    let mut survivor = scene.actor();
    for round in 0..40 {
        let mut doomed = [scene.actor(), scene.actor()];
        for actor in &mut doomed {
            actor.tell("work 0");
        }
        assert_eq!(survivor.ask("work 3"), 3, "round {round}");
        for actor in &mut doomed {
            actor.kill();
        }
    }
    assert_eq!(survivor.ask("work 3"), 3);
    // The table is full only if all of it is in use.
    scene.gpus.set_virtual_ns(Some(0));
    scene.gpus.advance_ns(1000 * MS);
    scene.gpus.busy_ns();
    let all: Vec<_> = (0..1024).map_while(|_| scene.gpus.queue(gpu(0)).ok()).collect();
    assert_eq!(all.len(), 1024);
}
