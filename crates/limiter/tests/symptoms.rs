//! What has gone wrong in other limiters of this kind, each as a test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]

mod support;

use std::sync::Barrier;

use fake_machine::{Code, Effect};
use support::{CONTEXT_MIB, Client, MIB, OUT_OF_MEMORY, Stage};

#[test]
fn a_place_other_than_a_gpu_does_not_count_whatever_its_id() {
    let stage = Stage::new("places", 256);
    let mut client = stage.client();
    client.does("begin");
    // Host, NUMA node of the host, and the thread's own node; ids that are no GPU's.
    for (place, id) in [(2, 0), (2, 4_000_000_000_u64), (3, 0), (4, 77)] {
        client.does(&format!("create 1 {} {place} {id}", 512 * MIB));
        assert_eq!(stage.booked_mib(), CONTEXT_MIB, "place {place} with id {id}");
        client.does("end-piece 1");
    }
    let code = client.ask(&format!("create 1 {} 1 0", 512 * MIB)).0;
    assert_eq!(code, OUT_OF_MEMORY, "a GPU does count");
}

#[test]
fn memory_of_pools_is_counted_and_can_be_freed() {
    let stage = Stage::new("pooled", 512);
    let mut client = stage.client();
    client.does("begin");
    let mut taken = 0;
    while client.ask(&format!("alloc-async {taken} {}", 64 * MIB)).0 == 0 {
        taken += 1;
        assert!(stage.true_mib() <= 512);
    }
    assert_eq!(taken, (512 - CONTEXT_MIB) / 64);
    for slot in 0..taken {
        // In both ways.
        client.does(&format!("{} {slot}", if slot % 2 == 0 { "free-async" } else { "free" }));
    }
    client.does("wait");
    assert_eq!((stage.booked_mib(), stage.true_mib()), (CONTEXT_MIB, CONTEXT_MIB));
}

#[test]
fn what_the_driver_refuses_is_not_left_in_the_books() {
    let stage = Stage::new("refused", 4096);
    let mut client = stage.client();
    client.does("begin");
    stage.fault("cuMemAlloc_v2", Effect::Fail(Code::Unknown));
    assert_ne!(client.ask(&format!("alloc 1 {}", 64 * MIB)).0, 0);
    stage.no_faults();
    assert_eq!(stage.booked_mib(), CONTEXT_MIB);
    // Freed twice, and of another sort: an error, and no credit.
    client.does(&format!("alloc 1 {}", 64 * MIB));
    client.does("free 1");
    assert_ne!(client.ask("free 1").0, 0);
    client.does("array 2 2048 2048");
    assert_ne!(client.ask("free 2").0, 0);
    assert_eq!((stage.booked_mib(), stage.true_mib()), (CONTEXT_MIB + 16, CONTEXT_MIB + 16));
}

#[test]
fn processes_do_not_race_past_the_cap_together() {
    let stage = Stage::new("race", 1024);
    let barrier = Barrier::new(6);
    let taken: u64 = std::thread::scope(|threads| {
        let runs: Vec<_> = (0..6)
            .map(|_| {
                threads.spawn(|| {
                    let mut client = stage.client();
                    client.does("begin");
                    barrier.wait();
                    let mut taken = 0;
                    while client.ask(&format!("alloc {taken} {}", 8 * MIB)).0 == 0 {
                        taken += 1;
                    }
                    // All hold what they have until all are done.
                    barrier.wait();
                    assert!(stage.true_mib() <= 1024);
                    barrier.wait();
                    taken
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).sum()
    });
    assert_eq!(taken, (1024 - 6 * CONTEXT_MIB) / 8, "all of the cap, and no more");
    assert_eq!(stage.account().peak_bytes, 1024 * MIB);
}

#[test]
fn threads_that_take_and_give_back_at_once_keep_the_books() {
    let stage = Stage::new("threads", CONTEXT_MIB + 256);
    let mut client = stage.client();
    client.does("begin");
    // Eight threads want up to eight pieces of 8 MiB each, of which 32 are there.
    let refused = client.does("threads 8 2000");
    assert!(refused > 0, "the cap was never met");
    assert_eq!((stage.booked_mib(), stage.true_mib()), (CONTEXT_MIB, CONTEXT_MIB));
    assert!(stage.account().peak_bytes <= (CONTEXT_MIB + 256) * MIB);
}

#[test]
fn a_thread_that_waits_in_the_driver_holds_up_no_other() {
    let stage = Stage::new("beside", 4096);
    let mut client = stage.client();
    client.does("begin");
    client.does(&format!("alloc-async 5 {}", 8 * MIB));
    client.does(&format!("create 1 {} 1 0", 64 * MIB));
    client.does("map 1 2");
    for (what, slow) in [(1, "cuMemAllocAsync"), (2, "cuMemUnmap"), (3, "cuDevicePrimaryCtxRetain")]
    {
        stage.fault(slow, Effect::SleepMs(2000));
        assert_eq!(client.does(&format!("beside {what} 2")), 1, "held up by {slow}");
        stage.no_faults();
    }
    client.does("end-piece 1");
    assert_eq!(stage.booked_mib(), stage.true_mib());
}

#[test]
fn a_process_that_is_killed_leaves_nothing_behind() {
    let stage = Stage::new("killed", 1024);
    for _ in 0..5 {
        let mut client = stage.client();
        client.does("begin");
        client.does(&format!("alloc 1 {}", 900 * MIB));
        client.kill();
    }
    let mut client = stage.client();
    client.does("begin");
    client.does(&format!("alloc 1 {}", 900 * MIB));
    assert_eq!((stage.booked_mib(), stage.true_mib()), (964, 964));
}

#[test]
fn a_forked_process_holds_nothing_and_disturbs_nothing() {
    let stage = Stage::new("forked", 1024);
    let mut client = stage.client();
    client.does("begin");
    client.does(&format!("alloc 1 {}", 512 * MIB));
    for _ in 0..3 {
        // CUDA_ERROR_NOT_INITIALIZED: what CUDA says in a child of a process that had begun.
        assert_eq!(client.does(&format!("fork {}", 64 * MIB)), 3);
        assert_eq!(stage.account().processes.len(), 1);
        assert_eq!(stage.booked_mib(), CONTEXT_MIB + 512);
    }
    client.does("free 1");
    assert_eq!(stage.booked_mib(), CONTEXT_MIB);
}

#[test]
fn recording_a_stream_that_allocates_is_not_disturbed() {
    let stage = Stage::new("recording", 1024);
    let mut client = stage.client();
    client.does("begin");
    for round in 0..3 {
        client.does(&format!("capture {round} {}", 32 * MIB));
        client.does(&format!("launch {round}"));
    }
    client.does("wait");
    assert!(stage.true_mib() <= stage.booked_mib());
}

#[test]
fn nothing_is_ever_written_to_the_programs_output() {
    let stage = Stage::new("silent", 128);
    let mut command = stage.command(&support::built("told", &["told.c"], &["-ldl", "-lpthread"]));
    command.stderr(std::process::Stdio::piped());
    let mut client = Client::start(&mut command);
    client.does("begin");
    for _ in 0..5 {
        assert_eq!(client.ask(&format!("alloc 1 {}", 512 * MIB)).0, OUT_OF_MEMORY);
    }
    let mut errors = client.child.stderr.take().unwrap();
    client.kill();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut errors, &mut said).unwrap();
    assert_eq!(said, "");
    assert_eq!(stage.log().lines().count(), 5);
}

#[test]
fn a_gpu_that_is_not_the_tenants_cannot_be_used() {
    let stage = Stage::new("foreign", 1024);
    let caps = stage.folder.join("caps");
    let text = std::fs::read_to_string(&caps).unwrap();
    let uuid = stage.machine.read().gpus[0].uuid.clone();
    std::fs::write(&caps, text.replace(&format!("[{uuid}]"), "[GPU-not-this-one]")).unwrap();
    let mut client = stage.client();
    // CUDA_ERROR_DEVICE_UNAVAILABLE
    assert_eq!(client.ask("begin").0, 46);
}

#[test]
fn a_process_that_becomes_another_program_holds_nothing_any_more() {
    let stage = Stage::new("became", 1024);
    let mut first = stage.client();
    first.does("begin");
    first.does(&format!("alloc 1 {}", 900 * MIB));
    first.tells("become");
    let mut second = stage.client();
    second.does("begin");
    let begun = std::time::Instant::now();
    // Until the first has become `sleep`.
    while second.ask(&format!("alloc 1 {}", 900 * MIB)).0 != 0 {
        assert!(begun.elapsed().as_secs() < 10, "it is held by a program that has no GPU");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_program_without_outputs_does_not_print_into_the_books() {
    let stage = Stage::new("closed", 1024);
    let told = support::built("told", &["told.c"], &["-ldl", "-lpthread"]);
    let script = "exec 3<&0 0<&- 1>&- 2>&-; exec \"$0\" <&3";
    let mut command = stage.command(std::path::Path::new("sh"));
    command.args(["-c", script]).arg(told).stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let text = format!("begin\nalloc 1 {}\nalloc 2 {}\n", 64 * MIB, 64 * MIB);
    std::io::Write::write_all(&mut to, text.as_bytes()).unwrap();
    drop(to);
    child.wait().unwrap();
    let mut other = stage.client();
    other.does("begin");
    assert_eq!(stage.booked_mib(), CONTEXT_MIB, "the books are as they were");
}
