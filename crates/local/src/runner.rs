//! The loop of a run: observe, plan, check, journal, act, and look again.
//!
//! One thread does all of it, woken by signals: a task's end is seen, its seat given on and the next
//! task started within the same turn.

use std::collections::BTreeMap;
use std::path::PathBuf;

use engine::Planner;
use model::{Fleet, Node, Policy, Snapshot};
use node::grant::Grant;

use crate::clock::Clock;
use crate::containment::Containment;
use crate::devices::Devices;
use crate::environment::Surroundings;
use crate::journal::Journal;
use crate::measure::Gauge;
use crate::signals::Signals;
use crate::task::Ending;
use crate::totals::{Summary, Totals};
use crate::watch::Watch;
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
    /// Nothing is started before this.
    pub(crate) paused_until_ms: u64,
    pub(crate) stops: usize,
    /// Whether what is left cannot be started, for want of GPUs that are set aside.
    pub(crate) is_stranded: bool,
    /// Whether it has been said that the machine is short of something.
    pub(crate) is_short: bool,
    /// Since when the journal cannot be written.
    pub(crate) stuck_since_ms: Option<u64>,
    journal_tried_ms: u64,
    ticked_ms: u64,
    signals: Signals,
}

impl<'a> Runner<'a> {
    /// A run about to begin. Tasks that are over already stay so.
    pub fn new(
        work: Work,
        (journal, around, devices): (Journal, Surroundings, Devices),
        (settings, containment): (Settings, Containment),
        (signals, watch): (Signals, &'a mut dyn Watch),
    ) -> Self {
        let gpus = devices.gpus();
        let node = Node::idle(around.host.clone(), settings.cpu_milli, settings.memory_mib, gpus);
        let snapshot = Snapshot::new(Fleet::new(vec![node]), 0);
        let mut policy = settings.policy.clone();
        // Nobody is asked to leave in a run of one person's own tasks.
        policy.preemption = None;
        if policy.mix.is_empty() {
            // What is expected to come is what the files say; it moves no more.
            let all = (0..work.tasks.len()).map(|id| work.workload(id).as_ref());
            policy.mix = engine::mix::of(all);
        }
        let gauge = Gauge::start(&devices, settings.state.clone());
        Self {
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
            paused_until_ms: 0,
            stops: 0,
            is_stranded: false,
            is_short: false,
            stuck_since_ms: None,
            journal_tried_ms: 0,
            ticked_ms: 0,
            signals,
        }
    }

    /// Carries the run out until every task is over, until it is stopped, or until nothing more can
    /// be started.
    pub fn run(mut self) -> Summary {
        loop {
            self.turn();
            let nothing_more = self.stops > 0 || self.is_stranded;
            if self.work.is_over() || nothing_more && self.live.is_empty() {
                return self.finish();
            }
            self.signals.wait(self.until_next_ms());
        }
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
        if self.may_start() {
            self.plan_and_start();
            // A start may be what others wait for.
            self.release_held();
        }
        self.write_journal();
        let view = self.view();
        self.watch.stands(&view);
    }

    fn observe(&mut self) {
        let stops = self.signals.stops();
        // Who has ended by itself was not stopped.
        for gone in self.signals.gone() {
            if let Some(id) = self.by_pid.remove(&gone.pid) {
                self.leader_gone(id, gone);
            }
        }
        for signal in stops {
            self.stop(signal);
        }
    }

    /// Whether there is something to decide, and nothing against starting.
    fn may_start(&self) -> bool {
        let paused = self.clock.now_ms() < self.paused_until_ms;
        self.dirty && self.stops == 0 && self.stuck_since_ms.is_none() && !paused
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
        if self.may_start() {
            return 0;
        }
        let now_ms = self.clock.now_ms();
        let ending = |live: &Live| live.phase != Phase::Going;
        let tick = match self.live.values().any(ending) {
            true => ENDING_TICK_MS,
            false => (self.ticked_ms + TICK_MS).saturating_sub(now_ms),
        };
        let going = self.live.values().filter(|live| live.phase == Phase::Going);
        let due = going.flat_map(|live| [live.limit_at_ms, live.warn_at_ms]).flatten().min();
        let due = due.map_or(u64::MAX, |at_ms| at_ms.saturating_sub(now_ms));
        tick.min(due.max(1))
    }
}
