//! An array in figures, for whoever looks.

use std::collections::BTreeMap;

use serde::Serialize;

use super::event::PilotId;
use super::ledger::{Ledger, Standing};

/// Most indices of failed tasks that a comment names.
const NAMED_MAX: usize = 12;

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskFigures {
    /// Its index.
    pub index: u32,
    /// `waiting`, `running`, or how it ended: `exit 0`, `signal 9`, `timeout`, `lost`, `not-started …`.
    pub state: String,
    /// Whether it has ended, and did what it was meant to.
    pub ok: Option<bool>,
    /// How often it has been started.
    pub attempts: u32,
    /// The node that it is or was on.
    pub node: Option<String>,
    /// The pilot's job there, as Slurm names it.
    pub pilot: Option<String>,
    /// ms that it took, or has taken so far.
    pub took_ms: Option<u64>,
}

/// The array.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Tasks in all.
    pub tasks: usize,
    /// Tasks that wait.
    pub waiting: usize,
    /// Tasks that a pilot has.
    pub running: usize,
    /// Tasks that did what they were meant to.
    pub done: usize,
    /// Tasks that ended otherwise.
    pub failed: usize,
    /// ms that tasks that are over took, in all.
    pub task_ms: u64,
    /// ms that pilots were there, in all.
    pub held_ms: u64,
    /// `task_ms` as a part of `held_ms`.
    pub busy: Option<f64>,
    /// ms from the first pilot's begin to the last task's end.
    pub span_ms: Option<u64>,
    /// Each task, by index.
    pub each: Vec<TaskFigures>,
}

impl Figures {
    /// The figures of a ledger.
    ///
    /// * `now_ms` — ms since 1970.
    pub fn of(ledger: &Ledger, now_ms: u64) -> Self {
        let each: Vec<TaskFigures> =
            ledger.tasks().keys().filter_map(|index| task(ledger, *index, now_ms)).collect();
        let count = |wanted: Option<bool>| each.iter().filter(|task| task.ok == wanted).count();
        let over = each.iter().filter(|task| task.ok.is_some());
        let task_ms = over.filter_map(|task| task.took_ms).sum();
        let held_ms = held_ms(ledger, now_ms);
        let ends = ledger.tasks().values().filter_map(|task| match task.standing {
            Standing::Ended { at_ms, .. } => Some(at_ms),
            Standing::Waiting | Standing::Claimed { .. } => None,
        });
        let begin = ledger.pilots().values().map(|pilot| pilot.since_ms).min();
        Self {
            tasks: each.len(),
            waiting: ledger.waiting(),
            running: ledger.open().count(),
            done: count(Some(true)),
            failed: count(Some(false)),
            task_ms,
            held_ms,
            busy: (held_ms > 0).then(|| (task_ms as f64 / held_ms as f64).min(1.0)),
            span_ms: ends.max().zip(begin).map(|(end, begin)| end.saturating_sub(begin)),
            each,
        }
    }

    /// One line, such as `1000 tasks: 998 done, 2 failed (17, 350); busy 98.9 %`.
    pub fn line(&self) -> String {
        let mut parts = vec![format!("{} done", self.done)];
        if self.failed > 0 {
            let failed = self.each.iter().filter(|task| task.ok == Some(false));
            let mut named: Vec<String> =
                failed.take(NAMED_MAX).map(|task| task.index.to_string()).collect();
            if self.failed > named.len() {
                named.push("…".to_string());
            }
            parts.push(format!("{} failed ({})", self.failed, named.join(", ")));
        }
        for (count, what) in [(self.running, "running"), (self.waiting, "waiting")] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        let busy = self.busy.map(|busy| format!("; busy {:.1} %", busy * 100.0));
        let plural = if self.tasks == 1 { "" } else { "s" };
        format!("{} task{plural}: {}{}", self.tasks, parts.join(", "), busy.unwrap_or_default())
    }
}

fn task(ledger: &Ledger, index: u32, now_ms: u64) -> Option<TaskFigures> {
    let task = ledger.tasks().get(&index)?;
    let (state, ok, by, took_ms) = match &task.standing {
        Standing::Waiting => ("waiting".to_string(), None, None, None),
        Standing::Claimed { by, since_ms } => {
            ("running".to_string(), None, Some(*by), Some(now_ms.saturating_sub(*since_ms)))
        }
        Standing::Ended { by, since_ms, at_ms, how } => {
            let took_ms = at_ms.saturating_sub(*since_ms);
            (how.to_string(), Some(how.is_ok()), Some(*by), Some(took_ms))
        }
    };
    let node = by.and_then(|by| Some(ledger.pilots().get(&by)?.node.clone()));
    let pilot = by.map(|PilotId { array, element, .. }| format!("{array}_{element}"));
    Some(TaskFigures { index, state, ok, attempts: task.attempts, node, pilot, took_ms })
}

/// Pilots that did not say that they were leaving count to the end of the last task that they ended.
fn held_ms(ledger: &Ledger, now_ms: u64) -> u64 {
    let mut last: BTreeMap<PilotId, u64> = BTreeMap::new();
    for task in ledger.tasks().values() {
        let (by, at_ms) = match &task.standing {
            Standing::Ended { by, at_ms, .. } => (*by, *at_ms),
            Standing::Claimed { by, .. } => (*by, now_ms),
            Standing::Waiting => continue,
        };
        let seen_ms = last.entry(by).or_default();
        *seen_ms = at_ms.max(*seen_ms);
    }
    let held = ledger.pilots().iter().map(|(id, pilot)| {
        let until_ms = pilot.left_ms.or(last.get(id).copied());
        until_ms.map_or(0, |until_ms| until_ms.saturating_sub(pilot.since_ms))
    });
    held.sum()
}
