//! The terminal report of two small comparisons, to the letter.

use simulator::outcome::{Comparison, Outcome, Sample, SizeCount, Totals, Waits};
use simulator::report::terminal;

fn run(policy: &str, allocated: [f64; 6]) -> Outcome {
    let sample = |(index, allocated_pct): (usize, f64)| Sample {
        at_ms: index as u64 * 3_600_000,
        arrived_pct: 25.0 * index as f64,
        allocated_pct,
        ..Sample::default()
    };
    let samples = allocated.into_iter().enumerate().map(sample).collect();
    Outcome { policy: policy.to_owned(), samples, totals: Totals::default() }
}

fn comparison(timed: bool) -> Comparison {
    let mut first = run("first-fit", [0.0, 25.0, 50.0, 70.0, 80.0, 84.0]);
    first.totals = Totals {
        arrived: 1_250,
        started: 1_100,
        rejected: 150,
        allocated_pct: 84.0,
        fragmented_pct: 9.5,
        allocated_mean_pct: 51.5,
        makespan_ms: 18_000_000,
        gpu_hours_held: 1_234.5,
        gpu_hours_in_use: 1_300.0,
        waits: Waits { mean_ms: 90_000, p50_ms: 0, p95_ms: 400_000, p99_ms: 0, max_ms: 7_200_000 },
        by_size: [SizeCount::default(); 6],
        ..Totals::default()
    };
    first.totals.by_size[1] = SizeCount { arrived: 1_000, rejected: 50 };
    first.totals.by_size[5] = SizeCount { arrived: 250, rejected: 100 };
    let mut other = run("hotpot", [0.0, 25.0, 50.0, 74.0, 90.0, 95.0]);
    other.totals = first.totals.clone();
    other.totals.allocated_pct = 95.0;
    other.totals.started = 1_190;
    other.totals.rejected = 60;
    other.totals.by_size[5].rejected = 10;
    other.totals.waits.mean_ms = 45_000;
    Comparison {
        trace: "tiny.csv".to_owned(),
        nodes: 1,
        gpus: 8,
        timed,
        protocol: "Made up for a test.".to_owned(),
        runs: vec![first, other],
    }
}

#[test]
fn arrivals_only() {
    let golden = "\
tiny.csv
1 node, 8 GPUs, 2 policies
Made up for a test.

                          first-fit       hotpot
Allocated at the end         84.0 %       95.0 %*
Fragmented at the end         9.5 %        9.5 %
Arrived                       1,250        1,250
Started                       1,100        1,190*
Rejected                        150           60*
Waiting at the end                0            0
Rejected of arrived
  shared                      5.0 %        5.0 %
  8+ GPUs                    40.0 %        4.0 %*

* best of its row

Allocated, ▁ 56 % to █ 95 %, over arrived demand from 54 to
125 %
  first-fit            ▁▁▁▂▂▃▃▃▄▄▄▄▅▅▅▅▅▆▆▆▆▆▆▆▆▆▆    84.0 %
  hotpot               ▁▁▂▂▃▃▄▄▅▅▅▆▆▆▇▇▇██████████    95.0 %
";
    assert_eq!(terminal(&comparison(false), 60, false), golden);
}

#[test]
fn timed_with_colour() {
    let golden = "\
^[1mtiny.csv^[0m
1 node, 8 GPUs, 2 policies
Made up for a test.

                          ^[1mfirst-fit^[0m       ^[1mhotpot^[0m
Allocated at the end         84.0 %       ^[1;32m95.0 %*^[0m
Allocated, time mean         51.5 %       51.5 %
Fragmented at the end         9.5 %        9.5 %
Arrived                       1,250        1,250
Started                       1,100        ^[1;32m1,190*^[0m
Rejected                        150           ^[1;32m60*^[0m
Waiting at the end                0            0
Wait, mean                  1.5 min       ^[1;32m45.0 s*^[0m
Wait, median                    0 s          0 s
Wait, 95th percentile       6.7 min      6.7 min
Wait, 99th percentile           0 s          0 s
Wait, longest                 2.0 h        2.0 h
Makespan                      5.0 h        5.0 h
GPU hours held            1,234.5 h    1,234.5 h
GPU hours in use          1,300.0 h    1,300.0 h
Rejected of arrived
  shared                      5.0 %        5.0 %
  8+ GPUs                    40.0 %        ^[1;32m4.0 %*^[0m

* best of its row

Allocated, ▁ 0 % to █ 95 %, over the run’s 5.0 h
  first-fit            ▁▁▁▁▁▃▃▃▃▃▅▅▅▅▅▅▆▆▆▆▆▇▇▇▇▇█ ^[2m   84.0 %^[0m
  hotpot               ▁▁▁▁▁▃▃▃▃▃▅▅▅▅▅▅▇▇▇▇▇██████ ^[2m   95.0 %^[0m
";
    let text = terminal(&comparison(true), 60, true).replace('\u{1b}', "^");
    assert_eq!(text, golden);
}
