//! `cargo xtask slurm-arrays`: the same array by plain sbatch and by `hotpot slurm run`, side by side.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use formats::quantity::slurm_time_ms;
use slurm_lab::Options;

use super::Bench;
use crate::Verdict;
use crate::gpu::table::Table;

/// GPUs, and tasks at once.
const GPUS: u32 = 10;
/// Tasks of a full run, and of a quick one.
const TASKS: (u32, u32) = (1000, 100);
/// Seconds of a task, and the part of GPUs times makespan in which tasks must run.
const NAPS: [(f64, f64); 3] = [(0.2, 0.90), (1.0, 0.985), (5.0, 0.995)];
/// No array takes longer.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Shards of a card: by them what is held of it is counted.
const CARD_SHARDS: f64 = 317.0;

/// How an array is run.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    pilots: bool,
    ask: &'static str,
}

const WAYS: [Way; 3] = [
    Way { name: "sbatch, a GPU each", pilots: false, ask: "--gres=gpu:1" },
    Way { name: "hotpot, a GPU each", pilots: true, ask: "--gres=gpu:1" },
    Way { name: "hotpot, 2 GiB each", pilots: true, ask: "--gpu-mem=2G" },
];

/// What came of it.
struct Found {
    makespan_s: f64,
    /// From submission to the start of the first task, most of which Slurm waits to look at its queue.
    first_s: f64,
    occupancy: f64,
    held_gpu_s: f64,
    results: BTreeMap<String, String>,
}

/// * `words` — `--quick` for a tenth of the tasks, of one second; `--only SECONDS` for tasks of one length.
pub(crate) fn run(words: &[&str]) -> Verdict {
    let (quick, only) = match words {
        [] => (false, None),
        ["--quick"] => (true, Some("1")),
        ["--only", seconds] => (false, Some(*seconds)),
        other => {
            let words = other.join(" ");
            return Err(format!("unknown: {words}; there are --quick and --only SECONDS"));
        }
    };
    let tasks = if quick { TASKS.1 } else { TASKS.0 };
    let is_wanted = |(seconds, _): &(f64, f64)| only.is_none_or(|only| only == seconds.to_string());
    let naps: Vec<_> = NAPS.into_iter().filter(is_wanted).collect();
    if naps.is_empty() {
        return Err("--only takes 0.2, 1 or 5".into());
    }
    let mut table = Table::new(
        &format!("{tasks} tasks, {GPUS} at once, on {GPUS} simulated A100 under real Slurm"),
        &["s each", "", "makespan s", "first after s", "occupancy", "wanted", "GPU s held"],
    );
    let mut missed = Vec::new();
    for (seconds, wanted) in naps {
        let mut first = None;
        for way in WAYS {
            let found = one(way, seconds, tasks)?;
            let Found { makespan_s, first_s, occupancy, .. } = &found;
            eprintln!(
                "{seconds} s, {}: {makespan_s:.1} s, first after {first_s:.2} s, {occupancy:.3} busy",
                way.name
            );
            let goal = if way.pilots { format!("{wanted:.3}") } else { String::new() };
            table.row(vec![
                seconds.to_string(),
                way.name.into(),
                format!("{:.1}", found.makespan_s),
                format!("{:.2}", found.first_s),
                format!("{:.3}", found.occupancy),
                goal,
                format!("{:.1}", found.held_gpu_s),
            ]);
            // A tenth of the tasks cannot hide the second until the first starts.
            if way.pilots && !quick && found.occupancy < wanted {
                missed.push(format!("{} s, {}: {:.3}", seconds, way.name, found.occupancy));
            }
            let plain = first.get_or_insert_with(|| (found.results.clone(), found.held_gpu_s));
            if plain.0 != found.results || found.results.len() != tasks as usize {
                missed.push(format!("{seconds} s, {}: results differ", way.name));
            }
            if way.ask.contains("gpu-mem") && found.held_gpu_s >= plain.1 {
                missed.push(format!("{seconds} s, {}: holds no fewer GPUs", way.name));
            }
        }
    }
    println!("{}", table.text());
    println!(
        "occupancy: seconds in which tasks ran / ({GPUS} x seconds from submission to the last end)"
    );
    if missed.is_empty() { Ok(()) } else { Err(format!("missed: {}", missed.join("; "))) }
}

fn one(way: Way, seconds: f64, tasks: u32) -> Result<Found, String> {
    // What is held is counted at the end, of jobs that ended long before.
    let slurm_conf = "MinJobAge=7200\n".to_owned();
    let options = Options { nodes: 1, gpus: GPUS, cpus: 64, slurm_conf, ..Options::default() };
    // Slurm alone has no Prolog to pay for.
    let bench = Bench::up("arrays", options, way.pilots)?;
    for folder in ["results", "times"] {
        let path = bench.folder.join(folder);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let script = bench.folder.join("nap.sbatch");
    fs::write(&script, text(seconds, tasks)).map_err(|error| error.to_string())?;
    let submitted = SystemTime::now();
    let words = ["--parsable", way.ask, "nap.sbatch"];
    let answer = if way.pilots {
        let program = bench.built.join("hotpot").display().to_string();
        bench.run(&program, &[&["slurm", "run"], &words[..]].concat())?
    } else {
        bench.run("sbatch", &words)?
    };
    wait(&bench, tasks)?;
    let times = times(&bench.folder.join("times"))?;
    let begun_s = since_epoch(submitted);
    let end_s = times.iter().map(|(_, end)| *end).fold(begun_s, f64::max);
    let busy_s: f64 = times.iter().map(|(start, end)| end - start).sum();
    let makespan_s = end_s - begun_s;
    let first_s = times.iter().map(|(start, _)| start - begun_s).fold(makespan_s, f64::min);
    let held_gpu_s = held(&bench, answer.trim())?;
    let results = contents(&bench.folder.join("results"))?;
    let occupancy = busy_s / (f64::from(GPUS) * makespan_s);
    Ok(Found { makespan_s, first_s, occupancy, held_gpu_s, results })
}

/// A task notes when it ran, and has a result that another one has not.
fn text(seconds: f64, tasks: u32) -> String {
    format!(
        "#!/bin/bash\n#SBATCH --job-name=nap\n#SBATCH --array=1-{tasks}%{GPUS}\n#SBATCH --mem=16\n\
         #SBATCH --time=10\n#SBATCH --output=/dev/null\nid=$SLURM_ARRAY_TASK_ID\nbegun=$EPOCHREALTIME\n\
         sleep {seconds}\necho $((id * id)) >>results/$id\necho $begun $EPOCHREALTIME >times/$id\n"
    )
}

/// Until every task has noted its time, and Slurm has nothing left of the array.
fn wait(bench: &Bench, tasks: u32) -> Verdict {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let done = fs::read_dir(bench.folder.join("times")).map_or(0, Iterator::count);
        if done >= tasks as usize && bench.run("squeue", &["-h"])?.trim().is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(format!("the array has not ended: {}", bench.run("squeue", &[])?))
}

/// GPU seconds held: by Slurm's own seconds of start and end of each job of the array.
fn held(bench: &Bench, array: &str) -> Result<f64, String> {
    let shown = bench.run("scontrol", &["show", "job", "-o", array])?;
    let mut total_s = 0.0;
    for job in shown.lines() {
        let field = |name: &str| {
            job.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let run_time = field("RunTime").map_or(0.0, seconds);
        // Without accounting Slurm counts shards nowhere but in what was asked.
        let shards =
            field("TresPerNode").and_then(|gres| gres.split("shard:").nth(1)?.parse().ok());
        let part = shards.map_or(1.0, |shards: f64| shards / CARD_SHARDS);
        total_s += run_time * part;
    }
    Ok(total_s)
}

/// A time as Slurm writes it; 0 for one that it does not know.
fn seconds(text: &str) -> f64 {
    slurm_time_ms(text).ok().flatten().map_or(0.0, |ms| ms as f64 / 1000.0)
}

/// When each task began and ended, in seconds since 1970.
fn times(folder: &Path) -> Result<Vec<(f64, f64)>, String> {
    let pair = |text: String| {
        let (start, end) = text.trim().split_once(' ')?;
        Some((start.parse().ok()?, end.parse().ok()?))
    };
    Ok(contents(folder)?.into_values().filter_map(pair).collect())
}

fn contents(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let failure = |error: std::io::Error| format!("{}: {error}", folder.display());
    let paths: Result<Vec<PathBuf>, _> = fs::read_dir(folder)
        .map_err(failure)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    let mut found = BTreeMap::new();
    for path in paths.map_err(failure)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.insert(name, fs::read_to_string(&path).map_err(failure)?);
    }
    Ok(found)
}

fn since_epoch(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
