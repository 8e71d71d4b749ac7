//! One pilot: holds the resources of one task and does one task after another.

mod holding;
mod leaving;
mod task;

use std::cell::Cell;
use std::path::Path;

use local::clock::Clock;
use local::containment::{self, Containment};
use local::prepare;
use local::signals::Signals;
use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::event::{Ending, Event, PilotId, Why};
use super::folder::Folder;
use super::journal::Journal;
use super::ledger::{Ledger, Open, TRIES_MAX};
use super::{ArrayError, of_file};

/// Signals that are handed on to the task (those that sbatch's `--signal` may name).
const HANDED_ON: [Signal; 6] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGQUIT,
    Signal::SIGALRM,
    Signal::SIGURG,
    Signal::SIGWINCH,
];
/// How long a journal that cannot be written is tried, in ms.
const STUCK_MAX_MS: u64 = 15 * 60_000;
/// Time between two of these tries: it doubles up to this, in ms.
const STUCK_STEP_MAX_MS: u64 = 5_000;
/// What a pilot keeps of its own time for its end, in ms.
const RESERVE_MS: u64 = 5_000;

/// What became of a task that this pilot had.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is over.
    Ended(Ending),
    /// It came to nothing and waits again.
    Back,
}

/// A pilot at work.
struct Pilot<'a> {
    me: PilotId,
    job: u64,
    restarts: u32,
    folder: Folder,
    journal: Journal,
    signals: Signals,
    containment: Containment,
    surroundings: task::Surroundings,
    clock: Clock,
    tell: &'a dyn Fn(&str),
    /// Someone wants it to end.
    stopping: bool,
    /// Another start has taken its task over.
    stale: bool,
    /// When Slurm ends it, by its own clock.
    ends_at_ms: Option<u64>,
    asked_for_time: bool,
    ran: usize,
    /// The end that this pilot wrote was the last of the array.
    ended_the_array: bool,
}

/// Does tasks of the array in a folder until none is left for it; whether all that it did were fine.
///
/// * `tell` — gets what the pilot's log shall say.
///
/// # Errors
/// It does not run inside a Slurm array, or the journal cannot be written for minutes.
pub fn run(folder: &Path, tell: &dyn Fn(&str)) -> Result<bool, ArrayError> {
    let folder = Folder::open(folder)?;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let small = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
    let (Some(array), Some(element)) = (number("SLURM_ARRAY_JOB_ID"), small("SLURM_ARRAY_TASK_ID"))
    else {
        let what = "runs inside the Slurm array that `hotpot slurm run` submits, not by itself";
        return Err(ArrayError::Usage(what.to_string()));
    };
    let me = PilotId { array, element, start: 0 };
    let job = number("SLURM_JOB_ID").unwrap_or(array);
    let around = prepare::surroundings();
    let run = run_name(job, std::process::id());
    let mut pilot = Pilot {
        me,
        job,
        restarts: small("SLURM_RESTART_COUNT").unwrap_or(0),
        journal: folder.journal()?,
        signals: Signals::take_with(&HANDED_ON)?,
        containment: Containment::new(run.clone()),
        surroundings: task::Surroundings::of(&folder, (array, job), around, run),
        folder,
        clock: Clock::start(),
        tell,
        stopping: false,
        stale: false,
        ends_at_ms: None,
        asked_for_time: false,
        ran: 0,
        ended_the_array: false,
    };
    let done = pilot.work();
    pilot.containment.close();
    if let Some(runs) = pilot.containment.folder().and_then(Path::parent) {
        // Slurm could not take the job's cgroup away with ours in it.
        let _ = std::fs::remove_dir(runs);
    }
    done?;
    Ok(!pilot.stopping && !pilot.stale && pilot.journal.ledger().is_fine(pilot.me))
}

fn run_name(job: u64, pid: u32) -> String {
    containment::name(i64::try_from(job).unwrap_or(0), pid)
}

impl Pilot<'_> {
    fn work(&mut self) -> Result<(), ArrayError> {
        self.register()?;
        let mut ended = None;
        loop {
            match self.turn(ended.take())? {
                Some(open) => {
                    // We may have been told to end while the claim was written.
                    let stopped = self.stopping;
                    let outcome = if stopped { Outcome::Back } else { self.carry_out(open) };
                    self.ran += 1;
                    ended = Some((open, outcome));
                }
                None if self.stopping || self.stale || self.is_short() => return self.leave(),
                None => {
                    self.clear_the_queue()?;
                    let is_over = self.journal.ledger().is_over();
                    if (is_over || !self.take_from_the_dead()?) && !self.is_needed() {
                        return self.leave();
                    }
                }
            }
        }
    }

    /// Says who we are, and takes back what earlier starts of this pilot had.
    fn register(&mut self) -> Result<(), ArrayError> {
        let (me, at_ms, tries) = (self.me, Clock::calendar_ms(), self.tries_max());
        let (job, restarts, pid) = (self.job, self.restarts, std::process::id());
        let node = self.surroundings.node.clone();
        self.sweep(|id| id.is_same_job(me));
        self.change(|ledger| {
            let id = PilotId { start: ledger.last_start(me) + 1, ..me };
            let node = node.clone();
            let mut events = vec![Event::Pilot { id, job, restarts, node, pid, at_ms }];
            events.extend(ledger.take_back(|other| other.is_same_job(id), tries, at_ms));
            events
        })?;
        self.me.start = self.journal.ledger().last_start(me);
        Ok(())
    }

    /// Ends what earlier starts of pilots have left running on this node.
    fn sweep(&mut self, which: impl Fn(PilotId) -> bool) {
        if self.journal.catch_up().is_err() {
            return;
        }
        let here = self.surroundings.node.as_str();
        let pilots = self.journal.ledger().pilots().iter();
        let gone = pilots.filter(|(id, pilot)| {
            **id != self.me && which(**id) && pilot.left_ms.is_none() && pilot.node == here
        });
        for (id, pilot) in gone {
            let found = containment::sweep(&run_name(pilot.job, pilot.pid), None, &[]);
            if found > 0 {
                (self.tell)(&format!("ended {found} processes that pilot {id} had left here"));
            }
        }
    }

    /// Writes what became of the last task, and takes the next, in one step.
    fn turn(&mut self, ended: Option<(Open, Outcome)>) -> Result<Option<Open>, ArrayError> {
        let (me, at_ms, pulls) = (self.me, Clock::calendar_ms(), self.may_pull());
        let stale = Cell::new(false);
        self.change(|ledger| {
            let mut events = Vec::new();
            if let Some((open, outcome)) = &ended {
                // Of a write that was said to have failed, something may be there after all.
                stale.set(!ledger.holds(*open) && !ledger.was_ended(*open));
                if ledger.holds(*open) {
                    events.push(event(*open, outcome, at_ms));
                }
            }
            let just_ended = ended.as_ref().map(|(open, _)| open.index);
            let has_one = ledger.open().any(|open| open.by == me && Some(open.index) != just_ended);
            let next = ledger.next().filter(|_| pulls && !stale.get() && !has_one);
            events.extend(next.map(|(index, attempt)| {
                // It may have taken a while until this could be written.
                Event::Claim { index, attempt, by: me, at_ms: Clock::calendar_ms() }
            }));
            events
        })?;
        self.stale = stale.get();
        if let Some((open, _)) = ended.as_ref().filter(|_| self.stale) {
            let index = open.index;
            (self.tell)(&format!("task {index}: another pilot has taken it over; leaving"));
        }
        self.ended_the_array |= ended.is_some() && self.journal.ledger().is_over();
        let mut open = self.journal.ledger().open();
        Ok(open.find(|open| open.by == me).filter(|_| pulls && !self.stale))
    }

    /// Whether there is time for one more task, and nobody wants us to end.
    fn may_pull(&self) -> bool {
        if self.stopping || self.stale {
            return false;
        }
        let Some(ends_at_ms) = self.ends_at_ms.filter(|_| self.ran > 0) else { return true };
        let limit_ms = self.folder.order.limit_ms.unwrap_or(u64::MAX);
        let likely_ms = self.journal.ledger().longest_ms().saturating_mul(2).min(limit_ms);
        let left_ms = ends_at_ms.saturating_sub(self.clock.now_ms());
        left_ms > likely_ms.saturating_add(RESERVE_MS)
    }

    /// Whether tasks wait that we have no time for.
    fn is_short(&self) -> bool {
        self.is_needed() && !self.may_pull()
    }

    fn is_needed(&self) -> bool {
        self.journal.ledger().waiting() > 0
    }

    fn tries_max(&self) -> u32 {
        if self.folder.order.may_repeat { TRIES_MAX } else { 1 }
    }

    /// Changes the journal. While it cannot be written nothing is started and nothing forgotten.
    fn change(&mut self, decide: impl Fn(&Ledger) -> Vec<Event>) -> Result<(), ArrayError> {
        let (begun_ms, mut step_ms) = (self.clock.now_ms(), 100);
        let path = self.journal.path().to_path_buf();
        let mut stuck_by = None;
        loop {
            let error = match (self.journal.change(&decide), stuck_by) {
                (Ok(_), None) => return Ok(()),
                (Ok(_), Some(error)) => {
                    // Our log may lie on the same disk and lack what was said before.
                    let s = (self.clock.now_ms() - begun_ms).div_ceil(1000);
                    let path = path.display();
                    (self.tell)(&format!(
                        "{path}: can be written again after {s} s ({error}); going on"
                    ));
                    return Ok(());
                }
                (Err(error), _) => error,
            };
            let damaged = error.kind() == std::io::ErrorKind::InvalidData;
            if damaged || self.clock.now_ms() > begun_ms + STUCK_MAX_MS {
                return Err(of_file(&path, "write it")(error));
            }
            if step_ms == 100 {
                (self.tell)(&format!(
                    "{}: {error}; until it can be written no task is started",
                    path.display()
                ));
            }
            if error.raw_os_error() == Some(Errno::ESTALE as i32) {
                self.journal = self.folder.journal()?;
            }
            stuck_by = Some(error);
            self.pause(step_ms);
            step_ms = (step_ms * 2).min(STUCK_STEP_MAX_MS);
        }
    }

    /// Waits; ends early only if someone wants us to end who did not want it before.
    fn pause(&mut self, ms: u64) {
        let (until_ms, stopping) = (self.clock.now_ms() + ms, self.stopping);
        while self.clock.now_ms() < until_ms && self.stopping == stopping {
            self.signals.wait(until_ms - self.clock.now_ms());
            self.stopping |= self.signals.heard().contains(&Signal::SIGTERM);
        }
    }
}

/// What is written about a task that this pilot had.
fn event(open: Open, outcome: &Outcome, at_ms: u64) -> Event {
    let Open { index, attempt, by } = open;
    match outcome {
        Outcome::Ended(how) => Event::End { index, attempt, by, at_ms, how: how.clone() },
        Outcome::Back => Event::Back { index, attempt, at_ms, why: Why::Stopped },
    }
}
