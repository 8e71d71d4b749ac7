//! MIG layouts of a machine's GPUs: the journalled way from one to another.

use model::ProfileIndex;

use super::Machine;
use super::error::MachineError;
use crate::inventory::Instance;
use crate::journal::Change;
use crate::mig::{self, MigError, Profiles, Target};

impl Machine {
    /// Brings a GPU in MIG mode to a layout, keeping as many instances as can be, and gives what
    /// stands then. After a crash in the middle, the next [`Machine::open`] brings it to the same
    /// end.
    ///
    /// # Errors
    /// [`MigError::Refused`] with the instances that are in use or held and would have to go; then
    /// nothing was changed.
    pub fn relayout(&mut self, gpu: &str, target: &Target) -> Result<Vec<Instance>, MachineError> {
        self.with_lock(|machine| machine.reach(gpu, target))
    }

    /// [`Machine::relayout`], for whoever holds the lock.
    pub(super) fn reach(
        &mut self,
        gpu: &str,
        target: &Target,
    ) -> Result<Vec<Instance>, MachineError> {
        if !mig::mode(&self.driver, gpu)?.is_some_and(|(enabled, _)| enabled) {
            let why = "MIG mode is off";
            return Err(MigError::NoMig { gpu: gpu.to_owned(), why }.into());
        }
        let held = self.holders(gpu)?;
        let profiles = self.profiles(gpu)?;
        let instances = mig::instances(&self.driver, gpu, &profiles)?;
        let plan = mig::plan_for(gpu, &profiles, &instances, target, &held)?;
        if plan.is_done() {
            return Ok(instances);
        }
        // Placements are settled here, so that whoever resumes it makes the same ones.
        let was = layout_of(&profiles, instances.iter().map(|one| (one.profile, one.start)));
        let what = layout_of(&profiles, plan.layout.iter().copied());
        self.change(gpu, &what, &was)?;
        Ok(mig::instances(&self.driver, gpu, &profiles)?)
    }

    /// The instances that stand now, as the journal writes them.
    pub(super) fn layout(&mut self, gpu: &str) -> Result<Change, MachineError> {
        let profiles = self.profiles(gpu)?;
        let instances = mig::instances(&self.driver, gpu, &profiles)?;
        Ok(layout_of(&profiles, instances.iter().map(|one| (one.profile, one.start))))
    }
}

fn layout_of(profiles: &Profiles, places: impl Iterator<Item = (ProfileIndex, u8)>) -> Change {
    let named = |(profile, start)| (mig::profile_name(&profiles.geometry, profile), start);
    Change::Layout { instances: places.map(named).collect() }
}
