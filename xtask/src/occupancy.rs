//! How busy `hotpot run` keeps GPUs with many short tasks, and what sharing saves: real processes on
//! ten simulated GPUs, measured from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Verdict, shell};

/// GPUs of all runs here.
const GPUS: u32 = 10;
/// Tasks of a full run, and of a quick one.
const TASKS: (u32, u32) = (1000, 200);

/// Seconds that a task sleeps, as `sleep` reads them, and the occupancy wanted.
const NAPS: [(&str, f64, f64); 3] = [("0.1", 0.1, 0.93), ("1", 1.0, 0.99), ("5", 5.0, 0.997)];
/// CPU time of hotpot wanted at most, per task.
const OVERHEAD_MAX_MS: f64 = 1.0;

/// * `quick` — fewer tasks, and not the longest ones.
pub(crate) fn run(quick: bool) -> Verdict {
    let folder = folder()?;
    let program = program()?;
    let mut missed = Vec::new();
    println!(
        "tasks over {GPUS} simulated GPUs: the part of GPUs times makespan in which tasks ran\n"
    );
    println!(
        "{:>6} {:>6}  {:>8} {:>8} {:>8}  {:>12}",
        "tasks", "s each", "as run", "as told", "wanted", "CPU ms/task"
    );
    let naps = if quick { &NAPS[..2] } else { &NAPS[..] };
    for (nap, seconds, wanted) in naps {
        let tasks = if quick { TASKS.1 } else { TASKS.0 };
        let found = sleepers(&program, &folder, nap, tasks)?;
        let told = f64::from(tasks) * seconds * 1000.0
            / (f64::from(GPUS) * number(&found, "makespan_ms")?);
        let (run, cost) = (number(&found, "occupancy")?, number(&found, "dispatch_ms_per_start")?);
        println!("{tasks:>6} {nap:>6}  {run:>8.3} {told:>8.3} {wanted:>8.3}  {cost:>12.2}");
        if run < *wanted {
            missed.push(format!("occupancy {run:.3} with {nap} s, wanted {wanted}"));
        }
        if cost > OVERHEAD_MAX_MS {
            missed.push(format!("{cost:.2} ms of CPU a task with {nap} s"));
        }
    }
    println!(
        "\nas run: by the tasks' own times; as told: by the seconds they were told to sleep, so that\nstarting a program counts as lost.\n"
    );
    sharing(&program, &folder, if quick { TASKS.1 } else { TASKS.0 })?;
    let _ = fs::remove_dir_all(&folder);
    if missed.is_empty() { Ok(()) } else { Err(format!("missed: {}", missed.join("; "))) }
}

/// One array of sleeping tasks; the summary of its run.
fn sleepers(program: &Path, folder: &Path, nap: &str, tasks: u32) -> Result<Value, String> {
    let text = format!(
        "[[workload]]\nname = \"nap\"\ngpus = 1\narray = \"1-{tasks}\"\noutput = \"/dev/null\"\n\
         command = [\"sleep\", \"{nap}\"]\n"
    );
    let path = folder.join("nap.toml");
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    summary(program, folder, &path)
}

/// The embedding example with a passage a task: one GPU each, and shares of 2 GiB and a tenth.
fn sharing(program: &Path, folder: &Path, tasks: u32) -> Verdict {
    let example = shell::root().join("examples/embedding");
    let script = fs::read_to_string(example.join("embed.sbatch")).map_err(|e| e.to_string())?;
    let here = folder.join("results");
    fs::create_dir_all(&here).map_err(|error| format!("{}: {error}", here.display()))?;
    let script = script
        .replace("--array=1-100%10", &format!("--array=1-{tasks}%10"))
        .replace("--chdir=examples/embedding", &format!("--chdir={}", example.display()))
        .replace("--output=results/", "--output=/dev/null #")
        .replace("--out results", &format!("--out {}", here.display()));
    let whole = script
        .replace("#SBATCH --gpu-mem=2G\n", "#SBATCH --gpus=1\n")
        .replace("#SBATCH --gpu-compute=10%\n", "");
    println!("{tasks} tasks of the embedding example, ten at once:\n");
    println!("{:<28} {:>10} {:>16}", "", "makespan s", "GPU hours held");
    let mut held = Vec::new();
    for (name, text) in [("one GPU each", &whole), ("2 GiB and a tenth of a GPU", &script)] {
        let path = folder.join("embed.sbatch");
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        let found = summary(program, folder, &path)?;
        let (makespan_ms, hours) =
            (number(&found, "makespan_ms")?, number(&found, "gpu_hours_held")?);
        println!("{name:<28} {:>10.1} {hours:>16.4}", makespan_ms / 1000.0);
        held.push(hours);
    }
    match held.as_slice() {
        [whole, shared] if shared < whole => Ok(()),
        other => Err(format!("sharing saves nothing: {other:?}")),
    }
}

/// Runs a file to its end; every task must have done what it was meant to.
fn summary(program: &Path, folder: &Path, file: &Path) -> Result<Value, String> {
    let gpus = format!("a100-80gb:{GPUS}");
    let mut command = Command::new(program);
    command.args(["run", "--output", "json", "--simulate-gpus", &gpus]).arg(file);
    command.current_dir(folder).env("HOTPOT_STATE_DIR", folder.join("state"));
    let done = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    serde_json::from_slice(&done.stdout).map_err(|error| format!("the summary: {error}"))
}

fn number(summary: &Value, name: &str) -> Result<f64, String> {
    summary[name].as_f64().ok_or_else(|| format!("the summary has no {name}"))
}

fn folder() -> Result<PathBuf, String> {
    let folder = shell::target().join("occupancy");
    let _left_over = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// The program as users run it.
fn program() -> Result<PathBuf, String> {
    shell::cargo(&[
        "build",
        "--release",
        "--quiet",
        "-p",
        "cli",
        "-p",
        "fake-nvml",
        "-p",
        "fake-tools",
    ])?;
    Ok(shell::target().join("release/hotpot"))
}
