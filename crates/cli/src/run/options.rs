//! What a run is to do: from the command line and its files, or from the journal of an earlier one.

use std::path::{Path, PathBuf};

use formats::Source;
use formats::sbatch::SHARD_MIB_DEFAULT;
use local::Work;
use local::containment;
use local::journal::{self, RunRow, TaskRow};
use serde::{Deserialize, Serialize};

use super::{Read, refused};
use crate::args::Run;
use crate::failure::Failure;
use crate::screen;

/// Options that a continued run must have again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) folder: PathBuf,
    pub(super) simulate_gpus: Option<String>,
    pub(super) devices: Vec<u32>,
    pub(super) policy: Option<String>,
    pub(super) policy_file: Option<PathBuf>,
}

/// A run that is to be continued.
pub(super) struct Earlier {
    pub(super) row: RunRow,
    pub(super) remembered: Remembered,
    pub(super) files: Vec<(String, String)>,
    tasks: Vec<TaskRow>,
}

impl Remembered {
    pub(super) fn of(options: &Run) -> Result<Self, Failure> {
        if options.files.is_empty() {
            let text =
                "name a file to run, such as job.sbatch, or --resume to continue the last run";
            return Err(Failure::Usage(text.to_string()));
        }
        let folder = std::env::current_dir().map_err(|error| {
            Failure::Machine(format!("the current folder: {error}; change to one that exists"))
        })?;
        let policy_file = options.policy_file.as_ref().map(|path| folder.join(path));
        Ok(Self {
            folder,
            simulate_gpus: options.simulate_gpus.clone(),
            devices: options.devices.clone(),
            policy: options.policy.clone(),
            policy_file,
        })
    }
}

/// Reads the files of a new run; says what is not followed.
pub(super) fn jobs_in(paths: &[PathBuf]) -> Result<Read, Failure> {
    let mut read = Read { texts: Vec::new(), jobs: Vec::new() };
    for path in paths {
        let source = Source::open(path)?;
        read.texts.push((source.name().to_string(), source.text().to_string()));
        add(&mut read, &source)?;
    }
    for (job, name) in read.jobs.iter().map(|job| (job, &job.pattern.name)) {
        job.warnings.iter().for_each(|text| screen::note(&format!("{name}: {text}")));
        job.ignored.iter().for_each(|text| screen::note(&format!("{name}: ignored: {text}")));
    }
    Ok(read)
}

/// Reads the files of an earlier run as they were then.
pub(super) fn jobs_of(files: &[(String, String)]) -> Result<Read, Failure> {
    let mut read = Read { texts: files.to_vec(), jobs: Vec::new() };
    for (name, text) in files {
        add(&mut read, &Source::from_bytes(name, text.clone().into_bytes())?)?;
    }
    Ok(read)
}

fn add(read: &mut Read, source: &Source) -> Result<(), Failure> {
    read.jobs.extend(formats::jobs_of(source, SHARD_MIB_DEFAULT)?);
    Ok(())
}

/// Looks up the run to continue, and ends what it has left running.
///
/// * `run` — its number; 0 for the newest.
/// * `ended_too` — whether it may have come to its end.
pub(super) fn earlier(book: &Path, run: i64, ended_too: bool) -> Result<Earlier, Failure> {
    let (row, files, tasks) = journal::recall(book, (run > 0).then_some(run)).map_err(refused)?;
    let number = row.run;
    if row.ended && !ended_too {
        let text = format!(
            "run {number} has come to its end: nothing is left to continue; --retry-failed does tasks \
             once more that failed"
        );
        return Err(Failure::Machine(text));
    }
    let own = row.pid == std::process::id();
    if !own && containment::start_ticks_of(row.pid) == Some(row.start_ticks) {
        let text = format!("run {number} is still going on in process {}", row.pid);
        return Err(Failure::Machine(text));
    }
    let leaders: Vec<(u32, u64)> =
        tasks.iter().filter(|task| task.ending.is_none()).filter_map(|task| task.process).collect();
    let swept = containment::sweep(&containment::name(number, row.pid), &leaders);
    if swept > 0 {
        screen::note(&format!("run {number}: ended {swept} processes that were left over"));
    }
    let remembered = serde_json::from_str(&row.options).map_err(|error| {
        Failure::Machine(format!("run {number}: its options cannot be read: {error}"))
    })?;
    Ok(Earlier { row, remembered, files, tasks })
}

/// Notes in the work what an earlier part of the run has done already.
///
/// * `retry_failed` — whether tasks that ended badly are done once more.
pub(super) fn take_up(work: &mut Work, earlier: &Earlier, retry_failed: bool) {
    let mut kept = 0;
    for task in &earlier.tasks {
        let Some(ending) = &task.ending else { continue };
        let again = !ending.is_final() || (retry_failed && !ending.is_ok());
        if !again && task.task < work.tasks.len() {
            work.end(task.task, ending.clone());
            kept += 1;
        }
    }
    let all = work.tasks.len();
    screen::note(&format!("run {}: {kept} of {all} tasks are over already", earlier.row.run));
}

/// All main memory of this machine (proc_meminfo(5)).
pub(super) fn main_memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib / 1024)
}
