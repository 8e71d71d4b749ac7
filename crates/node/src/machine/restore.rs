//! Puts GPUs back as they were before hotpot first changed them.

use std::collections::BTreeSet;

use super::Machine;
use super::error::MachineError;
use crate::driver::Fault;
use crate::journal::Change;
use crate::mig;

/// What was put back, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// GPU and what it has again.
    pub done: Vec<(String, Change)>,
    /// GPU, what it should have again, and why it does not yet.
    pub left: Vec<(String, Change, String)>,
    /// GPU, what it had at first, and why that is forgotten: somebody else has changed it since.
    pub forgotten: Vec<(String, Change, String)>,
}

/// What is to become of one aspect of a GPU.
enum Way {
    Change,
    /// It is so.
    Done,
    /// It must wait for another aspect.
    Wait(&'static str),
    Forget(&'static str),
}

impl Machine {
    /// Puts GPUs back as they were before hotpot first changed them, except those that somebody
    /// still holds; whoever ends last puts those back.
    ///
    /// * `gpus` — their UUIDs. The caller must have their locks ([`crate::gpu_lock`]): the GPUs of
    ///   others are theirs to put back.
    ///
    /// # Errors
    /// The journal cannot be read or written. What the driver refuses is in [`Restored::left`] and
    /// stays in the journal for the next time.
    pub fn restore(&mut self, gpus: &[String]) -> Result<Restored, MachineError> {
        if !self.journal.before()?.iter().any(|(gpu, _)| gpus.contains(gpu)) {
            return Ok(Restored::default());
        }
        self.with_lock(|machine| {
            let holds = machine.journal.holds()?;
            let held: BTreeSet<String> = holds.into_iter().map(|hold| hold.gpu).collect();
            let mut before = machine.journal.before()?;
            before.retain(|(gpu, _)| gpus.contains(gpu));
            before.sort_by_key(|(gpu, was)| (gpu.clone(), order(was)));
            let mut restored = Restored::default();
            for (gpu, was) in before {
                if held.contains(&gpu) {
                    let why = "somebody still holds a share of it".to_owned();
                    restored.left.push((gpu, was, why));
                    continue;
                }
                machine.restore_one(gpu, was, &mut restored)?;
            }
            Ok(restored)
        })
    }

    /// Takes a GPU as it stands now for what it is to be put back to from now on: somebody has chosen it for
    /// good, and not for one tenant.
    ///
    /// # Errors
    /// The journal cannot be read or written, or another process changes GPUs for too long.
    pub fn settle(&mut self, gpu: &str) -> Result<(), MachineError> {
        self.with_lock(|machine| {
            for was in machine.before_of(gpu)? {
                machine.journal.restored(gpu, &was)?;
            }
            Ok(())
        })
    }

    fn restore_one(
        &mut self,
        gpu: String,
        was: Change,
        restored: &mut Restored,
    ) -> Result<(), MachineError> {
        let outcome = match self.way_back(&gpu, &was) {
            Ok(Way::Change) => self.change(&gpu, &was, &was),
            Ok(Way::Done) => Ok(()),
            Ok(Way::Wait(why)) => Err(MachineError::refused(&gpu, why)),
            Ok(Way::Forget(why)) => {
                self.journal.restored(&gpu, &was)?;
                restored.forgotten.push((gpu, was, why.to_owned()));
                return Ok(());
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => {
                self.journal.restored(&gpu, &was)?;
                restored.done.push((gpu, was));
            }
            Err(MachineError::Journal(error)) => return Err(error.into()),
            Err(error) => restored.left.push((gpu, was, error.to_string())),
        }
        Ok(())
    }

    fn way_back(&mut self, gpu: &str, was: &Change) -> Result<Way, MachineError> {
        match self.driver.device(gpu) {
            Err(error) if error.is(&Fault::NotFound) => {
                return Ok(Way::Forget("the GPU is no longer in this machine"));
            }
            other => other.map(drop)?,
        }
        let mig = mig::mode(&self.driver, gpu)?.is_some_and(|(enabled, _)| enabled);
        let mig_was = self.before_of(gpu)?.into_iter().find_map(|was| match was {
            Change::MigMode { on } => Some(on),
            Change::Layout { .. }
            | Change::ComputeMode { .. }
            | Change::Turn { .. }
            | Change::MpsDaemon { .. } => None,
        });
        match was {
            Change::Layout { .. } if !mig && mig_was == Some(true) => {
                return Ok(Way::Wait("its instances come back once MIG mode is on again"));
            }
            Change::ComputeMode { .. } if mig && mig_was == Some(false) => {
                return Ok(Way::Wait("its compute mode comes back once MIG mode is off again"));
            }
            // Without MIG mode there are no instances, in it the GPU has no compute mode.
            Change::Layout { .. } if !mig => return Ok(Way::Done),
            Change::ComputeMode { .. } if mig => return Ok(Way::Done),
            Change::Layout { .. }
            | Change::MigMode { .. }
            | Change::ComputeMode { .. }
            | Change::Turn { .. }
            | Change::MpsDaemon { .. } => {}
        }
        self.unless_others(gpu, was)
    }

    /// What somebody else has made since is not undone.
    fn unless_others(&mut self, gpu: &str, was: &Change) -> Result<Way, MachineError> {
        let stands = self.standing(gpu, was)?;
        let enabled = mig::mode(&self.driver, gpu)?.is_some_and(|(enabled, _)| enabled);
        let settled = !matches!(was, Change::MigMode { on } if *on != enabled);
        if settled && stands.as_ref() == Some(was) {
            return Ok(Way::Done);
        }
        let ours = self.journal.ours(gpu, was.aspect())?;
        if stands.is_some() && ours.is_some() && stands != ours {
            return Ok(Way::Forget("somebody else has changed it since"));
        }
        if enabled && matches!(was, Change::MigMode { on: false }) {
            let none = Change::Layout { instances: Vec::new() };
            let stands = self.layout(gpu)?;
            let ours = self.journal.ours(gpu, none.aspect())?;
            if stands != none && Some(stands) != ours {
                return Ok(Way::Forget("somebody else has made instances on it since"));
            }
        }
        Ok(Way::Change)
    }

    /// What the journal says that a GPU had before hotpot first changed it.
    pub(super) fn before_of(&self, gpu: &str) -> Result<Vec<Change>, MachineError> {
        let before = self.journal.before()?.into_iter();
        Ok(before.filter(|(other, _)| other == gpu).map(|(_, was)| was).collect())
    }
}

/// Clients of MPS go before modes. Compute mode cannot be set in MIG mode, instances only in it.
fn order(was: &Change) -> u8 {
    match was {
        Change::MpsDaemon { .. } | Change::Turn { .. } => 0,
        Change::MigMode { .. } => 1,
        Change::ComputeMode { .. } => 2,
        Change::Layout { .. } => 3,
    }
}
