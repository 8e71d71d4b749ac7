//! Puts the GPUs back as they were before hotpot first changed them.

use std::collections::BTreeSet;

use super::Machine;
use super::error::MachineError;
use crate::journal::Change;
use crate::mig;

/// What was put back, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// GPU and what it has again.
    pub done: Vec<(String, Change)>,
    /// GPU, what it should have again, and why it does not yet.
    pub left: Vec<(String, Change, String)>,
}

impl Machine {
    /// Puts every GPU back as it was before hotpot first changed it, except those that somebody
    /// still holds; whoever ends last puts those back.
    ///
    /// # Errors
    /// The journal cannot be read or written. What the driver refuses is in [`Restored::left`] and
    /// stays in the journal for the next time.
    pub fn restore(&mut self) -> Result<Restored, MachineError> {
        if self.journal.before()?.is_empty() {
            return Ok(Restored::default());
        }
        self.with_lock(|machine| {
            let holds = machine.journal.holds()?;
            let held: BTreeSet<String> = holds.into_iter().map(|hold| hold.gpu).collect();
            let mut before = machine.journal.before()?;
            before.sort_by_key(|(gpu, was)| (gpu.clone(), order(was)));
            let mut restored = Restored::default();
            for (gpu, was) in before {
                if held.contains(&gpu) {
                    let why = "somebody still holds a share of it".to_owned();
                    restored.left.push((gpu, was, why));
                    continue;
                }
                match machine.put_back(&gpu, &was) {
                    Ok(()) => {
                        machine.journal.restored(&gpu, &was)?;
                        restored.done.push((gpu, was));
                    }
                    Err(MachineError::Journal(error)) => return Err(error.into()),
                    Err(error) => restored.left.push((gpu, was, error.to_string())),
                }
            }
            Ok(restored)
        })
    }

    fn put_back(&mut self, gpu: &str, was: &Change) -> Result<(), MachineError> {
        let is_layout = matches!(was, Change::Layout { .. });
        if is_layout && !mig::mode(&self.driver, gpu)?.is_some_and(|(enabled, _)| enabled) {
            // The instances went with MIG mode, which was off at first.
            return Ok(());
        }
        self.change(gpu, was, was)
    }
}

/// Clients of MPS go before modes, and MIG mode before the instances in it.
fn order(was: &Change) -> u8 {
    match was {
        Change::MpsDaemon { .. } | Change::Turn { .. } => 0,
        Change::ComputeMode { .. } => 1,
        Change::MigMode { .. } => 2,
        Change::Layout { .. } => 3,
    }
}
