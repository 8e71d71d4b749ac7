//! What the events of an array come to: where each task stands, and who may take which.
//!
//! Pure. An event that does not fit to what was before it changes nothing: whoever writes looks first.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Ending, Event, PilotId, Why};

/// How often a task is tried if its pilots are lost under it.
pub const TRIES_MAX: u32 = 3;

/// Where a task stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It waits.
    Waiting,
    /// A pilot has it.
    Claimed {
        /// Who.
        by: PilotId,
        /// Since when.
        since_ms: u64,
    },
    /// It is over.
    Ended {
        /// Whose it was.
        by: PilotId,
        /// When it was taken.
        since_ms: u64,
        /// When it ended.
        at_ms: u64,
        /// How.
        how: Ending,
    },
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// How often it has been taken.
    pub attempts: u32,
    /// How often a pilot was lost under it.
    pub losses: u32,
    /// Where it stands.
    pub standing: Standing,
}

/// One start of a pilot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pilot {
    /// Number of its job.
    pub job: u64,
    /// How often Slurm said that it had restarted it.
    pub restarts: u32,
    /// Its node.
    pub node: String,
    /// Its process there.
    pub pid: u32,
    /// When it began.
    pub since_ms: u64,
    /// When it said that it was about to end.
    pub left_ms: Option<u64>,
}

/// A task that is claimed and has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The task.
    pub index: u32,
    /// Which try of it.
    pub attempt: u32,
    /// Who has it.
    pub by: PilotId,
}

/// All tasks and pilots of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    tasks: BTreeMap<u32, Task>,
    waiting: BTreeSet<u32>,
    open: BTreeSet<u32>,
    pilots: BTreeMap<PilotId, Pilot>,
    longest_ms: u64,
    cleared: bool,
}

impl Ledger {
    /// All tasks wait.
    pub fn new(indices: &[u32]) -> Self {
        let task = Task { attempts: 0, losses: 0, standing: Standing::Waiting };
        Self {
            tasks: indices.iter().map(|index| (*index, task.clone())).collect(),
            waiting: indices.iter().copied().collect(),
            open: BTreeSet::new(),
            pilots: BTreeMap::new(),
            longest_ms: 0,
            cleared: false,
        }
    }

    /// Takes an event in; whether it fitted to what was before.
    pub fn fold(&mut self, event: &Event) -> bool {
        match event {
            Event::Pilot { id, job, restarts, node, pid, at_ms } => {
                let (job, restarts, pid, since_ms) = (*job, *restarts, *pid, *at_ms);
                let node = node.clone();
                let pilot = Pilot { job, restarts, node, pid, since_ms, left_ms: None };
                self.pilots.insert(*id, pilot).is_none()
            }
            Event::Left { id, at_ms } => {
                let pilot = self.pilots.get_mut(id);
                pilot.map(|pilot| pilot.left_ms = Some(*at_ms)).is_some()
            }
            Event::Claim { index, attempt, by, at_ms } => self.claim(*index, *attempt, *by, *at_ms),
            Event::End { index, attempt, at_ms, how, .. } => {
                self.end(*index, *attempt, *at_ms, how)
            }
            Event::Back { index, attempt, why, .. } => self.back(*index, *attempt, *why),
            Event::Cleared { .. } => !std::mem::replace(&mut self.cleared, true),
        }
    }

    fn claim(&mut self, index: u32, attempt: u32, by: PilotId, since_ms: u64) -> bool {
        let waits = |task: &&mut Task| {
            task.standing == Standing::Waiting && attempt == task.attempts.saturating_add(1)
        };
        let Some(task) = self.tasks.get_mut(&index).filter(waits) else { return false };
        task.attempts = attempt;
        task.standing = Standing::Claimed { by, since_ms };
        self.waiting.remove(&index);
        self.open.insert(index);
        true
    }

    fn end(&mut self, index: u32, attempt: u32, at_ms: u64, how: &Ending) -> bool {
        let Some(task) = self.tasks.get_mut(&index) else { return false };
        let Standing::Claimed { by, since_ms } = task.standing else { return false };
        if task.attempts != attempt {
            return false;
        }
        task.standing = Standing::Ended { by, since_ms, at_ms, how: how.clone() };
        self.open.remove(&index);
        if *how != Ending::Lost {
            self.longest_ms = self.longest_ms.max(at_ms.saturating_sub(since_ms));
        }
        true
    }

    fn back(&mut self, index: u32, attempt: u32, why: Why) -> bool {
        let Some(task) = self.tasks.get_mut(&index).filter(|task| task.attempts == attempt) else {
            return false;
        };
        match (&task.standing, why) {
            (Standing::Ended { .. }, Why::Again) => task.losses = 0,
            (Standing::Claimed { .. }, Why::Gone) => task.losses += 1,
            (Standing::Claimed { .. }, Why::Stopped) => {}
            _ => return false,
        }
        task.standing = Standing::Waiting;
        self.open.remove(&index);
        self.waiting.insert(index);
        self.cleared = false;
        true
    }

    /// The next task to take, and which try of it that is.
    pub fn next(&self) -> Option<(u32, u32)> {
        let index = self.waiting.first()?;
        Some((*index, self.tasks.get(index)?.attempts + 1))
    }

    /// Whether this try of a task is still the one that counts.
    pub fn holds(&self, claim: Open) -> bool {
        self.tasks.get(&claim.index).is_some_and(|task| {
            let by = match task.standing {
                Standing::Claimed { by, .. } => Some(by),
                Standing::Waiting | Standing::Ended { .. } => None,
            };
            task.attempts == claim.attempt && by == Some(claim.by)
        })
    }

    /// Whether this try of a task is the one that ended.
    pub fn was_ended(&self, claim: Open) -> bool {
        self.tasks.get(&claim.index).is_some_and(|task| {
            let by = match task.standing {
                Standing::Ended { by, .. } => Some(by),
                Standing::Waiting | Standing::Claimed { .. } => None,
            };
            task.attempts == claim.attempt && by == Some(claim.by)
        })
    }

    /// Tasks that are claimed and have no end.
    pub fn open(&self) -> impl Iterator<Item = Open> {
        self.open.iter().filter_map(|index| {
            let task = self.tasks.get(index)?;
            match task.standing {
                Standing::Claimed { by, .. } => {
                    Some(Open { index: *index, attempt: task.attempts, by })
                }
                Standing::Waiting | Standing::Ended { .. } => None,
            }
        })
    }

    /// What to write about the open tasks of pilots that are gone: another try, or that they are lost.
    ///
    /// * `tries_max` — tries of a task at most; 1 if it must not be repeated.
    pub fn take_back(
        &self,
        is_gone: impl Fn(PilotId) -> bool,
        tries_max: u32,
        at_ms: u64,
    ) -> Vec<Event> {
        let event = |open: Open| {
            let losses = self.tasks.get(&open.index).map_or(0, |task| task.losses);
            let Open { index, attempt, by } = open;
            match losses + 1 < tries_max {
                true => Event::Back { index, attempt, at_ms, why: Why::Gone },
                false => Event::End { index, attempt, by, at_ms, how: Ending::Lost },
            }
        };
        self.open().filter(|open| is_gone(open.by)).map(event).collect()
    }

    /// What to write so that failed tasks are done once more.
    pub fn again(&self, at_ms: u64) -> Vec<Event> {
        let failed = self.tasks.iter().filter_map(|(index, task)| match &task.standing {
            Standing::Ended { how, .. } if !how.is_ok() => Some((*index, task.attempts)),
            Standing::Ended { .. } | Standing::Waiting | Standing::Claimed { .. } => None,
        });
        failed
            .map(|(index, attempt)| Event::Back { index, attempt, at_ms, why: Why::Again })
            .collect()
    }

    /// How many tasks wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether all tasks have ended.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.open.is_empty()
    }

    /// Whether pilots that have not begun are cancelled.
    pub fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// The longest time that a task took, in ms.
    pub fn longest_ms(&self) -> u64 {
        self.longest_ms
    }

    /// All tasks by index.
    pub fn tasks(&self) -> &BTreeMap<u32, Task> {
        &self.tasks
    }

    /// All starts of pilots.
    pub fn pilots(&self) -> &BTreeMap<PilotId, Pilot> {
        &self.pilots
    }

    /// The last start of a pilot's job; 0 if it has never begun.
    pub fn last_start(&self, id: PilotId) -> u32 {
        let all = PilotId { start: 0, ..id }..=PilotId { start: u32::MAX, ..id };
        self.pilots.range(all).next_back().map_or(0, |(id, _)| id.start)
    }

    /// Whether all tasks that a pilot's job has ended did what they were meant to.
    pub fn is_fine(&self, id: PilotId) -> bool {
        self.tasks.values().all(|task| match &task.standing {
            Standing::Ended { by, how, .. } => how.is_ok() || !by.is_same_job(id),
            Standing::Waiting | Standing::Claimed { .. } => true,
        })
    }
}
