//! No task waits, or there is no time for one: what others left, the pilots that wait, the last words.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use local::clock::Clock;
use node::tool::ToolError;

use super::Pilot;
use crate::array::ArrayError;
use crate::array::event::{Event, PilotId};
use crate::array::figures::Figures;
use crate::array::ledger::Ledger;
use crate::array::queue::{self, Place};

/// How long Slurm is asked whether others still run, in ms, and how often.
const ASKING_MAX_MS: u64 = 2 * 60_000;
const ASKING_STEP_MS: u64 = 2_000;
/// How long a pilot that has asked to be requeued waits to be ended, in ms.
const REQUEUE_WAIT_MS: u64 = 60_000;

impl Pilot<'_> {
    /// Asks Slurm whether those who have the open tasks still run; takes back what the dead had.
    /// Whether there is something to do now.
    pub(super) fn take_from_the_dead(&mut self) -> Result<bool, ArrayError> {
        let begun_ms = self.clock.now_ms();
        while !self.stopping && self.clock.now_ms() < begun_ms + ASKING_MAX_MS {
            match gone_of(self.journal.ledger()) {
                Ok((gone, false)) if gone.is_empty() => return Ok(false),
                Ok((gone, _)) if !gone.is_empty() => {
                    self.sweep(|id| gone.contains(&id));
                    let (tries, at_ms) = (self.tries_max(), Clock::calendar_ms());
                    self.change(|ledger| ledger.take_back(|id| gone.contains(&id), tries, at_ms))?;
                    self.ended_the_array |= self.journal.ledger().is_over();
                    (self.tell)(&format!("took back tasks of {} pilots that are gone", gone.len()));
                    return Ok(true);
                }
                // Some are about to end, or Slurm does not answer.
                Ok(_) | Err(_) => self.pause(ASKING_STEP_MS),
            }
            // What cannot be read now may be later.
            let _ = self.journal.catch_up();
            if self.journal.ledger().waiting() > 0 || self.journal.ledger().is_over() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// No task waits: pilots that have not begun need not begin.
    pub(super) fn clear_the_queue(&mut self) -> Result<(), ArrayError> {
        if self.journal.ledger().is_cleared() {
            return Ok(());
        }
        let at_ms = Clock::calendar_ms();
        self.change(|ledger| match ledger.is_cleared() || ledger.waiting() > 0 {
            true => Vec::new(),
            false => vec![Event::Cleared { at_ms }],
        })?;
        let none_waits = self.journal.ledger().waiting() == 0;
        if none_waits && let Err(error) = queue::clear(self.me.array) {
            (self.tell)(&format!("pilots that wait could not be cancelled: {error}"));
        }
        Ok(())
    }

    /// Says that we are leaving; the last one sums up, one that is short of time comes again.
    pub(super) fn leave(&mut self) -> Result<(), ArrayError> {
        let (id, at_ms) = (self.me, Clock::calendar_ms());
        self.change(|_| vec![Event::Left { id, at_ms }])?;
        let ledger = self.journal.ledger();
        let figures = Figures::of(ledger, at_ms);
        (self.tell)(&figures.line());
        if self.ended_the_array {
            let comment = format!("hotpot: {}", figures.line());
            if let Err(error) = queue::comment(self.me.array, &comment) {
                (self.tell)(&format!("the summary could not be written: {error}"));
            }
        }
        if self.is_short() && !self.stopping && !self.stale {
            (self.tell)("short of time: asking Slurm for another turn");
            match queue::requeue(self.me) {
                Ok(()) => self.pause(REQUEUE_WAIT_MS),
                Err(error) => (self.tell)(&format!(
                    "{error}; continue with `hotpot slurm run --resume {}`",
                    self.me.array
                )),
            }
        }
        Ok(())
    }
}

/// The pilots of open tasks that are gone, and whether others of them are about to go.
fn gone_of(ledger: &Ledger) -> Result<(BTreeSet<PilotId>, bool), ToolError> {
    let (mut gone, mut going) = (BTreeSet::new(), false);
    let mut arrays: BTreeMap<u64, BTreeMap<u32, (Place, u32)>> = BTreeMap::new();
    for id in ledger.open().map(|open| open.by) {
        let elements = match arrays.entry(id.array) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(queue::elements(id.array)?),
        };
        let there = elements.get(&id.element);
        let restarts = ledger.pilots().get(&id).map_or(0, |pilot| pilot.restarts);
        let is_last = ledger.last_start(id) == id.start;
        match there.filter(|(_, count)| *count == restarts && is_last) {
            Some((Place::Running, _)) => {}
            Some((Place::Completing, _)) => going = true,
            Some((Place::Pending, _)) | None => drop(gone.insert(id)),
        }
    }
    Ok((gone, going))
}
