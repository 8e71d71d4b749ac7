//! `hotpot simulate`: the same trace under several policies.

use std::path::Path;

use model::{Fleet, Trace};
use simulator::outcome::Comparison;
use simulator::{Protocol, arrivals, report};

use crate::args::{Output, Simulate};
use crate::failure::{Answer, Failure};
use crate::progress::Progress;
use crate::{inputs, screen};

const DEFAULT_POLICIES: [&str; 2] = ["best-fit", "hotpot"];

pub(crate) fn run(options: &Simulate) -> Result<Answer, Failure> {
    let trace = inputs::trace(&options.trace, options.throughputs.as_deref())?;
    let fleet = inputs::fleet(&options.fleet, &options.trace)?;
    if trace.arrivals.is_empty() {
        let path = options.trace.display();
        return Err(Failure::Usage(format!("{path}: holds no workloads; there is nothing to do")));
    }
    let comparison = compare(options, &fleet, &trace)?;
    if let Some(path) = &options.report {
        write(path, report::html(&comparison).as_bytes(), "report")?;
    }
    if let Some(path) = &options.csv {
        write(path, report::csv(&comparison).as_bytes(), "samples")?;
    }
    screen::print(&match options.output.output {
        Output::Json => report::json(&comparison),
        Output::Table => report::terminal(&comparison, screen::width(), screen::colour()),
    })
}

fn compare(options: &Simulate, fleet: &Fleet, trace: &Trace) -> Result<Comparison, Failure> {
    let (protocol, arrivals, sentence) = match options.fill {
        Some(percent) => {
            let load = f64::from(percent) / 100.0;
            let capacity_milli = fleet.gpu_count() * 1000;
            let filled = arrivals::fill(trace, capacity_milli, load, options.seed);
            (Protocol::Fill, Some(filled), fill_sentence(percent, options.seed))
        }
        None => (Protocol::Timed, None, TIMED_SENTENCE.to_string()),
    };
    let replayed = arrivals.as_ref().unwrap_or(trace);
    // What to expect is read off the trace as it is, not as it was topped up.
    let mix = engine::mix::of(trace.arrivals.iter().map(|arrival| &arrival.workload));
    let mut runs = Vec::new();
    for name in policies(&options.policy) {
        let file = options.policy_file.as_deref();
        let mut policy = inputs::policy(file, Some(name), options.seed)?;
        policy.mix = mix.clone();
        let mut progress = Progress::new(name, replayed.arrivals.len() as u64);
        runs.push(simulator::simulate(fleet, replayed, policy, protocol, &mut progress)?);
        progress.finish();
    }
    Ok(Comparison {
        trace: name_of(&options.trace),
        nodes: fleet.nodes().len() as u64,
        gpus: fleet.gpu_count(),
        timed: protocol == Protocol::Timed,
        protocol: sentence,
        runs,
    })
}

const TIMED_SENTENCE: &str = "Workloads arrive and leave at the times of the trace; who finds no \
                              place waits in the queue.";

fn fill_sentence(percent: u32, seed: u64) -> String {
    format!(
        "Times are ignored: tasks arrive in random order (seed {seed}) until they have asked for \
         {percent} % of all GPUs, stay for ever, and are turned away if they find no place."
    )
}

/// The named policies, each once, in the order in which they were named.
fn policies(named: &[String]) -> Vec<&str> {
    if named.is_empty() {
        return DEFAULT_POLICIES.to_vec();
    }
    let mut once: Vec<&str> = Vec::new();
    for name in named {
        if !once.contains(&name.as_str()) {
            once.push(name);
        }
    }
    once
}

fn write(path: &Path, contents: &[u8], what: &str) -> Result<(), Failure> {
    report::write_whole(path, contents)?;
    screen::note(&format!("{what}: {}", path.display()));
    Ok(())
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
