//! The loop of a run: observe, plan, check, journal, act, and look again.
//!
//! One thread does all of it, woken by signals: a task's end is seen, its seat given on and the next
//! task started within the same turn.

use std::collections::BTreeMap;
use std::path::PathBuf;

use engine::Planner;
use model::{Fleet, Node, Plan, Policy, Snapshot};
use node::grant::Grant;

use crate::clock::Clock;
use crate::containment::Containment;
use crate::devices::Devices;
use crate::environment::Surroundings;
use crate::error::RunError;
use crate::journal::Journal;
use crate::measure::Gauge;
use crate::signals::Signals;
use crate::task::{Ending, State};
use crate::totals::{Summary, Totals, gpus_held};
use crate::watch::{View, Watch};
use crate::work::Work;

/// How a run is to be carried out.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How seats are chosen.
    pub policy: Policy,
    /// Time between TERM and KILL.
    pub grace_ms: u64,
    /// vCPUs to book, in thousandths.
    pub cpu_milli: u64,
    /// Main memory to book.
    pub memory_mib: u64,
    /// The folder that the run was started in.
    pub folder: PathBuf,
    /// The state folder.
    pub state: PathBuf,
    /// Whether the GPUs are simulated.
    pub simulated: bool,
}

/// A task that has a process.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// See [`Work::label`].
    pub(crate) label: String,
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) grants: Vec<(u8, Grant)>,
    pub(crate) since_ms: u64,
    pub(crate) limit_at_ms: Option<u64>,
    pub(crate) warn_at_ms: Option<u64>,
    pub(crate) phase: Phase,
    /// What went wrong with a GPU under it; if it fails, it is started again.
    pub(crate) disturbed: Option<String>,
}

/// How far the end of a task has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It runs.
    Going,
    /// It has been told to end.
    Told {
        /// How it will be said to have ended.
        ending: Ending,
        /// When it is killed.
        kill_at_ms: u64,
    },
    /// Its first process has ended and others are left.
    Leftover {
        /// How it ended.
        ending: Ending,
        /// When the others are killed.
        kill_at_ms: u64,
    },
}

/// How often GPUs are looked after and the view is brought up to date.
const TICK_MS: u64 = 1000;
/// How often tasks are looked after that are about to end.
const ENDING_TICK_MS: u64 = 20;
/// How often a journal that could not be written is tried again.
const JOURNAL_RETRY_MS: u64 = 1000;

/// A run that is being carried out.
pub struct Runner<'a> {
    pub(crate) work: Work,
    pub(crate) snapshot: Snapshot,
    pub(crate) planner: Planner,
    pub(crate) journal: Journal,
    pub(crate) containment: Containment,
    pub(crate) around: Surroundings,
    pub(crate) devices: Devices,
    pub(crate) gauge: Gauge,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) live: BTreeMap<usize, Live>,
    pub(crate) by_pid: BTreeMap<u32, usize>,
    pub(crate) totals: Totals,
    pub(crate) watch: &'a mut dyn Watch,
    pub(crate) reason: Option<String>,
    /// Whether something has changed since the last plan.
    pub(crate) dirty: bool,
    pub(crate) stops: usize,
    /// Since when the journal cannot be written.
    pub(crate) stuck_since_ms: Option<u64>,
    journal_tried_ms: u64,
    ticked_ms: u64,
    signals: Signals,
}

impl<'a> Runner<'a> {
    /// A run about to begin. Tasks that are over already stay so.
    ///
    /// # Errors
    /// The system refuses what a supervisor needs.
    pub fn new(
        work: Work,
        (journal, around, devices): (Journal, Surroundings, Devices),
        settings: Settings,
        watch: &'a mut dyn Watch,
    ) -> Result<Self, RunError> {
        let signals = Signals::take()?;
        let gpus = devices.gpus();
        let node = Node::idle(around.host.clone(), settings.cpu_milli, settings.memory_mib, gpus);
        let snapshot = Snapshot::new(Fleet::new(vec![node]), 0);
        let mut policy = settings.policy.clone();
        if policy.mix.is_empty() {
            // What is expected to come is what the files say; it moves no more.
            let all = (0..work.tasks.len()).map(|id| work.workload(id).as_ref());
            policy.mix = engine::mix::of(all);
        }
        let containment = Containment::new(around.run.clone());
        let gauge = Gauge::start(&devices, settings.state.clone());
        Ok(Self {
            work,
            snapshot,
            planner: Planner::new(policy),
            journal,
            containment,
            around,
            devices,
            gauge,
            settings,
            clock: Clock::start(),
            live: BTreeMap::new(),
            by_pid: BTreeMap::new(),
            totals: Totals::begin(),
            watch,
            reason: None,
            dirty: true,
            stops: 0,
            stuck_since_ms: None,
            journal_tried_ms: 0,
            ticked_ms: 0,
            signals,
        })
    }

    /// Carries the run out until every task is over, or until it is stopped.
    ///
    /// # Errors
    /// The journal cannot be written any more, even at the end. Tasks have been ended in order
    /// all the same.
    pub fn run(mut self) -> Result<Summary, RunError> {
        while !(self.work.is_over() || self.stops > 0 && self.live.is_empty()) {
            self.turn();
            self.signals.wait(self.until_next_ms());
        }
        self.finish()
    }

    fn turn(&mut self) {
        let now_ms = self.clock.now_ms();
        self.snapshot.now_ms = now_ms;
        self.totals.advance(&self.snapshot, now_ms);
        self.observe();
        self.end_what_must_end();
        if now_ms >= self.ticked_ms + TICK_MS || self.ticked_ms == 0 {
            self.ticked_ms = now_ms.max(1);
            self.look_at_devices();
            self.publish();
        }
        self.release_held();
        if self.dirty && self.stops == 0 && self.stuck_since_ms.is_none() {
            self.plan_and_start();
        }
        self.write_journal();
        let view = self.view();
        self.watch.stands(&view);
    }

    fn observe(&mut self) {
        for signal in self.signals.stops() {
            self.stop(signal);
        }
        for gone in self.signals.gone() {
            if let Some(id) = self.by_pid.remove(&gone.pid) {
                self.leader_gone(id, gone);
            }
        }
    }

    fn release_held(&mut self) {
        let (free, never) = self.work.released();
        for id in never {
            self.over(id, Ending::DependencyNever);
        }
        for id in free {
            self.work.wait(id, self.snapshot.now_ms);
            self.snapshot.submit(self.work.workload(id).clone());
            self.dirty = true;
        }
    }

    /// Decides what to start, and makes it so.
    fn plan_and_start(&mut self) {
        self.dirty = false;
        let plan = self.planner.plan(&self.snapshot);
        let broken = engine::check(&self.snapshot, &plan, self.planner.policy());
        if let Some(first) = broken.first() {
            self.watch.told(&format!("a plan was not carried out: {first}; please report this"));
            return;
        }
        self.refuse_for_good(&plan);
        self.carry_out(&plan);
    }

    /// Ends tasks that can never run here, and remembers why most of the others wait.
    fn refuse_for_good(&mut self, plan: &Plan) {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let nothing_runs = self.live.is_empty() && plan.steps.is_empty();
        for (id, refusal) in &plan.waiting {
            let id = id.0 as usize;
            // With nothing running and nothing to start, waiting would be for ever.
            if refusal.is_never() || nothing_runs {
                let text = refusal.to_string();
                let why = text.strip_prefix("can never run here: ").unwrap_or(&text).to_string();
                self.over(id, Ending::NeverFits(why));
                self.dirty = true;
            } else if reasons.len() < 16 {
                *reasons.entry(refusal.to_string()).or_default() += 1;
            }
        }
        self.reason = reasons.into_iter().max_by_key(|(_, count)| *count).map(|(text, _)| text);
    }

    /// Writes what has been noted. What cannot be written stops new starts, nothing else.
    pub(crate) fn write_journal(&mut self) {
        let now_ms = self.clock.now_ms();
        if self.stuck_since_ms.is_some() && now_ms < self.journal_tried_ms + JOURNAL_RETRY_MS {
            return;
        }
        self.journal_tried_ms = now_ms;
        match (self.journal.write(), self.stuck_since_ms) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => {
                self.stuck_since_ms = None;
                self.dirty = true;
                self.watch.told("the journal can be written again: going on");
            }
            (Err(error), None) => {
                self.stuck_since_ms = Some(now_ms);
                self.watch.told(&format!("{error}; until then no task is started"));
            }
            (Err(_), Some(_)) => {}
        }
    }

    /// ms until something is due even if no signal comes.
    fn until_next_ms(&self) -> u64 {
        let now_ms = self.clock.now_ms();
        if self.dirty && self.stops == 0 && self.stuck_since_ms.is_none() {
            return 0;
        }
        let ending = |live: &Live| live.phase != Phase::Going;
        let tick = match self.live.values().any(ending) {
            true => ENDING_TICK_MS,
            false => (self.ticked_ms + TICK_MS).saturating_sub(now_ms),
        };
        let due = self.live.values().flat_map(|live| [live.limit_at_ms, live.warn_at_ms]);
        let due = due.flatten().min().map_or(u64::MAX, |at| at.saturating_sub(now_ms));
        tick.min(due.max(1))
    }

    pub(crate) fn view(&self) -> View {
        let (mut done, mut failed) = (0, 0);
        for posted in &self.work.jobs {
            let (ok, ended) = posted.counts();
            done += ok;
            failed += ended - ok;
        }
        let tasks = self.work.tasks.len();
        View {
            now_ms: self.snapshot.now_ms,
            tasks,
            running: self.live.len(),
            done,
            failed,
            waiting: tasks - done - failed - self.live.len(),
            reason: self.reason.clone(),
            gpus: self.devices.gpu_count(),
            gpus_held: gpus_held(&self.snapshot),
            busy_ratio: self.gauge.busy_ratio(),
        }
    }

    /// Puts GPUs back, ends strays, closes the journal and sums up.
    fn finish(mut self) -> Result<Summary, RunError> {
        self.totals.advance(&self.snapshot, self.clock.now_ms());
        self.containment.close();
        if let Err(why) = self.devices.restore() {
            self.watch.told(&format!("GPUs could not be put back as they were: {why}"));
        }
        self.withdraw();
        let view = self.view();
        self.watch.stands(&view);
        let interrupted = self.stops > 0 && !self.work.is_over();
        let left = |state: &State| match state {
            State::Ended(ending) => !ending.is_final(),
            State::Held | State::Waiting { .. } | State::Running { .. } => true,
        };
        let left = self.work.tasks.iter().filter(|task| left(&task.state)).count();
        let mut summary = Summary {
            run: self.journal.run(),
            tasks: view.tasks,
            done: view.done,
            failed: view.failed,
            left,
            interrupted: interrupted || self.stops > 0,
            gpus: view.gpus,
            simulated: self.settings.simulated,
            ..Summary::default()
        };
        self.totals.into_summary(&mut summary);
        match left {
            0 => self.journal.finish(Clock::calendar_ms())?,
            _ => self.journal.write()?,
        }
        Ok(summary)
    }
}
