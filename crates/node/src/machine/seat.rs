//! Seats given beside others by what the journal says: for adapters of which many short processes grant
//! shares, as Slurm's prologs do, and none keeps the book in its memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{Demand, Gpu, Owner, Refusal, Share, SharingMode, Tenant, Workload, WorkloadId};

use super::Machine;
use super::error::MachineError;
use crate::grant::{Grant, Holder};
use crate::inventory::{Device, Inventory};
use crate::journal::Hold;

/// Tenants of a GPU at most where the mode sets a number: 48 as under MPS (NVIDIA MPS guide, client
/// limits).
const TENANTS_MAX: u8 = 48;

impl Machine {
    /// Grants a share if it fits beside what others hold of the GPU, and puts an idle GPU into the mode that
    /// it needs.
    ///
    /// * `inventory` — as [`Machine::look`] found it; an instance's profile is counted as in it.
    ///
    /// # Errors
    /// [`MachineError::Taken`] if what others hold leaves no room; else as [`Machine::set_mode`] and
    /// [`Machine::grant`].
    pub fn seat<'a>(
        &mut self,
        inventory: &Inventory,
        gpu: &str,
        share: Share,
        holder: impl Into<Holder<'a>>,
    ) -> Result<Grant, MachineError> {
        let holder = holder.into();
        self.with_lock(|machine| {
            let holds = machine.holds_on(gpu)?;
            let mode = share.mode(TENANTS_MAX);
            let mut book = machine.idle(inventory, gpu)?;
            if let Err(refusal) = fits_beside(&mut book, &holds, mode, share) {
                return Err(taken(gpu, &refusal, &holds));
            }
            if holds.is_empty() {
                machine.set_mode(gpu, mode)?;
            }
            machine.grant(gpu, share, holder)
        })
    }

    /// What the journal says that is held of a GPU.
    fn holds_on(&self, gpu: &str) -> Result<Vec<Hold>, MachineError> {
        let mut holds = self.journal.holds()?;
        holds.retain(|hold| hold.gpu == gpu);
        Ok(holds)
    }

    /// The GPU as the engine sees it, with nobody on it.
    fn idle(&mut self, inventory: &Inventory, gpu: &str) -> Result<Gpu, MachineError> {
        let Inventory { driver, devices, .. } = inventory;
        let mut devices: Vec<Device> =
            devices.iter().filter(|device| device.uuid == gpu).cloned().collect();
        for device in &mut devices {
            device.backends.memory_limit = self.memory_limit(gpu);
        }
        let inventory = Inventory { driver: driver.clone(), devices, lost: Vec::new() };
        let engine = inventory.to_engine();
        let engine = engine.map_err(|error| MachineError::refused(gpu, error.to_string()))?;
        let left_out = engine.left_out.first().map(|(_, why)| why.as_str());
        let why = || left_out.unwrap_or("there is no such GPU here");
        engine.gpus.first().cloned().ok_or_else(|| MachineError::refused(gpu, why()))
    }
}

/// Whether a share fits on a GPU beside what is held of it: the one rule of [`Gpu::admit`].
fn fits_beside(
    gpu: &mut Gpu,
    holds: &[Hold],
    mode: SharingMode,
    share: Share,
) -> Result<(), Refusal> {
    for (hold, number) in holds.iter().zip(0..) {
        // What is not known may be all of it.
        let held = hold.share.unwrap_or(Share::Exclusive);
        gpu.set_mode(held.mode(TENANTS_MAX))?;
        let (id, nobody) = (WorkloadId(number), Owner::new(""));
        let workload = Workload::new(id, hold.who.clone(), nobody, Demand::default());
        gpu.admit(Tenant { workload: Arc::new(workload), share: held })?;
    }
    gpu.fits(mode, share)
}

fn taken(gpu: &str, refusal: &Refusal, holds: &[Hold]) -> MachineError {
    let holders: BTreeSet<String> = holds.iter().map(|hold| hold.who.clone()).collect();
    MachineError::Taken {
        gpu: gpu.to_owned(),
        why: refusal.to_string(),
        holders: holders.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::{Catalogue, ModeSet};

    use super::*;

    fn beside(held: &[Share], share: Share) -> Result<(), Refusal> {
        let catalogue = Catalogue::shipped().unwrap();
        let model = Arc::clone(catalogue.get("a100-80gb").unwrap());
        let hold = |share: &Share| Hold {
            id: 0,
            gpu: "GPU-1".into(),
            start: None,
            device: "GPU-1".into(),
            who: "job".into(),
            share: Some(*share),
        };
        let holds: Vec<Hold> = held.iter().map(hold).collect();
        fits_beside(&mut Gpu::idle(model, ModeSet::ALL), &holds, share.mode(TENANTS_MAX), share)
    }

    #[test]
    fn a_whole_gpu_and_a_part_of_it_are_never_held_together() {
        let part = Share::MemoryCapped { memory_mib: 2048, compute_milli: 0 };
        beside(&[], Share::Exclusive).unwrap();
        beside(&[part], part).unwrap();
        beside(&[part], Share::Exclusive).unwrap_err();
        beside(&[Share::Exclusive], part).unwrap_err();
        beside(&[part], Share::TimeSlice { memory_mib: 0 }).unwrap_err();
    }

    #[test]
    fn caps_never_add_up_to_more_than_the_gpu() {
        let part = |memory_mib, compute_milli| Share::MemoryCapped { memory_mib, compute_milli };
        beside(&[part(40_000, 500)], part(40_000, 500)).unwrap();
        beside(&[part(40_000, 500)], part(1000, 501)).unwrap_err();
        beside(&[part(60_000, 0)], part(40_000, 0)).unwrap_err();
    }
}
