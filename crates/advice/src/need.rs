//! What a workload takes of a GPU of a model, and how it would ask for that under each way of sharing.

use std::sync::Arc;

use engine::sharing::instance_share;
use model::{
    Demand, GpuAsk, GpuModel, Isolation, MigProfile, ModeSet, ProfileIndex, SharingKind, Workload,
};

/// Compute of a whole GPU.
const WHOLE_MILLI: u32 = 1000;

/// What a workload takes of each of its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Device memory in MiB, without the CUDA context; 0 if nothing is said.
    pub memory_mib: u64,
    /// Thousandths of compute; 0 if nothing is said.
    pub compute_milli: u32,
    /// Whether it has asked for a whole GPU, so that the two say nothing of what it uses.
    pub is_whole: bool,
}

impl Need {
    /// What it asks, in amounts; `None` for work without GPUs.
    pub fn of(workload: &Workload, model: &GpuModel) -> Option<Self> {
        let gpus = workload.demand.gpus.as_ref()?;
        Some(match &gpus.each {
            GpuAsk::Whole => {
                Self { memory_mib: model.memory_mib, compute_milli: WHOLE_MILLI, is_whole: true }
            }
            GpuAsk::Fraction { compute_milli, memory_mib } => {
                // Memory that is not said goes with compute, as in the books.
                let by_compute = model.memory_mib * u64::from(*compute_milli) / 1000;
                let memory_mib = if *memory_mib > 0 { *memory_mib } else { by_compute };
                Self { memory_mib, compute_milli: *compute_milli, is_whole: false }
            }
            GpuAsk::Profile(name) => match profile_named(model, name) {
                Some((index, found)) => {
                    let geometry = model.mig.as_ref()?;
                    let share = instance_share(geometry, index)?;
                    let memory_mib = model.instance_memory_mib(found);
                    Self { memory_mib, compute_milli: share.compute_milli, is_whole: false }
                }
                // What a profile of another card comes to, nobody knows here.
                None => Self {
                    memory_mib: model.memory_mib,
                    compute_milli: WHOLE_MILLI,
                    is_whole: true,
                },
            },
        })
    }

    /// Whether no card of the model has that much memory.
    pub(crate) fn is_too_large(&self, model: &GpuModel) -> bool {
        model.memory_mib > 0 && self.memory_mib > model.memory_mib
    }

    /// The larger of its parts of memory and compute, in thousandths of a GPU.
    pub fn size_milli(&self, model: &GpuModel) -> u32 {
        let by_memory = (self.memory_mib * 1000).checked_div(model.memory_mib).unwrap_or(0);
        u32::try_from(by_memory).unwrap_or(u32::MAX).max(self.compute_milli)
    }
}

/// The profile of a name.
pub(crate) fn profile_named<'a>(
    model: &'a GpuModel,
    name: &str,
) -> Option<(ProfileIndex, &'a MigProfile)> {
    let geometry = model.mig.as_ref()?;
    let index = geometry.find(name)?;
    Some((index, geometry.profile(index)?))
}

/// The smallest plain profile whose instances hold that much memory and, if one does, that much compute: fewest memory slices, then fewest
/// compute slices. Where none has the compute, the one with the most of it that has the memory.
pub(crate) fn smallest_profile<'a>(model: &'a GpuModel, need: &Need) -> Option<&'a MigProfile> {
    let geometry = model.mig.as_ref()?;
    let with_context = need.memory_mib.saturating_add(model.context_mib);
    let roomy = geometry
        .indexed()
        .filter(|(_, one)| one.is_plain() && model.instance_memory_mib(one) >= with_context);
    let compute = |index| instance_share(geometry, index).map_or(0, |share| share.compute_milli);
    let size = |one: &MigProfile| (one.memory_slices, one.compute_slices);
    let (strong, weak): (Vec<_>, Vec<_>) =
        roomy.partition(|(index, _)| compute(*index) >= need.compute_milli);
    let best = strong.into_iter().min_by_key(|(_, one)| size(one));
    let next = || weak.into_iter().max_by_key(|(index, _)| compute(*index));
    best.or_else(next).map(|(_, one)| one)
}

/// What the workload would ask if it were to share in this way; `None` if it cannot: what it insists on is more than the way isolates, it needs
/// several GPUs that talk to each other, or no instance or no card holds it.
pub(crate) fn demand_as(
    workload: &Workload,
    model: &GpuModel,
    kind: SharingKind,
) -> Option<Demand> {
    let mut demand = workload.demand.clone();
    let need = Need::of(workload, model)?;
    let gpus = demand.gpus.as_mut()?;
    let is_wide = gpus.count > 1 || workload.members > 1;
    if need.is_too_large(model) {
        return None;
    }
    if kind == SharingKind::Exclusive {
        (gpus.each, gpus.modes) = (GpuAsk::Whole, ModeSet::ALL);
        return Some(demand);
    }
    let is_possible = gpus.modes.contains(kind)
        && kind.isolation() >= gpus.isolation
        && model.modes.contains(kind)
        && !need.is_whole;
    if !is_possible {
        return None;
    }
    if kind == SharingKind::Mig {
        if is_wide {
            return None;
        }
        let named = matches!(gpus.each, GpuAsk::Profile(_));
        if !named {
            gpus.each = GpuAsk::Profile(smallest_profile(model, &need)?.name.clone());
        }
    } else {
        let Need { memory_mib, compute_milli, .. } = need;
        // Plain turns promise nobody a part of the compute.
        let compute_milli = if kind == SharingKind::TimeSlice { 0 } else { compute_milli };
        gpus.each = GpuAsk::Fraction { compute_milli, memory_mib };
    }
    gpus.modes = ModeSet::of(&[kind]);
    gpus.isolation = Isolation::None;
    Some(demand)
}

/// The model as one that everybody welcomes: what is asked of other models is asked of this one.
pub(crate) fn welcome(mut workload: Workload) -> Arc<Workload> {
    if let Some(gpus) = &mut workload.demand.gpus {
        gpus.accepts.clear();
    }
    Arc::new(workload)
}
