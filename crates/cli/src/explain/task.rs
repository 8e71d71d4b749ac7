//! What became of a task of a run, from the journal: where it ran, under which caps held how hard, how it
//! ended, and what of memory it was refused.

use std::fmt::Write;
use std::path::Path;

use local::journal::{self, RunRow, TaskRow};
use local::{Ending, Held, Work, containment};
use node::account::{Account, amount};
use node::backend::Enforcement;
use serde::Serialize;
use simulator::report::shown;

use crate::args::{Explain, Output};
use crate::failure::{Answer, Failure};
use crate::run::order::{book, jobs_again};
use crate::run::{refused, seconds};
use crate::{screen, words};

/// Tasks that an error lists.
const LISTED: usize = 8;

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
    let story = Story { run: &row, work: &work, id, row: tasks.iter().find(|row| row.task == id) };
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
        let text =
            format!("{}: no run has been here; name its folder with --state", state.display());
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
    let all = 0..work.tasks.len();
    let by_number =
        |id: &usize| work.label(*id) == wanted || number.is_some_and(|it| work.number(*id) == it);
    let named: Vec<usize> = all.clone().filter(|id| work.name(*id) == wanted).collect();
    let usage = |text: String| Err(Failure::Usage(shown(&text)));
    match (named.as_slice(), all.clone().find(by_number)) {
        ([only], _) => Ok(*only),
        ([], Some(id)) => Ok(id),
        ([], None) => {
            let names = all.map(|id| work.name(id));
            let near = formats::near(wanted, names.clone().take(1000));
            let few: Vec<&str> = names.take(LISTED).collect();
            let way_out = match near.as_slice() {
                [] => format!("there are {}", few.join(", ")),
                near => format!("did you mean {}?", near.join(" or ")),
            };
            usage(format!("run {run} has no task `{wanted}`; {way_out}"))
        }
        (several, _) => {
            let labels: Vec<String> =
                several.iter().take(LISTED).map(|id| work.label(*id)).collect();
            let count = several.len();
            let labels = labels.join(", ");
            usage(format!("{count} tasks are named `{wanted}`; give a number: {labels}"))
        }
    }
}

impl Story<'_> {
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
                format!("left over; `hotpot run --resume {}` goes on with it", self.run.run)
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
        for held in &task.held {
            row(&mut text, &format!("GPU {}", held.gpu), &given(held));
            if let Some(account) = &held.account {
                row(&mut text, "", &booked(account));
            }
        }
        let refusals = task.held.iter().flat_map(Held::refusals);
        refusals.for_each(|refusal| row(&mut text, "refused", &refusal));
        text
    }

    fn json(&self) -> String {
        let held = self.row.map(|row| row.held.as_slice()).unwrap_or_default();
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

/// `memory-capped: 2344 MiB (cooperative), 20 % of its time (cooperative)`.
fn given(held: &Held) -> String {
    let mut parts = Vec::new();
    if held.memory_mib > 0 {
        parts.push(format!("{} ({})", words::memory(held.memory_mib), hard(&held.memory)));
    }
    if held.compute_milli > 0 {
        let percent = f64::from(held.compute_milli) / 10.0;
        parts.push(format!("{percent} % of its time ({})", hard(&held.compute)));
    }
    let parts = if parts.is_empty() { "no caps of its own".to_owned() } else { parts.join(", ") };
    format!("{}: {parts}", held.sharing)
}

fn hard(enforcement: &Enforcement) -> String {
    match enforcement {
        Enforcement::Absent(why) | Enforcement::Unknown(why) => {
            format!("{}: {why}", enforcement.as_str())
        }
        Enforcement::Hard | Enforcement::Cooperative => enforcement.as_str().to_owned(),
    }
}

fn booked(account: &Account) -> String {
    let counts = &account.counts;
    let time = counts
        .measured_us()
        .map_or(String::new(), |us| format!("{} of GPU time, ", seconds(us / 1000)));
    let (peak, launches) = (amount(account.peak_bytes), counts.launches);
    let mut text = format!("held at most {peak}; {time}{launches} launches");
    if counts.throttled > 0 {
        let waited = seconds(counts.throttled_us / 1000);
        let _ = write!(text, ", {} of them held back, for {waited} in all", counts.throttled);
    }
    text
}
