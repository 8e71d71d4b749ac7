//! Replays of small traces, counted by hand.

use model::{
    Arrival, Catalogue, Demand, Fleet, Gpu, GpuAsk, GpuDemand, Isolation, ModeSet, Node, Owner,
    Placement, Policy, Preemption, Trace, Workload, WorkloadId,
};
use simulator::outcome::{Comparison, Outcome};
use simulator::{Protocol, Yardstick, arrivals, simulate};

const HOUR_MS: u64 = 3_600_000;

/// One node with four T4.
fn fleet() -> Fleet {
    let mut catalogue = Catalogue::shipped().expect("the tables are compiled in");
    let gpu = Gpu::idle(catalogue.get_or_enter("t4"), ModeSet::ALL);
    Fleet::new(vec![Node::idle("n".to_owned(), 64_000, 262_144, vec![gpu; 4])])
}

fn arrival(at_ms: u64, runs_ms: Option<u64>, each: GpuAsk) -> Arrival {
    let (isolation, modes) = (Isolation::None, ModeSet::ALL);
    let gpus = GpuDemand { count: 1, each, accepts: Vec::new(), isolation, modes };
    let demand =
        Demand { cpu_milli: 1000, memory_mib: 1024, gpus: Some(gpus), ..Demand::default() };
    let workload = Workload::new(WorkloadId(0), "w".to_owned(), Owner::new("o"), demand);
    Arrival { at_ms, runs_ms, workload }
}

fn timed(arrivals: Vec<Arrival>) -> Outcome {
    let policy = Policy::new(Placement::BestFit);
    simulate(&fleet(), &Trace { arrivals }, policy, Protocol::Timed, &(), &mut ())
        .expect("legal plans")
}

#[test]
fn six_jobs_on_four_gpus() {
    let outcome = timed(vec![arrival(0, Some(HOUR_MS), GpuAsk::Whole); 6]);
    let totals = &outcome.totals;
    assert_eq!((totals.arrived, totals.started, totals.rejected), (6, 6, 0));
    assert_eq!(totals.makespan_ms, 2 * HOUR_MS);
    assert!((totals.gpu_hours_held - 6.0).abs() < 1e-9);
    assert!((totals.allocated_mean_pct - 75.0).abs() < 1e-9);
    assert_eq!((totals.waits.mean_ms, totals.waits.max_ms), (HOUR_MS / 3, HOUR_MS));
}

#[test]
fn half_a_gpu_holds_half_and_costs_a_whole_one() {
    let half = GpuAsk::Fraction { compute_milli: 500, memory_mib: 0 };
    let runs = vec![timed(vec![arrival(0, Some(HOUR_MS), half); 3])];
    let comparison = Comparison { runs, ..Comparison::default() }.priced(2.5);
    let totals = &comparison.runs[0].totals;
    assert!((totals.gpu_hours_held - 1.5).abs() < 1e-9, "{totals:?}");
    assert!((totals.gpu_hours_in_use - 2.0).abs() < 1e-9, "two on one, one on another: {totals:?}");
    assert!((totals.cost - 5.0).abs() < 1e-9, "{totals:?}");
}

#[test]
fn a_sample_shows_its_moment_when_all_has_happened() {
    let outcome = timed(vec![arrival(0, Some(HOUR_MS), GpuAsk::Whole); 6]);
    let first = &outcome.samples[0];
    assert_eq!((first.at_ms, first.running, first.waiting), (0, 4, 2));
    assert!((first.allocated_pct - 100.0).abs() < 1e-9);
    let times: Vec<u64> = outcome.samples.iter().map(|sample| sample.at_ms).collect();
    assert_eq!(times, [0, HOUR_MS, 2 * HOUR_MS]);
}

#[test]
fn a_time_limit_ends_what_would_run_longer() {
    let mut long = arrival(0, Some(5 * HOUR_MS), GpuAsk::Whole);
    long.workload.time_limit_ms = Some(HOUR_MS);
    assert_eq!(timed(vec![long]).totals.makespan_ms, HOUR_MS);
}

#[test]
fn what_can_never_run_is_rejected_and_holds_up_nobody() {
    let mut wide = arrival(0, Some(HOUR_MS), GpuAsk::Whole);
    wide.workload.demand.gpus.as_mut().unwrap().count = 5;
    let outcome = timed(vec![wide, arrival(1, Some(HOUR_MS), GpuAsk::Whole)]);
    assert_eq!((outcome.totals.rejected, outcome.totals.started), (1, 1));
    assert_eq!(outcome.totals.waits.max_ms, 0);
}

#[test]
fn a_fill_run_counts_memory_and_profiles_as_parts_of_the_fleet() {
    let half = GpuAsk::Fraction { compute_milli: 0, memory_mib: 7000 };
    let trace = Trace { arrivals: vec![arrival(0, Some(1), half); 3] };
    let yardstick = Yardstick::of(&fleet());
    // 7,000 MiB and 300 for the context of 14,910 MiB, rounded up.
    assert_eq!(yardstick.gpu_milli(&trace.arrivals[0].workload), 490);
    let filled = arrivals::fill(&trace, &yardstick, 2.0, 1);
    assert_eq!(filled.arrivals.len(), 8000 / 490);
    let policy = Policy::new(Placement::BestFit);
    let outcome = simulate(&fleet(), &filled, policy, Protocol::Fill, &(), &mut ()).unwrap();
    assert_eq!(outcome.totals.started, 8, "two on each GPU");
}

#[test]
fn a_fill_order_is_that_of_its_seed() {
    let one = GpuAsk::Fraction { compute_milli: 100, memory_mib: 0 };
    let named = |at: u64| {
        let mut arrival = arrival(0, None, one.clone());
        arrival.workload.name = format!("w{at}");
        arrival
    };
    let trace = Trace { arrivals: (0..20).map(named).collect() };
    let names = |seed| {
        let filled = arrivals::fill(&trace, &Yardstick::of(&fleet()), 1.0, seed);
        filled.arrivals.into_iter().map(|a| a.workload.name).collect::<Vec<_>>()
    };
    assert_eq!(names(1), names(1));
    assert_ne!(names(1), names(2));
    assert_eq!(names(1).len(), 40, "topped up to the load");
}

/// Four GPUs in use, and half an hour later somebody more important: the youngest leaves at the end of
/// its grace, waits for the others to end, and does all of its work once more.
#[test]
fn who_is_asked_to_leave_starts_over() {
    let mut arrivals = vec![arrival(0, Some(2 * HOUR_MS), GpuAsk::Whole); 3];
    arrivals.push(arrival(HOUR_MS / 4, Some(2 * HOUR_MS), GpuAsk::Whole));
    let mut urgent = arrival(HOUR_MS / 2, Some(4 * HOUR_MS), GpuAsk::Whole);
    urgent.workload.priority = 1;
    arrivals.push(urgent);
    let preemption = Some(Preemption { grace_ms: HOUR_MS / 4 });
    let policy = Policy { preemption, ..Policy::new(Placement::BestFit) };
    let run = |protocol| {
        let trace = Trace { arrivals: arrivals.clone() };
        simulate(&fleet(), &trace, policy.clone(), protocol, &(), &mut ())
            .expect("legal plans")
            .totals
    };
    let totals = run(Protocol::Timed);
    assert_eq!((totals.arrived, totals.started, totals.preempted), (5, 5, 1));
    assert_eq!((totals.waits.max_ms, totals.waits.p50_ms), (HOUR_MS / 4, 0));
    // The urgent one runs from 0:45 to 4:45, the youngest from 2:00 to 4:00 once more.
    assert_eq!(totals.makespan_ms, 19 * HOUR_MS / 4);
    assert!((totals.gpu_hours_lost - 0.5).abs() < 1e-9, "{totals:?}");
    assert!((totals.gpu_hours_held - 12.5).abs() < 1e-9, "{totals:?}");
    let fill = run(Protocol::Fill);
    assert_eq!((fill.rejected, fill.preempted), (1, 0));
}

/// Whoever would have been done before the end of the grace is done, and loses nothing.
#[test]
fn who_ends_within_the_grace_is_done() {
    let mut arrivals = vec![arrival(0, Some(HOUR_MS), GpuAsk::Whole); 4];
    let mut urgent = arrival(HOUR_MS / 2, Some(HOUR_MS), GpuAsk::Whole);
    urgent.workload.priority = 1;
    arrivals.push(urgent);
    let preemption = Some(Preemption { grace_ms: 5 * HOUR_MS });
    let policy = Policy { preemption, ..Policy::new(Placement::BestFit) };
    let trace = Trace { arrivals };
    let totals = simulate(&fleet(), &trace, policy, Protocol::Timed, &(), &mut ())
        .expect("legal plans")
        .totals;
    assert_eq!((totals.preempted, totals.makespan_ms), (0, 2 * HOUR_MS));
}

/// Two share a GPU at half speed each; the more, the slower.
struct Halves;

impl simulator::Speeds for Halves {
    fn are_full(&self) -> bool {
        false
    }

    fn of(&self, gpu: &Gpu) -> Vec<u32> {
        let tenants = gpu.tenants();
        vec![1000 / tenants.len().max(1) as u32; tenants.len()]
    }
}

#[test]
fn those_who_share_a_gpu_take_longer_as_long_as_they_do() {
    let part = |memory_mib| GpuAsk::Fraction { compute_milli: 0, memory_mib };
    let run = |arrivals: Vec<Arrival>| {
        let policy = Policy::new(Placement::BestFit);
        simulate(&fleet(), &Trace { arrivals }, policy, Protocol::Timed, &Halves, &mut ()).unwrap()
    };
    // Two hours of work beside one hour: until the short one is done, both run at half speed.
    let pair =
        vec![arrival(0, Some(2 * HOUR_MS), part(4000)), arrival(0, Some(HOUR_MS), part(4000))];
    let totals = run(pair.clone()).totals;
    assert_eq!(totals.makespan_ms, 3 * HOUR_MS);
    // A time limit is one of the clock.
    let mut limited = pair.clone();
    limited[1].workload.time_limit_ms = Some(HOUR_MS);
    assert_eq!(run(limited).totals.makespan_ms, 2 * HOUR_MS + HOUR_MS / 2);
    // One that comes when half is done, for as long as that takes.
    let mut later = pair;
    later[1].at_ms = HOUR_MS;
    assert_eq!(run(later).totals.makespan_ms, 3 * HOUR_MS);
    let alone = vec![arrival(0, Some(HOUR_MS), GpuAsk::Whole); 4];
    assert_eq!(run(alone).totals.makespan_ms, HOUR_MS, "nobody sits beside");
}
