//! Made-up comparisons: plain, large, hostile and degenerate.

use simulator::outcome::{Comparison, Outcome, Sample, SizeCount, Totals, Waits};

/// Three policies on arrivals alone, 130 samples each.
pub(crate) fn arrivals() -> Comparison {
    let runs = [("best-fit", 0.90), ("random", 0.86), ("fragmentation-aware", 0.955)];
    Comparison {
        trace: "production-2023, default mix".to_owned(),
        nodes: 1213,
        gpus: 6212,
        timed: false,
        protocol: "Workloads arrive one by one in the order of the trace and stay; one that fits \
                   nowhere is rejected, until the arrived demand is 130 % of the fleet's GPUs."
            .to_owned(),
        runs: runs.map(|(policy, most)| arrivals_run(policy, most)).into(),
    }
}

fn arrivals_run(policy: &str, most: f64) -> Outcome {
    let sample = |percent: u32| {
        let demand = f64::from(percent);
        let over = (demand - 88.0 * most).max(0.0);
        let allocated =
            (demand - over) + (100.0 * most - 88.0 * most) * (1.0 - (-over / 12.0).exp());
        Sample {
            at_ms: u64::from(percent) * 1_000,
            arrived_pct: demand,
            allocated_pct: allocated,
            fragmented_pct: (100.0 - allocated) * (1.0 - most * 0.6) * (demand / 130.0),
            busy_pct: (demand * 1.3).min(99.0),
            waiting: 0,
            running: u64::from(percent) * 60,
            rejected: (over * 14.0) as u64,
        }
    };
    let samples: Vec<Sample> = (1..=130).map(sample).collect();
    let last = samples.last().copied().unwrap_or_default();
    let arrived = [1_204, 4_391, 2_107, 96, 41, 313];
    let lost = |part: f64, count: u64| (count as f64 * part * (1.05 - most) * 4.0) as u64;
    let parts = [0.0, 0.06, 0.35, 0.5, 0.7, 0.9];
    let by_size = std::array::from_fn(|size| SizeCount {
        arrived: arrived[size],
        rejected: lost(parts[size], arrived[size]),
    });
    let rejected = by_size.iter().map(|count| count.rejected).sum();
    let totals = Totals {
        arrived: 8_152,
        started: 8_152 - rejected,
        rejected,
        allocated_pct: last.allocated_pct,
        fragmented_pct: last.fragmented_pct,
        allocated_mean_pct: last.allocated_pct / 2.0,
        by_size,
        ..Totals::default()
    };
    Outcome { policy: policy.to_owned(), samples, totals }
}

/// Nine policies with long names in a timed run of four days, 2,000 samples each.
pub(crate) fn timed() -> Comparison {
    let names = [
        "first-fit",
        "best-fit-by-remaining-memory-then-compute",
        "worst-fit",
        "dot-product-alignment",
        "fragmentation-gradient-descent-v1",
        "fragmentation-gradient-descent-v2",
        "mig-aware-repartitioning",
        "random-seed-42",
        "hotpot",
    ];
    Comparison {
        trace: "a-trace-with-a-rather-long-file-name-2026-11-29.csv".to_owned(),
        nodes: 16,
        gpus: 128,
        timed: true,
        protocol: "Arrivals, durations and a queue as in the trace.".to_owned(),
        runs: names.iter().enumerate().map(|(index, name)| timed_run(name, index as u32)).collect(),
    }
}

fn timed_run(policy: &str, index: u32) -> Outcome {
    let skill = f64::from(index) / 9.0;
    let sample = |step: u32| {
        let t = f64::from(step) / 2_000.0;
        let load = (1.2 + 0.6 * (t * 25.0).sin() + 0.1 * (t * 390.0 + skill).sin()) * (1.0 - t * t);
        let allocated = (load * 60.0).min(72.0 + 22.0 * skill);
        Sample {
            at_ms: 1_700_000_000_000 + u64::from(step) * (172_800 + u64::from(index) * 2_000),
            arrived_pct: t * 900.0,
            allocated_pct: allocated,
            fragmented_pct: (100.0 - allocated) * (0.5 - 0.3 * skill) * load.min(1.0),
            busy_pct: (allocated * 1.15).min(100.0),
            waiting: (((load * 60.0) - allocated).max(0.0) * 9.0) as u64,
            running: (allocated * 2.0) as u64,
            rejected: 0,
        }
    };
    let wait = 5_400_000 - u64::from(index) * 500_000;
    let totals = Totals {
        arrived: 12_000,
        started: 12_000,
        allocated_mean_pct: 58.0 + 3.0 * skill,
        fragmented_pct: 1.0,
        makespan_ms: 2_000 * (172_800 + u64::from(9 - index) * 2_000),
        gpu_hours_held: 7_128.4,
        gpu_hours_in_use: 7_500.0,
        waits: Waits {
            mean_ms: wait,
            p50_ms: wait / 30,
            p95_ms: wait * 4,
            p99_ms: wait * 9,
            max_ms: wait * 30,
        },
        by_size: [SizeCount { arrived: 2_000, rejected: 0 }; 6],
        ..Totals::default()
    };
    Outcome { policy: policy.to_owned(), samples: (0..2_000).map(sample).collect(), totals }
}

/// A comparison whose every name wants to be markup.
pub(crate) fn hostile() -> Comparison {
    let mut comparison = arrivals();
    let attack =
        "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;\u{1b}[2J\u{202e}";
    comparison.trace = attack.to_owned();
    comparison.protocol = attack.to_owned();
    comparison.runs[0].policy = attack.to_owned();
    comparison.runs[1].policy = "a,b\n\"c\"".to_owned();
    comparison
}

/// Comparisons with little, nothing or nonsense in them.
pub(crate) fn degenerate() -> Vec<Comparison> {
    let none = Comparison::default();
    let no_samples = Comparison { runs: vec![Outcome::default(); 2], ..Comparison::default() };
    let mut one_sample = arrivals();
    one_sample.runs.iter_mut().for_each(|run| run.samples.truncate(1));
    let mut timed_point = one_sample.clone();
    timed_point.timed = true;
    let mut strange = timed();
    for (index, run) in strange.runs.iter_mut().enumerate() {
        let value = [f64::NAN, f64::INFINITY, f64::MAX, -1e300, -5.0][index % 5];
        run.samples.iter_mut().step_by(2).for_each(|sample| sample.allocated_pct = value);
        run.samples[0].at_ms = u64::MAX;
        run.totals.allocated_pct = value;
        run.totals.waits.max_ms = u64::MAX;
        run.totals.by_size[0] = SizeCount { arrived: 0, rejected: u64::MAX };
    }
    let mut lost = arrivals();
    for sample in lost.runs.iter_mut().flat_map(|run| &mut run.samples) {
        sample.arrived_pct = f64::NAN;
    }
    let mut crowd = arrivals();
    crowd.runs = vec![crowd.runs[0].clone(); 40];
    vec![none, no_samples, one_sample, timed_point, strange, lost, crowd]
}
