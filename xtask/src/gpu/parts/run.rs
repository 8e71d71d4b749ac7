//! `hotpot run` with small tasks that ask for a share, and what each of them was given.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::gpu::bench::Bench;

/// What a task has said: by name.
pub(super) type Said = BTreeMap<String, String>;

/// A run that has ended.
pub(super) struct Ended {
    /// Whether all tasks did what they were meant to.
    pub(super) good: bool,
    /// Of each task, in order.
    pub(super) tasks: Vec<Said>,
    /// What hotpot and the tasks complained of.
    pub(super) complaints: String,
}

/// Why a part that needs `hotpot run` cannot be tried here, if it cannot.
pub(super) fn missing(bench: &Bench) -> Option<String> {
    match bench.hotpot {
        Some(_) => None,
        None => Some("the program hotpot is not beside this one".to_string()),
    }
}

/// Runs as many tasks as asked at once.
///
/// * `name` — of the run's folder; `asks` — lines of the workload's table; `work` — for the task.
pub(super) fn run(
    bench: &Bench,
    name: &str,
    (asks, count): (&str, u32),
    work: &[String],
) -> Result<Ended, String> {
    let folder = bench.folder.join(name);
    let _left_over = fs::remove_dir_all(&folder);
    let failure = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failure)?;
    let command = [&[bench.program.display().to_string(), "gpu-client".to_string()], work].concat();
    let words: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
    let text = format!(
        "[[workload]]\nname = \"task\"\ngpus = 1\n{asks}\narray = \"1-{count}\"\noutput = \"task-%a.out\"\n\
         error = \"task-%a.err\"\ncommand = [{}]\n",
        words.join(", ")
    );
    let file = folder.join("task.toml");
    fs::write(&file, text).map_err(failure)?;
    let good = hotpot(bench, &folder, &file)?;
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let said = |number: u32| {
        let text = read(folder.join(format!("task-{number}.out")));
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    let errors = (1..=count).map(|number| read(folder.join(format!("task-{number}.err"))));
    let mut complaints = read(folder.join("hotpot.err"));
    complaints.extend(errors);
    Ok(Ended { good, tasks: (1..=count).map(said).collect(), complaints })
}

/// Runs the program until it ends, or until the part's time is over: then it is told to end, so that it
/// puts everything back.
fn hotpot(bench: &Bench, folder: &Path, file: &Path) -> Result<bool, String> {
    let program = bench.hotpot.as_deref().ok_or("hotpot is missing")?;
    let errors = fs::File::create(folder.join("hotpot.err")).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["run", "--output", "json", "--grace", "2s"]).arg(file).current_dir(folder);
    command.envs(bench.environment.iter().map(|(name, value)| (name, value)));
    command.env("HOTPOT_STATE_DIR", bench.folder.join("state"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
    let (mut told, begin) = (false, Instant::now());
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status.success() && !told);
        }
        if !told && bench.left() < Duration::from_secs(8) {
            let pid = child.id().to_string();
            let _ = Command::new("kill").args(["-TERM", &pid]).status();
            told = true;
        }
        if told && begin.elapsed() > Duration::from_secs(120) {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes that a task has said, as MiB; empty if it has not.
pub(super) fn mib_of(said: &Said, name: &str) -> String {
    let bytes = said.get(name).and_then(|text| text.parse::<u64>().ok());
    bytes.map_or_else(String::new, crate::gpu::table::mib)
}

/// The last line of a text, for a table or a reason.
pub(super) fn last_line(text: &str) -> String {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing said").to_string()
}
