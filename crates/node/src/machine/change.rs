//! Changes of GPUs: written down, made, and closed; or, after a crash, made to the end.

use model::ProfileIndex;

use super::Machine;
use super::error::MachineError;
use super::modes::compute_mode_change;
use crate::compute_mode;
use crate::driver::{DriverError, Fault};
use crate::gpu_lock::{self, Taken};
use crate::inventory::ComputeMode;
use crate::journal::Change;
use crate::mig::{self, Holders, Profiles, Target};
use crate::time_slice::{TimeSlice, Turn};

/// A change that a killed process had begun, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// UUID of the GPU.
    pub gpu: String,
    /// The change.
    pub what: Change,
    /// `None` if it was brought to its end; else why it was given up.
    pub given_up: Option<String>,
}

impl Machine {
    /// Brings changes to their end that were begun by a process that is no more. Those of GPUs that
    /// another one uses now are left for later.
    pub(super) fn resume(&mut self) -> Result<(), MachineError> {
        if self.journal.open_changes()?.is_empty() {
            return Ok(());
        }
        self.with_lock(|machine| {
            // Whoever held the lock may have closed them.
            for change in machine.journal.open_changes()? {
                // Who has the GPU now may keep another state folder, and its holds are unknown here.
                let lock = gpu_lock::take(&change.gpu, "hotpot, which ends a change of it")?;
                let Taken::Ours(_lock) = lock else { continue };
                let outcome = machine.carry_out(&change.gpu, &change.what);
                let given_up = match outcome {
                    Ok(()) => None,
                    // What cannot be said of the world cannot be given up either.
                    Err(error) if error.fault() == Some(&Fault::Timeout) => return Err(error),
                    Err(error) => Some(error.to_string()),
                };
                machine.journal.end(change.id, given_up.as_deref())?;
                machine.resumed.push(Resumed { gpu: change.gpu, what: change.what, given_up });
            }
            Ok(())
        })
    }

    /// Runs `act` while no other hotpot changes GPUs; may be called from within.
    pub(super) fn with_lock<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, MachineError>,
    ) -> Result<T, MachineError> {
        if self.locked {
            // Taking it again would succeed, and let go of it too early.
            return act(self);
        }
        // A second handle on the same open file, so that the lock is not borrowed from `self`.
        let lock = self.lock.again()?;
        let _held = lock.take()?;
        self.locked = true;
        let done = act(self);
        self.locked = false;
        done
    }

    /// Writes a change down, makes it, and closes it. The lock must be held.
    pub(super) fn change(
        &mut self,
        gpu: &str,
        what: &Change,
        was: &Change,
    ) -> Result<(), MachineError> {
        let id = self.journal.begin(gpu, what, was)?;
        let outcome = self.carry_out(gpu, what);
        let why = outcome.as_ref().err().map(ToString::to_string);
        self.journal.end(id, why.as_deref())?;
        outcome
    }

    /// Makes a change, or what is left of it to be made. If it fails, what it has left is noted.
    fn carry_out(&mut self, gpu: &str, what: &Change) -> Result<(), MachineError> {
        let outcome = self.make(gpu, what);
        if outcome.is_err() {
            // MIG mode takes instances with it. What cannot be read now counts as ours.
            let layout = Change::Layout { instances: Vec::new() };
            let layout = Some(&layout).filter(|_| matches!(what, Change::MigMode { .. }));
            for aspect in std::iter::once(what).chain(layout) {
                if let Ok(Some(stands)) = self.standing(gpu, aspect) {
                    self.journal.left(gpu, &stands)?;
                }
            }
        }
        outcome
    }

    /// What stands now of the aspect that a change is about; `None` where nobody tells.
    pub(super) fn standing(
        &mut self,
        gpu: &str,
        what: &Change,
    ) -> Result<Option<Change>, MachineError> {
        let mode = mig::mode(&self.driver, gpu)?;
        match what {
            Change::Layout { .. } if mode.is_some_and(|(enabled, _)| enabled) => {
                self.layout(gpu).map(Some)
            }
            // One that waits for a reset is as good as made.
            Change::MigMode { .. } => Ok(mode.map(|(_, pending)| Change::MigMode { on: pending })),
            Change::ComputeMode { .. } => {
                let device = self.driver.device(gpu)?;
                let mode = compute_mode::read(&device).map_err(|error| error.on(gpu))?;
                Ok(mode.map(compute_mode_change))
            }
            Change::Layout { .. } | Change::Turn { .. } | Change::MpsDaemon { .. } => Ok(None),
        }
    }

    fn make(&mut self, gpu: &str, what: &Change) -> Result<(), MachineError> {
        match what {
            Change::Layout { instances } => self.lay_out(gpu, instances),
            Change::MigMode { on } => {
                // The driver may list other profiles in the other mode.
                self.profiles.remove(gpu);
                let held = self.holders(gpu)?;
                Ok(mig::set_mode(&self.driver, gpu, *on, &held)?)
            }
            Change::ComputeMode { mode } => {
                let mode = ComputeMode::parse(mode).ok_or_else(|| {
                    MachineError::refused(gpu, format!("no compute mode `{mode}`"))
                })?;
                Ok(compute_mode::set(&self.driver, gpu, mode)?)
            }
            Change::Turn { length } => {
                let turn = Turn::parse(length)
                    .ok_or_else(|| MachineError::refused(gpu, format!("no turn `{length}`")))?;
                Ok(TimeSlice::find()?.set(gpu, turn)?)
            }
            Change::MpsDaemon { on: true } => self.start_mps(gpu),
            Change::MpsDaemon { on: false } => self.stop_mps(gpu),
        }
    }

    fn lay_out(&mut self, gpu: &str, instances: &[(String, u8)]) -> Result<(), MachineError> {
        let held = self.holders(gpu)?;
        let profiles = self.profiles(gpu)?;
        let mut places: Vec<(ProfileIndex, u8)> = Vec::with_capacity(instances.len());
        for (name, start) in instances {
            let profile = profiles.geometry.find(name);
            let unknown = || MachineError::refused(gpu, format!("it has no MIG profile `{name}`"));
            places.push((profile.ok_or_else(unknown)?, *start));
        }
        mig::carry_out(&self.driver, gpu, &profiles, &Target::Exact(places), &held)?;
        Ok(())
    }

    /// MIG profiles of a GPU, asked for once in each MIG mode.
    pub(super) fn profiles(&mut self, gpu: &str) -> Result<Profiles, DriverError> {
        if let Some(known) = self.profiles.get(gpu) {
            return Ok(known.clone());
        }
        let found = mig::profiles(&self.driver, gpu)?;
        self.profiles.insert(gpu.to_owned(), found.clone());
        Ok(found)
    }

    /// Who holds which instance of a GPU.
    pub(super) fn holders(&self, gpu: &str) -> Result<Holders, MachineError> {
        let holds = self.journal.holds()?.into_iter().filter(|hold| hold.gpu == gpu);
        Ok(holds.filter_map(|hold| hold.start.map(|start| (start, hold.who))).collect())
    }
}
