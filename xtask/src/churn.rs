//! Policies where workloads leave again: the shipped openb workloads with memoryless arrivals and
//! running times, a queue, and backfill.
//!
//! Nothing published to compare with; it shows what the fill runs cannot.

use model::{Arrival, Placement, Policy, SplitMix, Trace};
use simulator::Protocol;
use simulator::outcome::Outcome;

use crate::openb::{self, Experiment, SEEDS};
use crate::{Verdict, parallel};

const WORKLOADS: [&str; 5] = ["default", "cpu250", "gpushare100", "gpuspec33", "multigpu50"];
const POLICIES: [&str; 3] = ["best-fit", "fgd", "hotpot"];
/// GPU demand per time over what the fleet has, percent.
const LOADS: [u32; 2] = [90, 100];
/// Mean running time; only its ratio to the time between arrivals matters.
const RUNS_MEAN_MS: f64 = 3_600_000.0;
/// Length of a run in mean running times; the first third is left out of the figures.
const LENGTH: f64 = 6.0;

pub(crate) fn run(quick: bool) -> Verdict {
    let folder = openb::folder_or_why()?;
    let seeds: Vec<u64> = SEEDS.take(if quick { 1 } else { 3 }).collect();
    println!("GPUs allocated in percent / mean wait in minutes, mean of {} seeds", seeds.len());
    println!("(workloads come and go at random, mean running time one hour, with a queue)\n");
    print!("{:<12} {:>5}", "workload", "load");
    POLICIES.iter().for_each(|policy| print!(" {policy:>16}"));
    println!();
    for workload in WORKLOADS {
        let experiment = Experiment::read(&folder, workload)?;
        for load in LOADS {
            let jobs: Vec<(&str, u64)> = POLICIES
                .iter()
                .flat_map(|policy| seeds.iter().map(|seed| (*policy, *seed)))
                .collect();
            let runs =
                parallel::run(&jobs, |(policy, seed)| one(&experiment, policy, *seed, load))?;
            print!("{workload:<12} {:>5}", format!("{load} %"));
            for of_policy in runs.chunks(seeds.len()) {
                let mean = |figure: fn(&(f64, f64)) -> f64| {
                    of_policy.iter().map(figure).sum::<f64>() / of_policy.len() as f64
                };
                print!(" {:>16}", format!("{:.2} / {:.1}", mean(|run| run.0), mean(|run| run.1)));
            }
            println!();
        }
    }
    Ok(())
}

/// Mean allocation in percent once the fleet has filled, and mean wait in minutes.
fn one(experiment: &Experiment, policy: &str, seed: u64, load: u32) -> Result<(f64, f64), String> {
    let placement = Placement::parse(policy).ok_or("no such policy")?;
    let policy = Policy { mix: experiment.mix.clone(), ..Policy::new(placement) };
    let fleet = experiment.fleet(seed)?;
    let trace = trace(experiment, fleet.gpu_count(), seed, load);
    let end_ms = trace.arrivals.last().map_or(0, |last| last.at_ms);
    let outcome = simulator::simulate(&fleet, &trace, policy, Protocol::Timed, &(), &mut ());
    let outcome = outcome.map_err(|error| error.to_string())?;
    Ok((allocated(&outcome, end_ms), outcome.totals.waits.mean_ms as f64 / 60_000.0))
}

fn allocated(outcome: &Outcome, end_ms: u64) -> f64 {
    let settled = outcome.samples.iter().filter(|s| s.at_ms >= end_ms / 3 && s.at_ms <= end_ms);
    let (sum, count) =
        settled.fold((0.0, 0.0), |(sum, count), s| (sum + s.allocated_pct, count + 1.0));
    sum / f64::max(count, 1.0)
}

/// Tasks drawn from the workload; gaps and running times are exponential.
fn trace(experiment: &Experiment, gpus: u64, seed: u64, load: u32) -> Trace {
    let tasks = experiment.tasks();
    let asked: u64 = tasks.iter().map(|task| task.workload.demand.gpu_milli()).sum();
    let gpus_mean = asked as f64 / 1000.0 / tasks.len() as f64;
    let gap_mean_ms = RUNS_MEAN_MS * gpus_mean / (gpus as f64 * f64::from(load) / 100.0);
    let mut random = SplitMix::new(seed);
    let exponential = |mean: f64, random: &mut SplitMix| {
        -mean * ((random.below(1 << 52) as f64 + 1.0) / (1u64 << 52) as f64).ln()
    };
    let (mut now_ms, mut arrivals) = (0.0, Vec::new());
    while now_ms < LENGTH * RUNS_MEAN_MS {
        now_ms += exponential(gap_mean_ms, &mut random);
        let runs_ms = exponential(RUNS_MEAN_MS, &mut random) as u64 + 1;
        let mut workload = tasks[random.position(tasks.len())].workload.clone();
        workload.time_limit_ms = Some(runs_ms);
        arrivals.push(Arrival { at_ms: now_ms as u64, runs_ms: Some(runs_ms), workload });
    }
    Trace { arrivals }
}
