//! What a run is to do: from the command line and its files, or from the journal of an earlier one.

use std::path::{Path, PathBuf};

use formats::sbatch::SHARD_MIB_DEFAULT;
use formats::{Job, Source};
use local::clock::Clock;
use local::journal::{self, Journal, NewRun, RunRow, TaskRow};
use local::{Work, containment};
use model::Policy;
use node::state_dir::state_dir;
use serde::{Deserialize, Serialize};

use super::refused;
use crate::args::Run;
use crate::failure::Failure;
use crate::{inputs, screen, simulated};

/// Options that a continued run must have again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) folder: PathBuf,
    pub(super) simulate_gpus: Option<String>,
    pub(super) devices: Vec<u32>,
    pub(super) policy: Option<String>,
    /// Name and text of the policy's file.
    pub(super) policy_file: Option<(String, String)>,
    pub(super) cpus: Option<u32>,
    pub(super) memory_mib: Option<u64>,
    pub(super) grace_ms: Option<u64>,
}

/// What is to be done: something new, or the rest of an earlier run.
pub(super) struct Order {
    pub(super) remembered: Remembered,
    pub(super) jobs: Vec<Job>,
    /// The state folder.
    pub(super) state: PathBuf,
    /// Name and text of each file.
    files: Vec<(String, String)>,
    earlier: Option<Earlier>,
}

/// A run that is to be continued.
struct Earlier {
    row: RunRow,
    tasks: Vec<TaskRow>,
}

impl Order {
    pub(super) fn of(options: &Run) -> Result<Self, Failure> {
        let state = || state_dir().map_err(|error| Failure::Machine(error.to_string()));
        if options.retry_failed && options.resume.is_none() {
            let text = "--retry-failed goes with --resume: `hotpot run --resume --retry-failed`";
            return Err(Failure::Usage(text.to_string()));
        }
        match options.resume {
            Some(run) => Self::earlier(state()?, run, options.retry_failed),
            None => {
                let remembered = Remembered::of(options)?;
                let (files, jobs) = read(&options.files)?;
                Ok(Self { remembered, jobs, files, state: state()?, earlier: None })
            }
        }
    }

    /// Looks up the run to continue, and ends what it has left running.
    ///
    /// * `run` — its number; 0 for the newest.
    /// * `ended_too` — whether it may have come to its end.
    fn earlier(state: PathBuf, run: i64, ended_too: bool) -> Result<Self, Failure> {
        let recalled = journal::recall(&book(&state), (run > 0).then_some(run));
        let (row, files, tasks) = recalled.map_err(refused)?;
        refuse_to_continue(&row, ended_too)?;
        sweep(&row, &tasks);
        let remembered = serde_json::from_str(&row.options).map_err(|error| {
            Failure::Machine(format!(
                "run {}: its options cannot be read ({error}): it was made by another version of hotpot; \
                 run its files anew",
                row.run
            ))
        })?;
        let jobs = jobs_again(&files)?;
        let earlier = Some(Earlier { row, tasks });
        Ok(Self { remembered, jobs, state, files, earlier })
    }

    /// Says what of the files is not followed, or what is done already.
    pub(super) fn tell(&self) {
        if self.earlier.is_some() {
            return;
        }
        for (job, name) in self.jobs.iter().map(|job| (job, &job.pattern.name)) {
            job.warnings.iter().for_each(|text| screen::note(&format!("{name}: {text}")));
            job.ignored.iter().for_each(|text| screen::note(&format!("{name}: ignored: {text}")));
        }
    }

    /// Enters the run in the journal, or takes over the one that is continued; the number of its
    /// first task comes with it.
    pub(super) fn begin(&self, tasks: usize) -> Result<(Journal, u64), Failure> {
        let (book, pid) = (book(&self.state), std::process::id());
        let start_ticks = containment::start_ticks_of(pid).unwrap_or(0);
        if let Some(Earlier { row, .. }) = &self.earlier {
            let journal = Journal::take_over(&book, row, (pid, start_ticks));
            return Ok((journal.map_err(refused)?, row.first_number));
        }
        let new = NewRun {
            options: &serde_json::to_string(&self.remembered).unwrap_or_default(),
            files: &self.files,
            tasks: tasks as u64,
            pid,
            start_ticks,
            at_ms: Clock::calendar_ms(),
        };
        Journal::begin(&book, &new).map_err(refused)
    }

    /// Notes in the work what an earlier part of the run has done already.
    ///
    /// * `retry_failed` — whether tasks that ended badly are done once more.
    pub(super) fn take_up(&self, work: &mut Work, retry_failed: bool) {
        let Some(earlier) = &self.earlier else { return };
        let mut kept = 0;
        for task in &earlier.tasks {
            if task.task >= work.tasks.len() {
                continue;
            }
            // Its output is added to, and it counts as restarted.
            work.attempted(task.task, task.attempts);
            let ending = task
                .ending
                .as_ref()
                .filter(|ending| ending.is_final() && (ending.is_ok() || !retry_failed));
            if let Some(ending) = ending {
                work.end(task.task, ending.clone());
                kept += 1;
            }
        }
        let all = work.tasks.len();
        screen::note(&format!("run {}: {kept} of {all} tasks are over already", earlier.row.run));
    }
}

impl Remembered {
    /// How seats are chosen.
    pub(super) fn policy(&self) -> Result<Policy, Failure> {
        let source = self
            .policy_file
            .as_ref()
            .map(|(name, text)| Source::from_bytes(name, text.clone().into_bytes()));
        inputs::policy_of(source.transpose()?.as_ref(), self.policy.as_deref(), None)
    }

    fn of(options: &Run) -> Result<Self, Failure> {
        if options.files.is_empty() {
            let text =
                "name a file to run, such as job.sbatch, or --resume to continue the last run";
            return Err(Failure::Usage(text.to_string()));
        }
        let folder = std::env::current_dir().map_err(|error| {
            Failure::Machine(format!("the current folder: {error}; change to one that exists"))
        })?;
        let policy_file = options.policy_file.as_deref().map(Source::open).transpose()?;
        Ok(Self {
            folder,
            simulate_gpus: options.simulate_gpus.as_deref().map(simulated::as_list),
            devices: options.devices.clone(),
            policy: options.policy.clone(),
            policy_file: policy_file.map(|it| (it.name().to_string(), it.text().to_string())),
            cpus: options.cpus,
            memory_mib: options.memory,
            grace_ms: options.grace,
        })
    }
}

type Files = Vec<(String, String)>;

/// Reads the files of a new run: their texts, and the jobs in them.
fn read(paths: &[PathBuf]) -> Result<(Files, Vec<Job>), Failure> {
    let (mut files, mut jobs) = (Vec::new(), Vec::new());
    for path in paths {
        let source = Source::open(path)?;
        jobs.extend(formats::jobs_of(&source, SHARD_MIB_DEFAULT)?);
        files.push((source.name().to_string(), source.text().to_string()));
    }
    Ok((files, jobs))
}

/// The jobs in files that the journal has kept.
pub(crate) fn jobs_again(files: &[(String, String)]) -> Result<Vec<Job>, Failure> {
    let mut jobs = Vec::new();
    for (name, text) in files {
        let source = Source::from_bytes(name, text.clone().into_bytes())?;
        jobs.extend(formats::jobs_of(&source, SHARD_MIB_DEFAULT)?);
    }
    Ok(jobs)
}

/// The journal in a state folder.
pub(crate) fn book(state: &Path) -> PathBuf {
    state.join("state.db")
}

fn refuse_to_continue(row: &RunRow, ended_too: bool) -> Result<(), Failure> {
    let number = row.run;
    if row.ended && !ended_too {
        let text = format!(
            "run {number} is over: nothing is left to continue; `hotpot run --resume {number} \
             --retry-failed` repeats its tasks that failed"
        );
        return Err(Failure::Machine(text));
    }
    let own = row.pid == std::process::id();
    if !own && containment::start_ticks_of(row.pid) == Some(row.start_ticks) {
        let pid = row.pid;
        let text = format!(
            "run {number} is still going on in process {pid}: wait for it, or stop it with `kill {pid}`"
        );
        return Err(Failure::Machine(text));
    }
    Ok(())
}

/// Ends what a run has left running.
fn sweep(row: &RunRow, tasks: &[TaskRow]) {
    let unended = tasks.iter().filter(|task| task.ending.is_none());
    let name = containment::name(row.run, row.pid);
    let leaders: Vec<(u32, u64)> = unended.filter_map(|task| task.process).collect();
    let swept = containment::sweep(&name, row.cgroup.as_deref(), &leaders);
    if swept > 0 {
        screen::note(&format!("run {}: ended {swept} processes that were left over", row.run));
    }
}

/// All main memory of this machine (proc_meminfo(5)).
pub(super) fn main_memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib / 1024)
}
