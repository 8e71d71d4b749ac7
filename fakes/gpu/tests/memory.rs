//! The books of memory come out right, whatever processes do and whenever they die.
#![allow(clippy::unwrap_used, reason = "a part of tests")]

mod actor;

use std::time::{Duration, Instant};

use actor::{Scene, gpu};
use fake_gpu::{Claim, Full, Gpus, Held, MemoryKind, Place};
use fake_machine::{GpuSpec, Machine, Process};

const MIB: u64 = 1 << 20;

#[test]
#[ignore = "a part of the other tests"]
fn acting_process() {
    actor::act();
}

/// Bytes that a process holds.
fn held_by(gpus: &Gpus, pid: u32) -> u64 {
    let of = |held: &Held| if held.pid == pid { held.bytes.iter().sum() } else { 0 };
    gpus.held().iter().map(of).sum()
}

/// Waits for what must happen soon, and fails instead of waiting for ever.
fn wait_until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not happen");
        std::thread::yield_now();
    }
}

/// Bytes of an A100 that processes may hold.
fn capacity(machine: &Machine) -> u64 {
    let state = machine.read();
    let (total, reserved) = state.gpus[0].facts().unwrap().memory_mib();
    (total - reserved) * MIB
}

#[test]
fn memory_is_taken_until_there_is_no_more_and_comes_back() {
    let scene = Scene::new("capacity", "a100-80gb:2");
    let all = capacity(&scene.machine);
    assert_eq!(scene.gpus.free(gpu(0)), all);
    let claim = scene.gpus.take(gpu(0), MemoryKind::Pool, all - 10).unwrap();
    let refused = scene.gpus.take(gpu(0), MemoryKind::Plain, 11);
    assert_eq!(refused, Err(Full { asked: 11, free: 10 }));
    assert_eq!(scene.gpus.free(gpu(1)), all, "another GPU");
    assert_eq!(scene.gpus.bytes(claim), Some((gpu(0), MemoryKind::Pool, all - 10)));
    let held = scene.gpus.held();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].pid, std::process::id());
    assert_eq!(held[0].bytes[MemoryKind::Pool as usize], all - 10);
    assert!(scene.gpus.give(claim));
    assert!(!scene.gpus.give(claim), "given back already");
    assert_eq!(scene.gpus.bytes(claim), None);
    assert_eq!(scene.gpus.free(gpu(0)), all);
    assert!(scene.gpus.held().is_empty());
    assert_eq!(scene.gpus.take(gpu(7), MemoryKind::Plain, 1), Err(Full { asked: 1, free: 0 }));
}

#[test]
fn processes_of_the_state_take_their_part() {
    let scene = Scene::new("injected", "a100-80gb");
    let put = scene.machine.edit(|state| {
        state.gpu_mut(0)?.add(Process::compute(7, 1000).phantom());
        Ok(())
    });
    put.unwrap();
    std::thread::sleep(Duration::from_millis(3));
    assert_eq!(scene.gpus.free(gpu(0)), capacity(&scene.machine) - 1000 * MIB);
}

#[test]
fn memory_of_two_processes_stays_until_the_second_has_gone() {
    let scene = Scene::new("kept", "a100-80gb");
    let (mut owner, mut other) = (scene.actor(), scene.actor());
    let claim = owner.ask(&format!("take 0 {MIB}"));
    assert_eq!(other.ask(&format!("give {claim}")), 0, "it does not hold it");
    assert_eq!(other.ask(&format!("keep {claim}")), 1);
    assert_eq!(other.ask(&format!("keep {claim}")), 1, "once more");
    assert_eq!((held_by(&scene.gpus, owner.pid()), held_by(&scene.gpus, other.pid())), (MIB, 0));
    owner.kill();
    assert_eq!((held_by(&scene.gpus, owner.pid()), held_by(&scene.gpus, other.pid())), (0, MIB));
    assert_eq!(scene.gpus.bytes(Claim(claim)), Some((gpu(0), MemoryKind::Plain, MIB)));
    let mut third = scene.actor();
    assert_eq!(third.ask(&format!("keep {claim}")), 1);
    assert_eq!(other.ask(&format!("give {claim}")), 1);
    assert_eq!(held_by(&scene.gpus, other.pid()), MIB, "it has another hold");
    assert_eq!(other.ask(&format!("give {claim}")), 1);
    assert_eq!(other.ask(&format!("give {claim}")), 0);
    assert_eq!(held_by(&scene.gpus, third.pid()), MIB);
    assert_eq!(third.ask(&format!("give {claim}")), 1);
    assert_eq!(scene.gpus.bytes(Claim(claim)), None);
    assert_eq!(third.ask(&format!("keep {claim}")), 0);
    assert_eq!(scene.gpus.free(gpu(0)), capacity(&scene.machine));
}

#[test]
fn holds_of_one_claim_come_and_go_in_any_order() {
    let scene = Scene::new("holds", "a100-80gb");
    let claim = scene.gpus.take(gpu(0), MemoryKind::Physical, MIB).unwrap();
    let mut other = scene.actor();
    for _ in 0..30 {
        assert_eq!(other.ask(&format!("keep {}", claim.0)), 1);
        assert!(scene.gpus.give(claim));
        assert_eq!(held_by(&scene.gpus, other.pid()), MIB);
        assert!(scene.gpus.keep(claim));
        assert_eq!(other.ask(&format!("give {}", claim.0)), 1);
        assert_eq!(held_by(&scene.gpus, std::process::id()), MIB);
    }
    assert!((1..20).all(|_| scene.gpus.keep(claim)));
    assert!(!scene.gpus.keep(claim), "20 holds are the most");
    assert!((0..20).all(|_| scene.gpus.give(claim)));
    assert_eq!(scene.gpus.free(gpu(0)), capacity(&scene.machine));
}

#[test]
fn a_child_is_a_process_of_its_own_that_holds_nothing_of_its_parents() {
    let scene = Scene::new("fork", "a100-80gb");
    let mut parent = scene.actor();
    let claim = parent.ask(&format!("take 0 {MIB}"));
    let child = parent.ask(&format!("fork {claim} 5000")) as u32;
    wait_until(|| held_by(&scene.gpus, child) > 0);
    assert_eq!(held_by(&scene.gpus, child), 5000);
    assert_eq!(held_by(&scene.gpus, parent.pid()), MIB);
    parent.kill();
    wait_until(|| held_by(&scene.gpus, child) == 0);
    assert_eq!(scene.gpus.free(gpu(0)), capacity(&scene.machine));
}

#[test]
fn the_memory_of_the_dead_is_there_for_others_at_once() {
    let scene = Scene::new("dead", "a100-80gb");
    let all = capacity(&scene.machine);
    let mut actor = scene.actor();
    assert_ne!(actor.ask(&format!("take 0 {all}")), 0);
    assert!(scene.gpus.take(gpu(0), MemoryKind::Plain, 1).is_err());
    actor.kill();
    assert!(scene.gpus.take(gpu(0), MemoryKind::Plain, all).is_ok());
}

#[test]
fn instances_have_their_own_memory_which_their_compute_instances_share() {
    let scene = Scene::new("mig", "a100-80gb");
    let (mut small, mut large) = (0, 0);
    let made = scene.machine.edit(|state| {
        state.gpu_mut(0)?.set_mig(true)?;
        let id = |name: &str| {
            let profiles = fake_machine::instance_profiles("a100-80gb").iter();
            profiles.filter(|p| p.name == name).map(|p| p.id).next().unwrap()
        };
        small = state.create_instance(0, id("1g.10gb"), None)?;
        large = state.create_instance(0, id("3g.40gb"), None)?;
        state.create_compute(0, small, 0, None)?;
        state.create_compute(0, large, 0, None)?;
        state.create_compute(0, large, 0, None)?;
        Ok(())
    });
    made.unwrap();
    let scene_gpus = Gpus::open(&scene.machine).unwrap();
    let place = |id, part| Place { gpu: 0, instance: Some((id, part)) };
    assert_eq!(scene_gpus.free(place(small, 0)), 9_728 * MIB);
    let whole = scene_gpus.free(place(large, 0));
    scene_gpus.take(place(large, 0), MemoryKind::Plain, 5 * MIB).unwrap();
    assert_eq!(scene_gpus.free(place(large, 1)), whole - 5 * MIB);
    assert_eq!(scene_gpus.free(place(small, 0)), 9_728 * MIB);
    assert_eq!(scene_gpus.free(place(99, 0)), 0, "no such instance");
    assert_eq!(scene_gpus.held()[0].place, place(large, 0));
    let (sms, part) = (scene_gpus.sms(gpu(0)), scene_gpus.sms(place(large, 0)));
    assert!(part < sms, "{part} of {sms}");
}

#[test]
fn books_come_out_right_although_processes_are_killed_in_the_middle() {
    let scene = Scene::new("killed", "a100-80gb:2");
    let mut survivor = scene.actor();
    let shared = survivor.ask(&format!("take 0 {MIB}"));
    for round in 1..=60_u64 {
        let mut doomed = [scene.actor(), scene.actor(), scene.actor()];
        doomed[0].tell(&format!("churn 0 {round}"));
        doomed[1].tell(&format!("churn 0 {}", round + 1000));
        doomed[2].tell(&format!("share {shared}"));
        let expected = survivor.ask(&format!("churn 2000 {round}")) + MIB;
        for actor in &mut doomed {
            actor.kill();
        }
        assert_eq!(held_by(&scene.gpus, survivor.pid()), expected, "round {round}");
        assert_eq!(scene.gpus.held().iter().filter(|held| held.pid != survivor.pid()).count(), 0);
        let free = scene.gpus.free(gpu(0)) + scene.gpus.free(gpu(1));
        assert_eq!(free + expected, 2 * capacity(&scene.machine), "round {round}");
    }
    assert_eq!(survivor.ask(&format!("give {shared}")), 1);
    assert_eq!(scene.gpus.bytes(Claim(shared)), None, "nobody else holds it");
}

#[test]
fn every_claim_of_the_table_can_be_had_again() {
    let scene = Scene::new("table", "a100-80gb");
    let mut claims = Vec::new();
    while let Ok(claim) = scene.gpus.take(gpu(0), MemoryKind::Plain, 1) {
        claims.push(claim);
    }
    assert_eq!(claims.len(), 65_535);
    for claim in &claims {
        assert!(scene.gpus.give(*claim));
    }
    let again = scene.gpus.take(gpu(0), MemoryKind::Plain, 1).unwrap();
    assert!(!claims.contains(&again), "an old claim does not name a new one");
}

#[test]
fn a_new_machine_in_the_folder_has_none_of_the_old_ones_memory() {
    let scene = Scene::new("again", "a100-80gb");
    scene.gpus.take(gpu(0), MemoryKind::Plain, MIB).unwrap();
    assert_eq!(Gpus::open(&scene.machine).unwrap().held().len(), 1, "the same machine");
    std::thread::sleep(Duration::from_millis(5));
    let machine = Machine::create(&scene.folder, &GpuSpec::list("a100-80gb").unwrap()).unwrap();
    assert!(Gpus::open_existing(&machine).unwrap().is_none());
    assert!(Gpus::open(&machine).unwrap().held().is_empty());
    assert!(Gpus::open_existing(&machine).unwrap().is_some());
}

#[test]
fn a_file_that_is_none_is_replaced_and_many_may_make_it_at_once() {
    let scene = Scene::new("race", "a100-80gb");
    for text in ["", "half"] {
        std::fs::write(scene.folder.join("gpus"), text).unwrap();
        let actors = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| scene.actor())).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect::<Vec<_>>()
        });
        let mut pids = Vec::new();
        for mut actor in actors {
            assert_ne!(actor.ask(&format!("take 0 {MIB}")), 0);
            pids.push(actor);
        }
        let gpus = Gpus::open(&scene.machine).unwrap();
        assert!(pids.iter().all(|actor| held_by(&gpus, actor.pid()) == MIB), "all see one file");
    }
}
