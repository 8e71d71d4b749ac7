//! What became of a task of a run, from the journal: where it ran, under which caps held how hard, how it
//! ended, and what of memory it was refused. What a task that runs has booked comes from its accounts.

use std::fmt::Write;
use std::path::Path;

use local::journal::{self, RunRow, TaskRow};
use local::{Ending, Held, Work, containment};
use serde::Serialize;
use simulator::report::shown;

use super::holding::{self, booked, given};
use crate::args::{Explain, Output};
use crate::failure::{Answer, Failure};
use crate::names::listed;
use crate::run::order::{book, jobs_again};
use crate::run::{refused, seconds};
use crate::{screen, words};

/// Names that are compared with one that is not there.
const COMPARED: usize = 1000;

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Standing {
    Waiting,
    Running,
    /// Its run was ended under it, or before it was started.
    Interrupted,
    Ended,
}

/// A task and what the journal says of it.
struct Story<'a> {
    run: &'a RunRow,
    work: &'a Work,
    id: usize,
    row: Option<&'a TaskRow>,
    /// What it holds or held of GPUs.
    held: Vec<Held>,
}

pub(super) fn run(options: &Explain) -> Result<Answer, Failure> {
    let state = match &options.state {
        Some(state) => state.clone(),
        None => {
            node::state_dir::state_dir().map_err(|error| Failure::Machine(error.to_string()))?
        }
    };
    let (row, files, tasks) = recall(&state, options.run.unwrap_or(0))?;
    let mut work = Work::new(jobs_again(&files)?).map_err(refused)?;
    work.number_from(row.first_number);
    let id = find(&work, &options.workload, row.run)?;
    let mut story = Story {
        run: &row,
        work: &work,
        id,
        row: tasks.iter().find(|row| row.task == id),
        held: Vec::new(),
    };
    story.look(&state);
    screen::print(&match options.output.output {
        Output::Table => story.table(),
        Output::Json => story.json(),
    })?;
    let failed = story.ending().is_some_and(|ending| !ending.is_ok());
    Ok(if failed { Answer::No } else { Answer::Yes })
}

/// * `run` — its number; 0 for the last.
fn recall(state: &Path, run: u32) -> Result<journal::Recalled, Failure> {
    let book = book(state);
    if !book.exists() {
        let text = format!(
            "no run is recorded in {}; name the state folder of the run with --state: it is told by \
             HOTPOT_STATE_DIR where the run was started, else each user has one",
            state.display()
        );
        return Err(Failure::Usage(text));
    }
    let found = match run {
        0 => journal::newest(&book),
        run => journal::recall(&book, Some(i64::from(run))),
    };
    found.map_err(refused)
}

/// The task with that name, label or number.
fn find(work: &Work, wanted: &str, run: i64) -> Result<usize, Failure> {
    let number = wanted.strip_prefix('#').unwrap_or(wanted).parse::<u64>().ok();
    let mut all = 0..work.tasks.len();
    let by_number =
        |id: &usize| work.label(*id) == wanted || number.is_some_and(|it| work.number(*id) == it);
    let named: Vec<usize> = all.clone().filter(|id| work.name(*id) == wanted).collect();
    match (named.as_slice(), all.find(by_number)) {
        ([only], _) => Ok(*only),
        ([], Some(id)) => Ok(id),
        ([], None) => Err(Failure::Usage(shown(&none_named(work, wanted, run)))),
        (several, _) => Err(Failure::Usage(shown(&several_named(work, wanted, run, several)))),
    }
}

fn none_named(work: &Work, wanted: &str, run: i64) -> String {
    let names = (0..work.tasks.len()).map(|id| work.name(id));
    let near = formats::near(wanted, names.clone().take(COMPARED));
    let way_out = match (near.as_slice(), work.tasks.len()) {
        ([], 1) => format!("its only task is `{}`", work.name(0)),
        ([], count) => format!("its tasks are {}", listed(names, count)),
        (near, _) => format!("did you mean {}?", near.join(" or ")),
    };
    format!("run {run} has no task named `{wanted}`; {way_out}")
}

fn several_named(work: &Work, wanted: &str, run: i64, several: &[usize]) -> String {
    let labels = listed(several.iter().map(|id| work.label(*id)), several.len());
    format!(
        "run {run} has {} tasks named `{wanted}`; give the number of the one that you mean: {labels}",
        several.len()
    )
}

impl Story<'_> {
    /// Finds out what the task holds.
    fn look(&mut self, state: &Path) {
        let noted = self.row.map(|row| row.held.as_slice()).unwrap_or_default();
        self.held = match self.standing() {
            Standing::Ended => noted.to_vec(),
            Standing::Waiting | Standing::Running | Standing::Interrupted => {
                holding::now(state, self.run, &self.work.label(self.id), noted)
            }
        };
    }

    fn ending(&self) -> Option<&Ending> {
        self.row?.ending.as_ref()
    }

    fn standing(&self) -> Standing {
        let started = self.row.is_some_and(|row| row.process.is_some());
        let goes_on = containment::start_ticks_of(self.run.pid) == Some(self.run.start_ticks)
            && !self.run.ended;
        match (self.ending(), goes_on, started) {
            (Some(_), ..) => Standing::Ended,
            (None, false, _) => Standing::Interrupted,
            (None, true, true) => Standing::Running,
            (None, true, false) => Standing::Waiting,
        }
    }

    fn says(&self) -> String {
        match (self.ending(), self.standing()) {
            (Some(ending), _) => ending.to_string(),
            (None, Standing::Running) => "running".to_owned(),
            (None, Standing::Waiting) => "waiting".to_owned(),
            (None, Standing::Interrupted | Standing::Ended) => {
                format!(
                    "not over when its run ended; `hotpot run --resume {}` does it",
                    self.run.run
                )
            }
        }
    }

    fn table(&self) -> String {
        let (name, label) = (shown(self.work.name(self.id)), self.work.label(self.id));
        let mut text = format!("{name} ({label}) of run {}: {}\n", self.run.run, self.says());
        let row = |text: &mut String, name: &str, value: &str| {
            let _ = writeln!(text, "  {name:<9} {value}");
        };
        let Some(task) = self.row else { return text };
        let Some((pid, _)) = task.process else { return text };
        let times =
            if task.attempts == 1 { "once".into() } else { format!("{} times", task.attempts) };
        let last = task.ended_ms.map(|ended_ms| ended_ms.saturating_sub(task.begun_ms));
        let last =
            last.map(|ms| format!(", the last time for {}", seconds(ms))).unwrap_or_default();
        row(&mut text, "started", &format!("{times}{last}; process {pid}"));
        let workload = self.work.workload(self.id);
        for held in &self.held {
            row(&mut text, &format!("GPU {}", held.gpu), &given(held, workload));
            if let Some(account) = &held.account {
                row(&mut text, "", &booked(account, self.ending().is_none()));
            }
        }
        let escaped = self.held.iter().filter_map(Held::escaped);
        escaped.for_each(|escaped| row(&mut text, "escaped", &escaped));
        let refusals = self.held.iter().flat_map(Held::refusals);
        refusals.for_each(|refusal| row(&mut text, "refused", &refusal));
        text
    }

    fn json(&self) -> String {
        let held = self.held.as_slice();
        words::to_json(&Named {
            format: "hotpot-task/1",
            run: self.run.run,
            task: self.work.name(self.id),
            label: self.work.label(self.id),
            number: self.work.number(self.id),
            state: self.standing(),
            attempts: self.row.filter(|row| row.process.is_some()).map_or(0, |row| row.attempts),
            pid: self.row.and_then(|row| row.process).map(|(pid, _)| pid),
            begun_ms: self.row.map(|row| row.begun_ms),
            ended_ms: self.row.and_then(|row| row.ended_ms),
            ending: self.ending(),
            text: self.says(),
            gpus: held,
            refusals: held.iter().flat_map(Held::refusals).collect(),
        })
    }
}

#[derive(Serialize)]
struct Named<'a> {
    format: &'static str,
    run: i64,
    task: &'a str,
    label: String,
    number: u64,
    state: Standing,
    attempts: u32,
    pid: Option<u32>,
    begun_ms: Option<u64>,
    ended_ms: Option<u64>,
    ending: Option<&'a Ending>,
    text: String,
    gpus: &'a [Held],
    refusals: Vec<String>,
}

#[cfg(test)]
mod tests {
    use node::backend::Enforcement;

    use super::*;

    fn work(names: &[&str]) -> Work {
        let script = |name: &&str| {
            let text =
                format!("#!/bin/sh\n#SBATCH --job-name={name}\n#SBATCH --gpu-mem=2G\ntrue\n");
            ("c.sbatch".to_owned(), text)
        };
        let files: Vec<(String, String)> = names.iter().map(script).collect();
        let mut work = Work::new(jobs_again(&files).unwrap()).unwrap();
        work.number_from(7);
        work
    }

    #[test]
    fn a_task_that_is_not_there_is_told_with_those_that_are() {
        let text = |names: &[&str], wanted| find(&work(names), wanted, 3).unwrap_err().to_string();
        assert_eq!(find(&work(&["two", "one"]), "8", 3).unwrap(), 1);
        assert_eq!(text(&["two"], "x"), "run 3 has no task named `x`; its only task is `two`");
        let expected = "run 3 has no task named `x`; its tasks are two, one";
        assert_eq!(text(&["two", "one"], "x"), expected);
        let expected = "run 3 has no task named `train2`; did you mean train?";
        assert_eq!(text(&["train", "one"], "train2"), expected);
    }

    #[test]
    fn a_task_that_got_past_its_limiter_is_told_so() {
        let held = Held {
            gpu: 0,
            uuid: "GPU-1".into(),
            device: "GPU-1".into(),
            sharing: "memory-capped".into(),
            memory_mib: 2348,
            compute_milli: 0,
            memory: Enforcement::Cooperative,
            compute: Enforcement::Cooperative,
            account: Some(node::account::Account::default()),
            unlimited: true,
        };
        let run = RunRow {
            run: 3,
            pid: 1,
            start_ticks: 0,
            cgroup: None,
            options: String::new(),
            first_number: 7,
            ended: true,
        };
        let row = TaskRow {
            task: 0,
            attempts: 1,
            process: Some((99, 0)),
            device: String::new(),
            begun_ms: 0,
            ended_ms: Some(1500),
            ending: Some(Ending::Exited(0)),
            held: vec![held],
        };
        let work = work(&["c"]);
        let mut story = Story { run: &run, work: &work, id: 0, row: Some(&row), held: Vec::new() };
        story.look(Path::new("/nowhere"));
        let expected = "c (7) of run 3: done\n  started   once, the last time for 1.500 s; process 99\n  \
                        GPU 0     memory-capped: 2.29 GiB (cooperative), of which 300 MiB for a \
                        context\n            held at most 0 MiB; 0.000 s of GPU time, 0 launches\n  \
                        escaped   GPU 0: the limiter was not loaded into its processes: its caps did \
                        not hold\n";
        assert_eq!(story.table(), expected);
    }
}
