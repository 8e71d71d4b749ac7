//! Slurm's accounts as a trace, by a list that was recorded from Slurm 22.05.8.

mod support;

use formats::sacct;
use formats::trace::{self, TraceKind, TraceOptions};
use model::{Arrival, GpuAsk};
use support::source;

const RECORDED: &str = include_str!("sacct/lab.txt");

fn read(text: &str) -> trace::Reading {
    let options = TraceOptions { shard_mib: 256, ..TraceOptions::default() };
    trace::read(&source("jobs", text), &options).expect("a list of sacct's")
}

fn named<'a>(arrivals: &'a [Arrival], name: &str) -> &'a Arrival {
    arrivals.iter().find(|arrival| arrival.workload.name == name).expect("a job")
}

#[test]
fn a_recorded_list_becomes_arrivals() {
    let reading = read(RECORDED);
    assert_eq!(reading.kind, TraceKind::Sacct);
    let arrivals = &reading.trace.arrivals;
    assert_eq!(arrivals.len(), 21);
    assert!(arrivals.is_sorted_by_key(|arrival| arrival.at_ms));
    let train = named(arrivals, "train #1");
    assert_eq!((train.at_ms, train.runs_ms), (0, Some(387_000)));
    assert_eq!(train.workload.time_limit_ms, Some(7_200_000));
    assert_eq!(train.workload.owner.as_str(), "root");
    let gpus = train.workload.demand.gpus.as_ref().unwrap();
    assert_eq!((gpus.count, &gpus.each), (1, &GpuAsk::Whole));
    // 284 shards of 256 MiB.
    let infer = named(arrivals, "infer #2").workload.demand.gpus.clone().unwrap();
    assert_eq!(infer.each, GpuAsk::Fraction { compute_milli: 0, memory_mib: 284 * 256 });
    // Two nodes, each with an instance and 8 CPUs.
    let two = &named(arrivals, "two #3").workload;
    assert_eq!((two.members, two.demand.cpu_milli, two.demand.memory_mib), (2, 8000, 1000));
    let gpus = two.demand.gpus.as_ref().unwrap();
    assert_eq!((gpus.count, &gpus.each), (1, &GpuAsk::Profile("1g.10gb".into())));
    // A task that could start 2 s after its array was submitted.
    assert_eq!(named(arrivals, "evals #23_4").at_ms, 30_000);
    let notes = reading.notes.join("; ");
    assert_eq!(
        notes,
        "1 line(s) left out: a name holds the separator; 4 job(s) left out: they never started; 3 job(s) \
         still run: they are taken to end now"
    );
}

#[test]
fn steps_are_left_out_and_dates_read() {
    let text = "JobID|JobName|State|Submit|Start|End|ElapsedRaw|AllocTRES\n\
                1|a|COMPLETED|2026-11-30T10:14:50|2026-11-30T10:14:50|2026-11-30T10:21:17|387|cpu=1,node=1\n\
                1.batch|batch|COMPLETED|2026-11-30T10:14:50|2026-11-30T10:14:50|2026-11-30T10:21:17|387|cpu=1\n\
                2|b|CANCELLED by 0|2026-11-30T10:15:00|2026-11-30T10:15:01|Unknown|5|cpu=2,node=1\n";
    let reading = read(text);
    let seen: Vec<_> = reading.trace.arrivals.iter().map(|it| (it.at_ms, it.runs_ms)).collect();
    assert_eq!(seen, [(0, Some(387_000)), (10_000, Some(5000))]);
    let (rows, unclear) = sacct::rows(&source("jobs", text)).unwrap();
    assert_eq!((rows.len(), unclear, rows[1].state.as_str()), (2, 0, "CANCELLED"));
}

#[test]
fn lists_that_say_too_little_are_refused() {
    let error = |text: &str| trace::read(&source("jobs", text), &TraceOptions::default());
    let missing = error("JobID|State|Submit|Start\n1|COMPLETED|1|1\n").unwrap_err().to_string();
    assert!(
        missing.starts_with("jobs: has no column ElapsedRaw; write it with: sacct"),
        "{missing}"
    );
    let none =
        "JobID|State|Submit|Start|End|ElapsedRaw|AllocTRES\n1|PENDING|5|Unknown|Unknown|0|\n";
    let none = error(none).unwrap_err().to_string();
    assert!(none.contains("has no job that has started"), "{none}");
}
