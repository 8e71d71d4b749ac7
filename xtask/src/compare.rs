//! Our policy against FGD, on every shipped workload and seed.

use simulator::outcome::{Outcome, Size};

use crate::openb::{self, Experiment, SEEDS, WORKLOADS};
use crate::reproduce::replay;
use crate::{Verdict, parallel};

/// Arrived percent at which allocations are compared.
const POINTS: [u64; 5] = [80, 90, 95, 100, 130];
/// How far below FGD a mean may lie at any point, in points of allocation.
const LOSS_MAX: f64 = 0.05;
/// How far above FGD the default workload has to be at 100 and 130 %.
const GAIN_MIN: f64 = 0.4;
/// Seeds on which the policy's constants were chosen; `--quick` runs these alone.
const TUNED_ON: usize = 3;

pub(crate) fn run(quick: bool) -> Verdict {
    let folder = openb::folder_or_why()?;
    let seeds: Vec<u64> = SEEDS.take(if quick { TUNED_ON } else { usize::MAX }).collect();
    println!(
        "allocation of hotpot less that of fgd, mean of {} seeds, points of GPU capacity",
        seeds.len()
    );
    println!("(constants were chosen on seeds 42 to 44)\n");
    print!("{:<12}", "workload");
    for percent in POINTS {
        print!(" {:>8}", format!("@{percent}"));
    }
    println!("   hotpot @100/@130   worst seed @100   rejected of fgd -> hotpot: {}", labels());
    let mut complaints = Vec::new();
    for workload in WORKLOADS {
        let experiment = Experiment::read(&folder, workload)?;
        let jobs: Vec<(&str, u64)> = ["fgd", "hotpot"]
            .iter()
            .flat_map(|policy| seeds.iter().map(|seed| (*policy, *seed)))
            .collect();
        let outcomes =
            parallel::run(&jobs, |(policy, seed)| replay(&experiment, policy, *seed, &mut ()))?;
        let (fgd, ours) = outcomes.split_at(seeds.len());
        row(workload, fgd, ours, &mut complaints);
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n       ")) }
}

fn row(workload: &str, fgd: &[Outcome], ours: &[Outcome], complaints: &mut Vec<String>) {
    print!("{workload:<12}");
    for percent in POINTS {
        let gain = mean(ours, percent) - mean(fgd, percent);
        print!(" {gain:>+8.2}");
        let wanted = match (workload, percent) {
            ("default", 100 | 130) => GAIN_MIN,
            _ => -LOSS_MAX,
        };
        if gain < wanted {
            complaints.push(format!("{workload} at {percent} %: {gain:+.3}, wanted {wanted:+.2}"));
        }
    }
    let pairs = fgd.iter().zip(ours);
    let worst = pairs.map(|(fgd, ours)| at(ours, 100) - at(fgd, 100)).fold(f64::MAX, f64::min);
    print!("   {:>7.2}/{:<7.2} {worst:>+12.2}      ", mean(ours, 100), mean(ours, 130));
    for size in Size::ALL {
        print!(" {:.1}->{:.1}", rejected(fgd, size), rejected(ours, size));
    }
    println!();
}

/// Allocation at a whole percent of arrived demand; at the last one below it if a workload ends early.
fn at(outcome: &Outcome, percent: u64) -> f64 {
    let reached = outcome.samples.iter().rfind(|sample| sample.arrived_pct as u64 <= percent);
    reached.map_or(0.0, |sample| sample.allocated_pct)
}

pub(crate) fn mean(outcomes: &[Outcome], percent: u64) -> f64 {
    outcomes.iter().map(|outcome| at(outcome, percent)).sum::<f64>() / outcomes.len() as f64
}

fn rejected(outcomes: &[Outcome], size: Size) -> f64 {
    let count = |outcome: &Outcome| outcome.totals.by_size[size as usize].rejected as f64;
    outcomes.iter().map(count).sum::<f64>() / outcomes.len() as f64
}

fn labels() -> String {
    Size::ALL.map(Size::label).join(", ")
}
