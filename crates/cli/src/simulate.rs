//! `hotpot simulate`: the same trace under several policies.

use std::path::{Path, PathBuf};
use std::time::Instant;

use model::{Fleet, Policy, Trace};
use simulator::outcome::Comparison;
use simulator::{Predicted, Protocol, Speeds, Yardstick, arrivals, report};

use crate::args::{Output, Simulate};
use crate::failure::{Answer, Failure};
use crate::progress::Progress;
use crate::{inputs, outputs, screen};

/// Workloads that a fill run may take, as reckoned from their mean demand; openb at 130 % takes 11,000.
const FILL_MAX: u128 = 1_000_000;
const DEFAULT_POLICIES: [&str; 2] = ["best-fit", "hotpot"];

pub(crate) fn run(options: &Simulate) -> Result<Answer, Failure> {
    check_places(options)?;
    let place = trace_place(options);
    let throughputs = options.throughputs.as_deref();
    let trace = match options.from_slurm {
        Some(_) => inputs::accounts(place, options.shard)?,
        None => inputs::trace(place, throughputs, options.shard)?,
    };
    let fleet = inputs::fleet(&options.fleet, place)?;
    if trace.arrivals.is_empty() {
        let path = place.display();
        return Err(Failure::Usage(format!("{path}: holds no workloads; there is nothing to do")));
    }
    let comparison = compare(options, &fleet, &trace)?;
    let report = match &options.report {
        Some(path) => outputs::write(path, &report::html(&comparison), "report"),
        None => Ok(Answer::Yes),
    };
    let samples = match &options.csv {
        Some(path) => outputs::write(path, &report::csv(&comparison), "samples"),
        None => Ok(Answer::Yes),
    };
    // What was reckoned is printed even if a file could not be written.
    let printed = screen::print(&match options.output.output {
        Output::Json => report::json(&comparison),
        Output::Table => report::terminal(&comparison, screen::width(), screen::colour()),
    });
    report.and(samples).and(printed)
}

/// Where the trace is; the arguments name one of both.
fn trace_place(options: &Simulate) -> &Path {
    options.trace.as_deref().or(options.from_slurm.as_deref()).unwrap_or(Path::new(""))
}

fn check_places(options: &Simulate) -> Result<(), Failure> {
    let Simulate { trace, from_slurm, fleet, policy_file, throughputs, report, csv, .. } = options;
    let trace = trace.as_ref().or(from_slurm.as_ref());
    let read = [trace, fleet.fleet.as_ref(), policy_file.as_ref(), throughputs.as_ref()];
    let read: Vec<&Path> = read.into_iter().flatten().map(PathBuf::as_path).collect();
    let written = [("--report", report.as_deref()), ("--csv", csv.as_deref())];
    let given = written.into_iter().filter_map(|(option, path)| Some((option, path?)));
    outputs::check(&read, &given.collect::<Vec<_>>())
}

fn compare(options: &Simulate, fleet: &Fleet, trace: &Trace) -> Result<Comparison, Failure> {
    let (protocol, filled, sentence) = match options.fill {
        Some(percent) => {
            let filled = fill(options, fleet, trace, percent)?;
            (
                Protocol::Fill,
                Some(filled),
                fill_sentence(percent, options.seed.unwrap_or(inputs::SEED)),
            )
        }
        None if options.full_speed => {
            (Protocol::Timed, None, format!("{TIMED_SENTENCE} {FULL_SENTENCE}"))
        }
        None => (Protocol::Timed, None, format!("{TIMED_SENTENCE} {PREDICTED_SENTENCE}")),
    };
    let replayed = filled.as_ref().unwrap_or(trace);
    // What to expect is read off the trace as it is, not as it was topped up.
    let mix = engine::mix::of(trace.arrivals.iter().map(|arrival| &arrival.workload));
    let predicted = Predicted::default();
    let speeds: &dyn Speeds = if options.full_speed { &() } else { &predicted };
    let mut runs = Vec::new();
    let since = Instant::now();
    for mut policy in policies(options)? {
        policy.mix = mix.clone();
        let mut progress = Progress::new(policy.placement.name(), replayed, since);
        runs.push(simulator::simulate(fleet, replayed, policy, protocol, speeds, &mut progress)?);
        progress.finish();
    }
    let comparison = Comparison {
        trace: name_of(trace_place(options)),
        nodes: fleet.nodes().len() as u64,
        gpus: fleet.gpu_count(),
        timed: protocol == Protocol::Timed,
        protocol: sentence,
        runs,
    };
    Ok(match options.price {
        Some(price) => comparison.priced(price),
        None => comparison,
    })
}

/// The arrivals of a fill run; an error if the load is none.
fn fill(options: &Simulate, fleet: &Fleet, trace: &Trace, percent: u32) -> Result<Trace, Failure> {
    let refuse = |why: &str| Err(Failure::Usage(format!("--fill {percent}: {why}")));
    let gpus = fleet.gpu_count();
    if gpus == 0 {
        return refuse("the fleet has no GPU to fill; leave --fill out or name another fleet");
    }
    if !trace.arrivals.iter().any(|arrival| arrival.workload.demand.gpus.is_some()) {
        return refuse("no workload asks for a GPU; leave --fill out");
    }
    let yardstick = Yardstick::of(fleet);
    let asked = trace.arrivals.iter().map(|arrival| yardstick.gpu_milli(&arrival.workload));
    let asked_milli: u64 = asked.sum();
    if asked_milli == 0 {
        return refuse("no GPU of the fleet could grant what the workloads ask for");
    }
    let wanted_milli = gpus * 10 * u64::from(percent);
    let needed = u128::from(wanted_milli) * trace.arrivals.len() as u128;
    if needed > FILL_MAX * u128::from(asked_milli) {
        return refuse(&format!("takes more than {FILL_MAX} such small workloads; give less"));
    }
    let load = f64::from(percent) / 100.0;
    let filled = arrivals::fill(trace, &yardstick, load, options.seed.unwrap_or(inputs::SEED));
    if filled.arrivals.is_empty() {
        return refuse("not one workload is as small as that; give more, or a larger fleet");
    }
    Ok(filled)
}

const TIMED_SENTENCE: &str = "Workloads arrive and leave at the times of the trace; who finds no \
                              place waits in the queue.";

const FULL_SENTENCE: &str = "Everybody runs at full speed, whoever sits beside.";
const PREDICTED_SENTENCE: &str = "Those who share a GPU run as fast as is predicted of them.";

fn fill_sentence(percent: u32, seed: u64) -> String {
    format!(
        "Times are ignored: tasks arrive in random order (seed {seed}) until they have asked for \
         {percent} % of all GPUs, stay for ever, and are turned away if they find no place."
    )
}

/// The named policies, each once, in the order in which they were named; without any that of the
/// policy file, or the two that are compared by default.
fn policies(options: &Simulate) -> Result<Vec<Policy>, Failure> {
    let file = options.policy_file.as_deref();
    let mut names: Vec<Option<&str>> = Vec::new();
    for name in &options.policy {
        if !names.contains(&Some(name.as_str())) {
            names.push(Some(name));
        }
    }
    if names.is_empty() {
        names = match file {
            Some(_) => vec![None],
            None => DEFAULT_POLICIES.map(Some).to_vec(),
        };
    }
    names.into_iter().map(|name| inputs::policy(file, name, options.seed)).collect()
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
