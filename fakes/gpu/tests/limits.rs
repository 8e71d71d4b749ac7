//! Memory limits on cgroups hold all processes of a cgroup together, and nobody else. The cgroups are plain
//! folders with the one file that is read of them.
#![allow(clippy::unwrap_used, reason = "a part of tests")]

mod actor;

use std::fs;
use std::path::PathBuf;

use actor::{Actor, Scene, gpu};
use fake_gpu::{Full, MemoryKind};
use fake_machine::{MemoryLimit, Process};

const MIB: u64 = 1 << 20;

#[test]
#[ignore = "a part of the other tests"]
fn acting_process() {
    actor::act();
}

/// Puts processes into a cgroup, and no others.
fn put(scene: &Scene, cgroup: &str, pids: &[u32]) {
    let folder = folder(scene, cgroup);
    fs::create_dir_all(&folder).unwrap();
    let lines: Vec<String> = pids.iter().map(|pid| format!("{pid}\n")).collect();
    fs::write(folder.join("cgroup.procs"), lines.concat()).unwrap();
}

fn folder(scene: &Scene, cgroup: &str) -> PathBuf {
    scene.folder.join("cgroup").join(cgroup)
}

/// Sets the limits of the first GPU, in MiB by cgroup.
fn limit(scene: &Scene, limits: &[(&str, u64)]) {
    let limit = |(cgroup, mib): &(&str, u64)| MemoryLimit {
        cgroup: folder(scene, cgroup).to_str().unwrap().to_owned(),
        soft_bytes: 0,
        hard_bytes: mib * MIB,
    };
    let edited = scene.machine.edit(|state| {
        state.gpu_mut(0)?.memory_limits = limits.iter().map(limit).collect();
        Ok(())
    });
    edited.unwrap();
    scene.machine.wait_until_seen();
}

/// Whether a process can take so many MiB of a GPU.
fn takes(actor: &mut Actor, gpu: u32, mib: u64) -> bool {
    actor.ask(&format!("take {gpu} {}", mib * MIB)) != 0
}

#[test]
fn all_limits_above_a_process_hold_and_others_are_free() {
    let scene = Scene::new("nested", "a100-80gb:2");
    let [mut one, mut two, mut other] = [(); 3].map(|()| scene.actor());
    put(&scene, "run", &[one.pid()]);
    put(&scene, "run/task", &[two.pid()]);
    limit(&scene, &[("run", 1000), ("run/task", 300)]);
    assert!(takes(&mut two, 0, 200));
    assert!(!takes(&mut two, 0, 101), "its own limit");
    assert!(takes(&mut one, 0, 750));
    assert!(!takes(&mut two, 0, 51), "the limit above");
    assert!(takes(&mut two, 0, 50));
    assert!(!takes(&mut one, 0, 1));
    assert!(takes(&mut one, 1, 5000), "the other GPU");
    assert!(takes(&mut other, 0, 5000), "a neighbour");
    put(&scene, "run/task", &[]);
    assert!(takes(&mut two, 0, 5000), "it has left");
    assert!(takes(&mut one, 0, 250), "what has left is not counted");
    assert!(!takes(&mut one, 0, 1));
    limit(&scene, &[("run/task", 300)]);
    assert!(takes(&mut one, 0, 5000), "the limit above is lifted");
}

#[test]
fn processes_that_take_at_once_never_have_more_than_the_limit() {
    let scene = Scene::new("at-once", "a100-80gb");
    let mut actors = [(); 3].map(|()| scene.actor());
    put(&scene, "run", &actors.each_ref().map(Actor::pid));
    limit(&scene, &[("run", 600)]);
    for actor in &mut actors {
        actor.tell(&format!("fill 0 {MIB}"));
    }
    assert_eq!(actors.iter_mut().map(Actor::answer).sum::<u64>(), 600);
}

#[test]
fn the_dead_and_processes_of_the_state_count_as_on_the_whole_gpu() {
    let scene = Scene::new("counted", "a100-80gb");
    let (mut doomed, mut heir) = (scene.actor(), scene.actor());
    put(&scene, "run", &[doomed.pid(), heir.pid(), 7]);
    limit(&scene, &[("run", 1000)]);
    let injected = Process::compute(7, 100).phantom();
    let edited = scene.machine.edit(|state| {
        state.gpu_mut(0)?.add(injected);
        Ok(())
    });
    edited.unwrap();
    scene.machine.wait_until_seen();
    assert!(takes(&mut doomed, 0, 900));
    assert!(!takes(&mut heir, 0, 1));
    doomed.kill();
    assert!(takes(&mut heir, 0, 900), "at once");
    put(&scene, "run", &[std::process::id(), 7]);
    let refused = scene.gpus.take(gpu(0), MemoryKind::Plain, 901 * MIB);
    assert_eq!(refused, Err(Full { asked: 901 * MIB, free: 900 * MIB }));
}
