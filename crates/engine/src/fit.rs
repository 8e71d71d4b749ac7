//! What a demand could be given: on one GPU, and on the GPUs of one node.
//!
//! Whether an amount fits is asked of `Gpu::fits` and `Node::fits_host`; here is only what to ask
//! for: which mode an idle GPU would be put into and how large the share is.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use model::{
    Demand, Gpu, GpuAsk, GpuDemand, ModeSet, ModelSet, Node, Refusal, Share, SharingKind,
    SharingMode,
};

use crate::mig::best_start;

/// A share that a GPU could grant, and what that would leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) gpu: u8,
    /// Mode that the GPU must be in.
    pub(crate) mode: SharingMode,
    pub(crate) share: Share,
    /// Thousandths left before and after.
    pub(crate) left_milli: u32,
    pub(crate) left_after_milli: u32,
}

/// Whether host and GPUs of `node` can hold one member, and by which shares: every GPU that could
/// grant one, ascending by index. Empty for CPU-only work.
///
/// `demand` has at most one alternative of GPU models.
pub(crate) fn options(
    node: &Node,
    demand: &Demand,
    modes: &[SharingMode],
    picks: &mut Vec<Pick>,
) -> Result<(), Refusal> {
    picks.clear();
    let Some(gpus) = &demand.gpus else { return node.fits_host(demand) };
    let accepts = gpus.accepts.first();
    if !node.gpus().iter().any(|gpu| accepted(accepts, gpu)) {
        return Err(wrong_model(accepts, node.gpus().first()));
    }
    node.fits_host(demand)?;
    let mut nearest: Option<Refusal> = None;
    for (index, gpu) in (0..=u8::MAX).zip(node.gpus()) {
        match pick(index, gpu, gpus, accepts, modes) {
            Ok(found) => picks.push(found),
            Err(refusal) => nearest = Some(Refusal::nearer(nearest, refusal)),
        }
    }
    enough(demand, picks.len(), nearest)
}

/// Whether so many GPUs are enough; if not, what the nearest of the others lacks.
pub(crate) fn enough(
    demand: &Demand,
    offered: usize,
    nearest: Option<Refusal>,
) -> Result<(), Refusal> {
    let asked = demand.gpus.as_ref().map_or(0, |gpus| gpus.count);
    if offered >= asked as usize {
        return Ok(());
    }
    match nearest {
        Some(refusal) if asked == 1 => Err(refusal),
        other => {
            let (offered, because) = (offered as u32, other.map(Box::new));
            Err(Refusal::GpuCount { asked, offered, because })
        }
    }
}

/// The share of one GPU that the demand would get, if it fits.
pub(crate) fn pick(
    index: u8,
    gpu: &Gpu,
    demand: &GpuDemand,
    accepts: Option<&ModelSet>,
    modes: &[SharingMode],
) -> Result<Pick, Refusal> {
    if !accepted(accepts, gpu) {
        return Err(wrong_model(accepts, Some(gpu)));
    }
    if gpu.mode() == SharingMode::Exclusive && !gpu.is_idle() {
        return Err(Refusal::Occupied { tenants: gpu.tenants().len() as u32 });
    }
    let mut nearest: Option<Refusal> = None;
    for mode in open_modes(gpu, demand, modes) {
        match share(gpu, mode, &demand.each).and_then(|share| {
            gpu.fits(mode, share)?;
            Ok(share)
        }) {
            Ok(share) => {
                return Ok(Pick {
                    gpu: index,
                    mode,
                    share,
                    left_milli: gpu.free_milli(),
                    left_after_milli: gpu.free_milli_after(mode, share),
                });
            }
            Err(refusal) => nearest = Some(Refusal::nearer(nearest, refusal)),
        }
    }
    Err(nearest.unwrap_or_else(|| closed(gpu, demand, modes)))
}

/// Modes that the GPU is in or could be put into and that the demand accepts, best first.
fn open_modes<'a>(
    gpu: &'a Gpu,
    demand: &'a GpuDemand,
    modes: &'a [SharingMode],
) -> impl Iterator<Item = SharingMode> + 'a {
    let listed = move |mode: &SharingMode| modes.iter().any(|other| other.kind() == mode.kind());
    let in_force = core::iter::once(gpu.mode()).filter(move |_| !gpu.is_idle()).filter(listed);
    let settable = settable(gpu, demand, modes).filter(move |_| gpu.is_idle());
    in_force.filter(move |mode| suits(*mode, demand)).chain(settable)
}

/// Modes that the GPU could be put into for the demand if it were idle, best first.
fn settable<'a>(
    gpu: &'a Gpu,
    demand: &'a GpuDemand,
    modes: &'a [SharingMode],
) -> impl Iterator<Item = SharingMode> + 'a {
    // A whole GPU is exclusive whatever the policy's list of sharing modes says; a fraction takes a
    // whole GPU only if it cannot be shared.
    let whole = demand.each == GpuAsk::Whole;
    let listed = if whole { &[SharingMode::Exclusive][..] } else { modes };
    let shared = listed.iter().copied().filter(|mode| *mode != SharingMode::Exclusive);
    let alone = listed.iter().copied().filter(|mode| *mode == SharingMode::Exclusive);
    let offered = move |mode: &SharingMode| gpu.offers().contains(mode.kind());
    shared.chain(alone).filter(offered).filter(|mode| suits(*mode, demand))
}

/// Whether the demand accepts a mode.
fn suits(mode: SharingMode, demand: &GpuDemand) -> bool {
    let kind = mode.kind();
    let able = match (&demand.each, kind) {
        (GpuAsk::Whole, _) => return kind == SharingKind::Exclusive,
        (GpuAsk::Profile(_), _) => kind == SharingKind::Mig,
        (GpuAsk::Fraction { .. }, _) => true,
    };
    able && demand.modes.contains(kind) && kind.isolation() >= demand.isolation
}

/// Why no mode of the GPU is open to the demand.
fn closed(gpu: &Gpu, demand: &GpuDemand, modes: &[SharingMode]) -> Refusal {
    let model = gpu.model();
    match (&demand.each, settable(gpu, demand, modes).next()) {
        (GpuAsk::Profile(profile), _) if model.mig.is_none() => {
            Refusal::MigProfile { profile: profile.clone(), model: model.name.clone() }
        }
        (GpuAsk::Whole, _) => Refusal::Occupied { tenants: gpu.tenants().len() as u32 },
        (_, Some(mode)) => Refusal::Mode { asked: mode.kind(), in_force: gpu.mode().kind() },
        (_, None) => {
            let listed: Vec<SharingKind> = modes.iter().map(|mode| mode.kind()).collect();
            Refusal::NoMode {
                accepted: demand.modes,
                isolation: demand.isolation,
                offered: gpu.offers().and(ModeSet::of(&listed)),
            }
        }
    }
}

/// The share that the ask amounts to under `mode` on this GPU.
fn share(gpu: &Gpu, mode: SharingMode, ask: &GpuAsk) -> Result<Share, Refusal> {
    let (compute_milli, memory_mib) = match ask {
        GpuAsk::Whole => return Ok(Share::Exclusive),
        GpuAsk::Profile(name) => return mig_profile(gpu, name),
        GpuAsk::Fraction { compute_milli, memory_mib } => (*compute_milli, *memory_mib),
    };
    let booked_mib = match memory_mib {
        // Not said: the same part of the memory as of the compute, its context included.
        0 => gpu.model().memory_mib.saturating_mul(u64::from(compute_milli)) / 1000,
        asked => asked.saturating_add(gpu.model().context_mib),
    };
    let (total_mib, context_mib) = (gpu.model().memory_mib, gpu.model().context_mib);
    if memory_mib == 0 && compute_milli > 0 && total_mib > 0 && booked_mib < context_mib {
        return Err(Refusal::BelowContext { share_mib: booked_mib, context_mib });
    }
    match mode {
        SharingMode::Exclusive => whole(gpu, compute_milli, booked_mib),
        SharingMode::Mps { .. } => Ok(Share::Mps { compute_milli, memory_mib: booked_mib }),
        SharingMode::MemoryCapped { .. } => {
            Ok(Share::MemoryCapped { memory_mib: booked_mib, compute_milli })
        }
        SharingMode::TimeSlice { tenants_max } => {
            let turn_milli = 1000 / u32::from(tenants_max.max(1));
            if compute_milli > turn_milli {
                return Err(Refusal::Compute {
                    asked_milli: compute_milli,
                    offered_milli: turn_milli,
                });
            }
            Ok(Share::TimeSlice { memory_mib: booked_mib })
        }
        SharingMode::Mig if memory_mib == 0 => mig_fraction(gpu, compute_milli, 0),
        SharingMode::Mig => mig_fraction(gpu, compute_milli, booked_mib),
    }
}

/// The whole GPU in place of a fraction that its node cannot hold otherwise.
fn whole(gpu: &Gpu, compute_milli: u32, memory_mib: u64) -> Result<Share, Refusal> {
    if compute_milli > 1000 {
        return Err(Refusal::Compute { asked_milli: compute_milli, offered_milli: 1000 });
    }
    if memory_mib > gpu.model().memory_mib {
        return Err(Refusal::GpuMemory {
            asked_mib: memory_mib,
            offered_mib: gpu.model().memory_mib,
        });
    }
    Ok(Share::Exclusive)
}

fn mig_profile(gpu: &Gpu, name: &str) -> Result<Share, Refusal> {
    let model = gpu.model();
    let found = model.mig.as_ref().and_then(|geometry| Some((geometry, geometry.find(name)?)));
    let Some((geometry, profile)) = found else {
        return Err(Refusal::MigProfile { profile: name.to_string(), model: model.name.clone() });
    };
    match best_start(geometry, &gpu.layout(), profile) {
        Some(start) => Ok(Share::Mig { profile, start }),
        None => Err(Refusal::MigPlacement { profile: name.to_string() }),
    }
}

/// The smallest instance that has the asked compute and memory (context included) and finds a
/// placement.
fn mig_fraction(gpu: &Gpu, compute_milli: u32, memory_mib: u64) -> Result<Share, Refusal> {
    let model = gpu.model();
    let Some(geometry) = &model.mig else {
        return Err(Refusal::MigProfile {
            profile: "MIG instance".to_string(),
            model: model.name.clone(),
        });
    };
    let layout = gpu.layout();
    let slices = u64::from(geometry.compute_slices);
    let mut enough: Vec<_> = geometry
        .indexed()
        .filter(|(_, profile)| {
            profile.is_plain()
                && u64::from(profile.compute_slices) * 1000 >= u64::from(compute_milli) * slices
                && model.instance_memory_mib(profile) >= memory_mib
        })
        .collect();
    enough.sort_by_key(|(_, profile)| (profile.memory_slices, profile.compute_slices));
    let Some((_, smallest)) = enough.first() else {
        if compute_milli > 1000 {
            return Err(Refusal::Compute { asked_milli: compute_milli, offered_milli: 1000 });
        }
        let sizes = geometry.profiles.iter().map(|profile| model.instance_memory_mib(profile));
        let offered_mib = sizes.max().unwrap_or(0);
        return Err(Refusal::GpuMemory { asked_mib: memory_mib, offered_mib });
    };
    let placed = enough.iter().find_map(|(profile, _)| {
        let start = best_start(geometry, &layout, *profile)?;
        Some(Share::Mig { profile: *profile, start })
    });
    placed.ok_or_else(|| Refusal::MigPlacement { profile: smallest.name.clone() })
}

fn accepted(accepts: Option<&ModelSet>, gpu: &Gpu) -> bool {
    accepts.is_none_or(|set| set.accepts(&gpu.model().name))
}

fn wrong_model(accepts: Option<&ModelSet>, gpu: Option<&Gpu>) -> Refusal {
    Refusal::GpuModel {
        asked: accepts.map_or_else(String::new, ToString::to_string),
        offered: gpu.map_or_else(String::new, |gpu| gpu.model().name.clone()),
    }
}

/// A refusal of the last alternative of GPU models, said of all of them.
pub(crate) fn for_all_alternatives(refusal: Refusal, demand: &Demand) -> Refusal {
    let alternatives = demand.gpus.as_ref().map_or(&[][..], |gpus| &gpus.accepts);
    let Refusal::GpuModel { offered, asked } = refusal else { return refusal };
    let names: Vec<String> = alternatives.iter().map(ToString::to_string).collect();
    let asked = if names.len() > 1 { names.join(" or ") } else { asked };
    Refusal::GpuModel { asked, offered }
}
