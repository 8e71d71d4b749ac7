//! What calls cost, printed. To be run by hand, with optimisation:
//! `cargo test --release -p fake-gpu --test speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a part of tests")]

use std::time::Instant;

use fake_gpu::{Gpus, MemoryKind, Place, Work};
use fake_machine::{GpuSpec, Machine};

/// Prints the time of one call of many.
fn measure(name: &str, times: u32, mut call: impl FnMut()) {
    let start = Instant::now();
    for _ in 0..times {
        call();
    }
    let each = start.elapsed().as_nanos() / u128::from(times);
    eprintln!("{name:40} {each:6} ns");
}

#[test]
#[ignore = "a measurement"]
fn calls() {
    let folder = std::env::temp_dir().join(format!("fake-gpu-speed-{}", std::process::id()));
    let machine = Machine::create(&folder, &GpuSpec::list("a100-80gb:2").unwrap()).unwrap();
    let gpus = Gpus::open(&machine).unwrap();
    let place = Place { gpu: 0, instance: None };
    measure("take and give", 1_000_000, || {
        let claim = gpus.take(place, MemoryKind::Plain, 4096).unwrap();
        assert!(gpus.give(claim));
    });
    let many: Vec<_> =
        (0..60_000).map(|_| gpus.take(place, MemoryKind::Plain, 1).unwrap()).collect();
    measure("take and give beside 60,000 claims", 1_000_000, || {
        let claim = gpus.take(place, MemoryKind::Plain, 4096).unwrap();
        assert!(gpus.give(claim));
    });
    measure("held", 10_000, || assert_eq!(gpus.held().len(), 1));
    drop(many);
    let mut queues = Vec::new();
    for count in [1, 8] {
        queues.resize_with(count, || gpus.queue(place).unwrap());
        measure(&format!("{count} submits, one to each queue"), 1_000_000, || {
            for queue in &queues {
                while gpus.submit(*queue, Work { ns: 100, sms: 10 }).is_none() {}
            }
        });
    }
    let ticket = loop {
        if let Some(ticket) = gpus.submit(queues[0], Work { ns: u64::MAX, sms: 1 }) {
            break ticket;
        }
    };
    measure("now_ns", 1_000_000, || {
        std::hint::black_box(gpus.now_ns());
    });
    measure("last", 1_000_000, || {
        std::hint::black_box(gpus.last(queues[0]));
    });
    measure("done of a piece that is not", 1_000_000, || assert!(!gpus.done(ticket)));
    measure("submit behind it when full or not", 1_000_000, || {
        let _ = gpus.submit(queues[0], Work { ns: 100, sms: 10 });
    });
    measure("queue and drop_queue", 100_000, || gpus.drop_queue(gpus.queue(place).unwrap()));
    std::fs::remove_dir_all(folder).unwrap();
}
