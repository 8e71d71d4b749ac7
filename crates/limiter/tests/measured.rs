//! What contexts and code take is this process's own figure, whatever neighbours do at the same time; and
//! what no call tells is found all the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]

mod support;

use std::process::Command;
use std::time::Duration;

use caps::Kind;
use fake_machine::{Code, Effect};
use support::{CONTEXT_MIB, Client, MIB, OUT_OF_MEMORY, Stage, built, target};

/// The simulated NVML's figures are up to 10 ms old, and the limiter does not ask more often than that.
fn fresh() {
    std::thread::sleep(Duration::from_millis(60));
}

/// A process that is no tenant's.
fn stranger(stage: &Stage) -> Client {
    let told = built("told", &["told.c"], &["-ldl", "-lpthread"]);
    let mut stranger = Client::start(&mut stage.free(&told));
    stranger.does("begin");
    stranger
}

/// Has the client do something slow while a stranger takes 1000 MiB.
fn beside_a_stranger(stage: &Stage, slow: &str, client: &mut Client, what: &str) {
    let mut stranger = stranger(stage);
    stage.fault(slow, Effect::SleepMs(300));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            stranger.does(&format!("alloc 1 {}", 1000 * MIB));
        });
        client.does(what);
    });
    stage.no_faults();
}

fn booked_mib(stage: &Stage, kind: Kind) -> u64 {
    stage.account().by_kind()[kind as usize] / MIB
}

#[test]
fn a_context_is_not_charged_with_what_a_neighbour_takes_meanwhile() {
    for (told, name) in [("", "untold"), ("context = 209715200\n", "told")] {
        let stage = Stage::without_caps(&format!("context-{name}"), "a100-80gb");
        stage.give(&format!("memory = {}\n{told}", 4096 * MIB));
        let mut client = stage.client();
        beside_a_stranger(&stage, "cuDevicePrimaryCtxRetain", &mut client, "begin");
        assert_eq!(stage.booked_mib(), CONTEXT_MIB, "{name}");
    }
}

#[test]
fn where_nvml_does_not_show_the_process_a_context_counts_as_told() {
    for (told, most) in [("context = 209715200\n", 200), ("", 600)] {
        let stage = Stage::without_caps(&format!("hidden-{most}"), "a100-80gb");
        stage.give(&format!("memory = {}\n{told}", 4096 * MIB));
        let hide = |call: &str| fake_machine::Fault {
            call: call.into(),
            nth: 0,
            effect: Effect::Fail(Code::NotSupported),
        };
        let edited = stage.machine.edit(|state| {
            state.faults = ["_v3", "_v2"]
                .map(|version| hide(&format!("nvmlDeviceGetComputeRunningProcesses{version}")))
                .into();
            state.faults.push(fake_machine::Fault {
                call: "cuDevicePrimaryCtxRetain".into(),
                nth: 0,
                effect: Effect::SleepMs(300),
            });
            Ok(())
        });
        let mut stranger = stranger(&stage);
        edited.unwrap();
        let mut client = stage.client();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                stranger.does(&format!("alloc 1 {}", 1000 * MIB));
            });
            client.does("begin");
        });
        let booked = stage.booked_mib();
        assert_eq!(booked, most, "told {told:?}");
    }
}

#[test]
fn code_is_not_charged_with_what_a_neighbour_takes_meanwhile() {
    let stage = Stage::new("code", 4096);
    let mut client = stage.client();
    client.does("begin");
    fresh();
    beside_a_stranger(&stage, "cuModuleLoadData", &mut client, "module 1");
    assert_eq!(booked_mib(&stage, Kind::Module), 2);
    fresh();
    client.does("end-module 1");
    assert_eq!(booked_mib(&stage, Kind::Module), 0);
}

#[test]
fn what_a_context_is_set_to_take_is_found() {
    let stage = Stage::new("heap", 1024);
    let mut client = stage.client();
    client.does("begin");
    fresh();
    // The heap of kernels; 8 MiB of it are a part of the context.
    client.does(&format!("heap {}", 520 * MIB));
    assert_eq!(booked_mib(&stage, Kind::Module), 512);
    assert_eq!(stage.booked_mib(), stage.true_mib());
    let left = 1024 - CONTEXT_MIB - 512;
    assert_eq!(client.ask(&format!("alloc 1 {}", (left + 2) * MIB)).0, OUT_OF_MEMORY);
    client.does(&format!("alloc 1 {}", left * MIB));
    // Nothing is undone that is over the cap already, but nothing is given any more.
    client.does("free 1");
    fresh();
    client.does(&format!("heap {}", 2000 * MIB));
    assert!(stage.booked_mib() > 1024);
    assert_eq!(client.ask("alloc 1 1000").0, OUT_OF_MEMORY);
    fresh();
    client.does(&format!("heap {}", 8 * MIB));
    fresh();
    client.does("alloc 1 1000");
    assert_eq!(stage.booked_mib(), CONTEXT_MIB + 2);
}

/// Where a function lies in the driver's file.
fn place_of(name: &str) -> u64 {
    let done = Command::new("nm").arg("-D").arg(target("libhotpot_fake_cuda.so")).output();
    let listed = String::from_utf8(done.unwrap().stdout).unwrap();
    let line = listed.lines().find(|line| line.ends_with(&format!(" T {name}"))).unwrap();
    u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
}

#[test]
fn what_comes_unseen_is_found_within_a_second() {
    let stage = Stage::new("unseen", 1024);
    let mut client = stage.client();
    client.does("begin");
    // Past the limiter, as the driver itself loads code at a kernel's first launch.
    client.does(&format!("unseen 1 {} {}", 100 * MIB, place_of("cuMemAlloc_v2")));
    let mut stranger = stranger(&stage);
    stranger.does(&format!("alloc 1 {}", 300 * MIB));
    assert_eq!(stage.booked_mib(), CONTEXT_MIB);
    std::thread::sleep(Duration::from_millis(1100));
    client.does("alloc 2 1000");
    assert_eq!((booked_mib(&stage, Kind::Module), stage.booked_mib()), (100, CONTEXT_MIB + 102));
    // Before something is refused NVML is asked again: what is gone is no reason.
    client.does(&format!("unseen-free 1 0 {}", place_of("cuMemFree_v2")));
    fresh();
    client.does(&format!("alloc 3 {}", (1024 - CONTEXT_MIB - 2) * MIB));
    assert_eq!(stage.account().over_cap.count, 0);
}
