//! One GPU: its model, the mode it is in, who sits on it, and what is left.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::{ModelId, WorkloadId};
use crate::mig::{MigGeometry, MigLayout, MigProfile};
use crate::refusal::Refusal;
use crate::sharing::{Isolation, ModeSet, Share, SharingKind, SharingMode};
use crate::workload::Workload;

/// Thousandths that make a whole GPU.
pub(crate) const WHOLE_MILLI: u32 = 1000;

/// What all GPUs of one model have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuModel {
    /// Position in the catalogue that made it.
    pub id: ModelId,
    /// Lower-case name, such as `a100-80gb`.
    pub name: String,
    /// Device memory that tenants can get: nominal less what the driver keeps. 0 means unknown;
    /// then memory is not booked and asks in MiB are refused.
    pub memory_mib: u64,
    /// Device memory that each sharing process loses to its CUDA context.
    pub context_mib: u64,
    /// Sharing modes that the hardware can do.
    pub modes: ModeSet,
    /// Instance profiles, if the model has MIG.
    pub mig: Option<MigGeometry>,
}

impl GpuModel {
    /// Device memory of an instance of a MIG profile, context included: 95 % of what the table says
    /// or of its slices of the GPU, whichever is less.
    ///
    /// Drivers report 9,728 MiB for `1g.10gb` of A100-80GB and 4,864 MiB for `1g.5gb` of A100-40GB,
    /// which is just 95 %, and somewhat more for larger instances. On a machine with a driver, ask it.
    pub fn instance_memory_mib(&self, profile: &MigProfile) -> u64 {
        let slices = self.mig.as_ref().map_or(1, |geometry| geometry.memory_slices.max(1));
        let part = self.memory_mib * u64::from(profile.memory_slices) / u64::from(slices);
        profile.memory_mib.min(part) * 95 / 100
    }
}

/// One workload's hold on one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Who holds it, with all that is known of it: who goes well beside whom depends on that.
    pub workload: Arc<Workload>,
    /// What it holds.
    pub share: Share,
}

/// One physical GPU with its tenants. [`Gpu::admit`] is the only way in.
#[derive(Clone, Debug)]
pub struct Gpu {
    model: Arc<GpuModel>,
    offers: ModeSet,
    mode: SharingMode,
    tenants: Vec<Tenant>,
    is_set_aside: bool,
    compute_free_milli: u32,
    memory_free_mib: u64,
}

impl Gpu {
    /// An idle GPU in exclusive mode.
    ///
    /// * `offers` — modes that the node can enforce; reduced to what the model can do.
    pub fn idle(model: Arc<GpuModel>, offers: ModeSet) -> Self {
        Self {
            offers: offers.and(model.modes).with(SharingKind::Exclusive),
            mode: SharingMode::Exclusive,
            tenants: Vec::new(),
            is_set_aside: false,
            compute_free_milli: WHOLE_MILLI,
            memory_free_mib: model.memory_mib,
            model,
        }
    }

    /// The same GPU with nobody on it.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let mut idle = Self::idle(Arc::clone(&self.model), self.offers);
        idle.set_aside(self.is_set_aside);
        idle
    }

    /// Whether nobody may come to it: lost, faulty, or taken out by an operator.
    pub fn is_set_aside(&self) -> bool {
        self.is_set_aside
    }

    /// Closes the GPU to newcomers, or opens it again. Tenants stay until they leave.
    pub fn set_aside(&mut self, aside: bool) {
        self.is_set_aside = aside;
        self.recount();
    }

    /// The model.
    pub fn model(&self) -> &GpuModel {
        &self.model
    }

    /// Modes that can be set on this GPU.
    pub fn offers(&self) -> ModeSet {
        self.offers
    }

    /// The mode in force.
    pub fn mode(&self) -> SharingMode {
        self.mode
    }

    /// The tenants in order of admission.
    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    /// Whether nobody sits on it.
    pub fn is_idle(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Compute not booked, in thousandths; 0 on a GPU that is set aside.
    pub fn compute_free_milli(&self) -> u32 {
        self.compute_free_milli
    }

    /// Device memory not booked; 0 where the model's memory is unknown.
    pub fn memory_free_mib(&self) -> u64 {
        self.memory_free_mib
    }

    /// What is left in thousandths of the GPU, by the scarcer of compute and memory.
    pub fn free_milli(&self) -> u32 {
        self.least_milli(self.compute_free_milli, self.memory_free_mib)
    }

    /// What would be left in thousandths, as [`Gpu::free_milli`], if `share` were granted in `mode`.
    pub fn free_milli_after(&self, mode: SharingMode, share: Share) -> u32 {
        let (compute_milli, memory_mib) = self.price(mode, share);
        self.least_milli(
            self.compute_free_milli.saturating_sub(compute_milli),
            self.memory_free_mib.saturating_sub(memory_mib),
        )
    }

    /// Device memory that would be left if `share` were granted in `mode`, in thousandths of the
    /// GPU's memory; thousandths of the GPU where its memory is unknown.
    pub fn memory_free_milli_after(&self, mode: SharingMode, share: Share) -> u32 {
        let (_, memory_mib) = self.price(mode, share);
        match self.model.memory_mib {
            0 => self.free_milli_after(mode, share),
            _ => self.least_milli(WHOLE_MILLI, self.memory_free_mib.saturating_sub(memory_mib)),
        }
    }

    /// What a share counts for its owner, in thousandths of the GPU: the larger of its parts of
    /// compute and of memory.
    pub fn share_milli(&self, mode: SharingMode, share: Share) -> u32 {
        let (compute_milli, memory_mib) = self.price(mode, share);
        let by_memory = match self.model.memory_mib {
            0 => 0,
            total => {
                let milli = memory_mib.saturating_mul(u64::from(WHOLE_MILLI)) / total;
                milli.min(u64::from(WHOLE_MILLI)) as u32
            }
        };
        compute_milli.max(by_memory)
    }

    /// The MIG instances of the present tenants.
    pub fn layout(&self) -> MigLayout {
        let mut layout = MigLayout::default();
        for tenant in &self.tenants {
            if let Share::Mig { profile, start } = tenant.share {
                layout.insert(profile, start);
            }
        }
        layout
    }

    /// Puts an idle GPU into another mode; does nothing if it is in that mode.
    ///
    /// # Errors
    /// [`Refusal::Mode`] if it has tenants, [`Refusal::NoMode`] if the mode is not on offer.
    pub fn set_mode(&mut self, mode: SharingMode) -> Result<(), Refusal> {
        if mode == self.mode {
            return Ok(());
        }
        if !self.is_idle() {
            return Err(Refusal::Mode { asked: mode.kind(), in_force: self.mode.kind() });
        }
        if !self.offers.contains(mode.kind()) {
            let (accepted, isolation) = (ModeSet::of(&[mode.kind()]), Isolation::None);
            return Err(Refusal::NoMode { accepted, isolation, offered: self.offers });
        }
        self.mode = mode;
        Ok(())
    }

    /// Whether `share` fits beside the present tenants if the GPU were in `mode`: the only
    /// definition of "fits" for a GPU.
    ///
    /// # Errors
    /// What is missing, with the asked and the offered amount.
    pub fn fits(&self, mode: SharingMode, share: Share) -> Result<(), Refusal> {
        if self.is_set_aside {
            return Err(Refusal::SetAside);
        }
        if !self.is_idle() && mode != self.mode {
            return Err(Refusal::Mode { asked: share.kind(), in_force: self.mode.kind() });
        }
        if share.kind() != mode.kind() {
            return Err(Refusal::Mode { asked: share.kind(), in_force: mode.kind() });
        }
        if self.tenants.len() >= usize::from(mode.tenants_max()) {
            return Err(self.full(mode));
        }
        if let Share::Mig { profile, start } = share {
            let Some(geometry) = &self.model.mig else {
                return Err(Refusal::MigProfile {
                    profile: String::from("MIG instance"),
                    model: self.model.name.clone(),
                });
            };
            return geometry.admit(&self.layout(), profile, start);
        }
        let (compute_milli, memory_mib) = self.price(mode, share);
        if compute_milli > self.compute_free_milli {
            return Err(Refusal::Compute {
                asked_milli: compute_milli,
                offered_milli: self.compute_free_milli,
            });
        }
        if memory_mib > self.memory_free_mib {
            return Err(Refusal::GpuMemory {
                asked_mib: memory_mib,
                offered_mib: self.memory_free_mib,
            });
        }
        Ok(())
    }

    /// Lets a tenant in under the mode in force: the only door.
    ///
    /// # Errors
    /// As [`Gpu::fits`]; the GPU is then unchanged.
    pub fn admit(&mut self, tenant: Tenant) -> Result<(), Refusal> {
        self.fits(self.mode, tenant.share)?;
        self.tenants.push(tenant);
        self.recount();
        Ok(())
    }

    /// Takes all holds of a workload off the GPU; the mode stays as it is.
    pub fn release(&mut self, workload: WorkloadId) {
        self.tenants.retain(|tenant| tenant.workload.id != workload);
        self.recount();
    }

    /// Takes the last admission back, while a seat of several GPUs is being tried.
    pub(crate) fn turn_away_last(&mut self) {
        self.tenants.pop();
        self.recount();
    }

    /// Compute in thousandths and memory in MiB that a share books under `mode`.
    fn price(&self, mode: SharingMode, share: Share) -> (u32, u64) {
        let turn_milli = WHOLE_MILLI / u32::from(mode.tenants_max().max(1));
        match share {
            Share::Exclusive => (WHOLE_MILLI, self.model.memory_mib),
            Share::TimeSlice { memory_mib } => (turn_milli, memory_mib),
            Share::Mps { compute_milli, memory_mib }
            | Share::MemoryCapped { compute_milli, memory_mib } => (compute_milli, memory_mib),
            Share::Mig { profile, .. } => self.price_mig(profile),
        }
    }

    fn price_mig(&self, profile: crate::ProfileIndex) -> (u32, u64) {
        let Some(geometry) = &self.model.mig else { return (WHOLE_MILLI, 0) };
        let Some(found) = geometry.profile(profile) else { return (WHOLE_MILLI, 0) };
        let compute = u32::from(found.compute_slices) * WHOLE_MILLI
            / u32::from(geometry.compute_slices.max(1));
        let memory = self.model.memory_mib * u64::from(found.memory_slices)
            / u64::from(geometry.memory_slices.max(1));
        (compute, memory)
    }

    fn least_milli(&self, compute_milli: u32, memory_mib: u64) -> u32 {
        let by_memory = match self.model.memory_mib {
            0 => WHOLE_MILLI,
            total => (memory_mib.saturating_mul(u64::from(WHOLE_MILLI)) / total) as u32,
        };
        compute_milli.min(by_memory)
    }

    fn recount(&mut self) {
        let (mut compute, mut memory) = (0, 0);
        for tenant in &self.tenants {
            let (compute_milli, memory_mib) = self.price(self.mode, tenant.share);
            compute = u32::saturating_add(compute, compute_milli);
            memory = u64::saturating_add(memory, memory_mib);
        }
        if self.is_set_aside {
            (compute, memory) = (WHOLE_MILLI, self.model.memory_mib);
        }
        self.compute_free_milli = WHOLE_MILLI.saturating_sub(compute);
        self.memory_free_mib = self.model.memory_mib.saturating_sub(memory);
    }

    fn full(&self, mode: SharingMode) -> Refusal {
        match mode {
            SharingMode::Exclusive => Refusal::Occupied { tenants: self.tenants.len() as u32 },
            SharingMode::TimeSlice { tenants_max }
            | SharingMode::Mps { tenants_max }
            | SharingMode::MemoryCapped { tenants_max } => {
                Refusal::Tenants { tenants_max: u32::from(tenants_max) }
            }
            SharingMode::Mig => Refusal::Tenants { tenants_max: u32::from(u8::MAX) },
        }
    }
}
