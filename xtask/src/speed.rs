//! CPU seconds and peak memory of whole runs of the release program, and the time of single decisions.
//!
//! Figures of one machine; compare ratios. CPU time is what the kernel charged to the process.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use engine::Planner;
use formats::Source;
use model::{Catalogue, Placement, Policy, Snapshot, SplitMix, Workload};
use nix::sys::resource::{UsageWho, getrusage};
use simulator::{Observer, Protocol};

use crate::{Verdict, shell};

/// What a run may cost at most.
struct Bound {
    cpu_s: f64,
    memory_mib: f64,
}

pub(crate) fn run() -> Verdict {
    shell::cargo(&["build", "--release", "--quiet", "--package", "cli"])?;
    let folder = shell::root().join("target/speed");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    println!("{:<58} {:>8} {:>9}", "run", "CPU s", "peak MiB");
    let sample = "data/openb/openb_pod_list_default.csv.gz";
    let fill = |policy: &str| words(&format!("simulate {sample} --fill 130 --policy {policy}"));
    let mut missed = Vec::new();
    let mut measure = |label: &str, words: &[String], bound: Bound| {
        let (cpu_s, memory_mib) = usage_of(words)?;
        let good = cpu_s <= bound.cpu_s && memory_mib <= bound.memory_mib;
        println!(
            "{label:<58} {cpu_s:>8.2} {memory_mib:>9.1}{}",
            if good { "" } else { "  ABOVE BOUND" }
        );
        if !good {
            missed.push(label.to_string());
        }
        Ok::<f64, String>(cpu_s)
    };
    let free = || Bound { cpu_s: f64::MAX, memory_mib: f64::MAX };
    measure(
        "openb default, fill 130 %, fgd",
        &fill("fgd"),
        Bound { cpu_s: 0.35, memory_mib: 30.0 },
    )?;
    measure("openb default, fill 130 %, hotpot", &fill("hotpot"), Bound { cpu_s: 1.0, ..free() })?;
    let small = synthesize(&folder, 1_000, 10_000)?;
    let large = synthesize(&folder, 10_000, 100_000)?;
    for policy in ["fgd", "hotpot"] {
        let timed = |files: &(PathBuf, PathBuf)| {
            let (tasks, nodes) = (files.0.display(), files.1.display());
            words(&format!("simulate {tasks} --fleet {nodes} --policy {policy}"))
        };
        let label = format!("1,000 nodes, 10,000 tasks with departures, {policy}");
        let few = measure(&label, &timed(&small), free())?;
        let label = format!("10,000 nodes, 100,000 tasks with departures, {policy}");
        let many = measure(&label, &timed(&large), Bound { cpu_s: 60.0, ..free() })?;
        println!("    a task costs {:.1} times as much on 10 times the nodes", many / few / 10.0);
        decisions(&large, policy)?;
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("above bound: {}", missed.join(", "))) }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

/// Runs the program in a process of its own, so that the kernel's peak is this run's alone.
fn usage_of(words: &[String]) -> Result<(f64, f64), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(own).arg("speed-one").args(words).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figures: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match figures.as_slice() {
        [cpu_s, memory_mib] if output.status.success() => Ok((*cpu_s, *memory_mib)),
        _ => Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr))),
    }
}

/// Runs `hotpot` with the given words and prints its CPU seconds and peak MiB.
pub(crate) fn one(words: &[&str]) -> Verdict {
    // Beside this very program, wherever cargo puts its output.
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.with_file_name("hotpot");
    let output = Command::new(program).args(words).current_dir(shell::root()).output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| error.to_string())?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let cpu_s = seconds(usage.user_time()) + seconds(usage.system_time());
    println!("{cpu_s} {}", usage.max_rss() as f64 / 1024.0);
    Ok(())
}

/// Writes a trace and a node list made from the shipped sample: nodes repeated in the sample's
/// proportions, tasks drawn from it.
fn synthesize(folder: &Path, nodes: usize, tasks: usize) -> Result<(PathBuf, PathBuf), String> {
    let sample = shell::root().join("data/openb");
    let read = |name: &str| Source::open(&sample.join(name)).map_err(|error| error.to_string());
    let node_list = read("openb_node_list_gpu_node.csv.gz")?;
    let mut rows: Vec<&str> = node_list.text().lines().collect();
    let header = rows.remove(0);
    let mut text = format!("{header}\n");
    for at in 0..nodes {
        // A stride that shares no factor with the list's length visits it in a mixed order.
        let row = rows[at * 389 % rows.len()];
        let (_, rest) = row.split_once(',').unwrap_or(("", row));
        let _ = writeln!(text, "node-{at},{rest}");
    }
    let nodes_path = folder.join(format!("nodes_{nodes}.csv"));
    std::fs::write(&nodes_path, text).map_err(|error| error.to_string())?;
    let task_list = read("openb_pod_list_default.csv.gz")?;
    let rows: Vec<Vec<&str>> =
        task_list.text().lines().skip(1).map(|row| row.split(',').collect()).collect();
    let mut text =
        String::from("name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n");
    let mut random = SplitMix::new(1);
    let mut uniform = || (random.below(1 << 52) as f64 + 0.5) / (1u64 << 52) as f64;
    // A fleet of this kind holds about 7 of these tasks per node. They run for an hour in the mean
    // and come twice as fast as that allows, so that the fleet fills up and a long queue forms.
    let gap_s = 3600.0 / (nodes as f64 * 6.9 * 2.0);
    let mut now_s = 0.0;
    for at in 0..tasks {
        let row = &rows[(uniform() * rows.len() as f64) as usize];
        now_s += -gap_s * uniform().ln();
        let runs_s = -3600.0 * uniform().ln();
        let (from, to) = (now_s as u64, (now_s + runs_s) as u64);
        let _ = writeln!(text, "task-{at},{},{},{},{},{from},{to}", row[1], row[2], row[3], row[4]);
    }
    let tasks_path = folder.join(format!("tasks_{tasks}.csv"));
    std::fs::write(&tasks_path, text).map_err(|error| error.to_string())?;
    Ok((tasks_path, nodes_path))
}

/// Prints percentiles of the time from an arrival to its plan, checked and carried out.
fn decisions(files: &(PathBuf, PathBuf), policy: &str) -> Verdict {
    let open = |path: &Path| Source::open(path).map_err(|error| error.to_string());
    let trace = formats::openb::tasks(&open(&files.0)?).map_err(|error| error.to_string())?;
    let rows = formats::openb::node_rows(&open(&files.1)?).map_err(|error| error.to_string())?;
    let mut catalogue = Catalogue::shipped().map_err(|error| error.to_string())?;
    let fleet = formats::openb::fleet(&rows, &mut catalogue);
    let placement = Placement::parse(policy).ok_or("no such policy")?;
    let mut policy = Policy::new(placement);
    policy.mix = engine::mix::of(trace.arrivals.iter().map(|arrival| &arrival.workload));
    let mut watch = Stopwatch::default();
    simulator::replay(fleet, &trace, Planner::new(policy), Protocol::Timed, &(), &mut watch)
        .map_err(|error| error.to_string())?;
    watch.micros.sort_unstable();
    let rank =
        |part: usize| watch.micros[(watch.micros.len() * part / 1000).min(watch.micros.len() - 1)];
    println!(
        "    one decision on {} nodes: p50 {} us, p99 {} us, p99.9 {} us",
        rows.len(),
        rank(500),
        rank(990),
        rank(999)
    );
    Ok(())
}

#[derive(Default)]
struct Stopwatch {
    since: Option<Instant>,
    micros: Vec<u128>,
}

impl Observer for Stopwatch {
    fn arrived(&mut self, _workload: &Workload) {
        self.since = Some(Instant::now());
    }

    fn settled(&mut self, _snapshot: &Snapshot) {
        if let Some(since) = self.since.take() {
            self.micros.push(since.elapsed().as_micros());
        }
    }
}
