//! Which way of sharing suits a workload, and why: rules by what is known of it, the first that says something decides.

use std::fmt;

use model::{Class, GpuAsk, GpuModel, Isolation, SharingKind, Workload};
use serde::Serialize;

use crate::need::{Need, demand_as, profile_named, smallest_profile};

/// Beyond this part of a GPU, in thousandths, nothing of the list fits beside.
const HUGE_MILLI: u32 = 900;

/// The way that suits a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scheme {
    /// The way.
    pub kind: SharingKind,
    /// For MIG, the profile.
    pub profile: Option<String>,
    /// Why.
    pub because: Because,
    /// What its owner should know.
    pub warnings: Vec<Warning>,
}

/// Why a way of sharing suits a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// It computes on no GPU.
    NoGpu,
    /// It asks for whole GPUs, and nothing says that it needs less.
    AsksWhole,
    /// It computes on several GPUs at once.
    Several {
        /// GPUs.
        gpus: u32,
    },
    /// It names a MIG profile.
    NamesProfile,
    /// It insists on isolation by hardware.
    InsistsOnHardware,
    /// It fills a GPU, or leaves less than anybody else on the list needs.
    Fills {
        /// Thousandths of a GPU.
        milli: u32,
    },
    /// Somebody waits for its answers, and nobody else's tenants are about.
    LatencyAmongOwn,
    /// Somebody waits for its answers, beside tenants of other owners.
    LatencyAmongOthers,
    /// It says nothing that could be capped.
    NothingToCap,
    /// It asks for compute beside its owner's own.
    ComputeAmongOwn,
    /// It is small, beside others.
    Small,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGpu => f.write_str("uses no GPU"),
            Self::AsksWhole => f.write_str("asks for whole GPUs; say gpu_memory if it needs less"),
            Self::Several { gpus } => write!(
                f,
                "computes on {gpus} GPUs at once: MIG instances cannot reach each other's memory (no CUDA IPC, no NCCL over NVLink), and the \
                 slowest share would hold up all"
            ),
            Self::NamesProfile => f.write_str("names a MIG profile"),
            Self::InsistsOnHardware => {
                f.write_str("insists on isolation that only hardware gives")
            }
            Self::Fills { milli } => write!(
                f,
                "takes {}.{} % of a GPU, and nobody on the list fits beside",
                milli / 10,
                milli % 10
            ),
            Self::LatencyAmongOwn => f.write_str(
                "somebody waits for its answers, so never turns; all tenants are of one owner, who bears MPS's common faults",
            ),
            Self::LatencyAmongOthers => f.write_str(
                "somebody waits for its answers, so never plain turns; beside other owners a cap keeps faults apart, which MPS does not",
            ),
            Self::NothingToCap => f.write_str("says neither memory nor compute, so that nothing can be capped"),
            Self::ComputeAmongOwn => {
                f.write_str("computes beside its owner's own work, which MPS lets run at the same time")
            }
            Self::Small => f.write_str(
                "is small: its memory is capped, and its turns go to others while it is idle",
            ),
        }
    }
}

/// What does not exist or does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warning {
    /// The card has no such profile.
    NoSuchProfile {
        /// What was named.
        profile: String,
        /// The nearest that it has.
        nearest: Option<String>,
    },
    /// No instance has the compute that is asked.
    ComputeAboveInstance {
        /// The instance that has its memory.
        profile: String,
        /// Asked, in thousandths of a GPU.
        asked_milli: u32,
        /// What it has.
        has_milli: u32,
    },
    /// Nothing on this card isolates as hard as is asked but the whole of it.
    OnlyWholeIsolates,
    /// It fits on no card of the model.
    TooLarge {
        /// Asked, in MiB, the CUDA context included.
        asked_mib: u64,
        /// What a card has.
        has_mib: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchProfile { profile, nearest } => {
                write!(f, "the card has no MIG profile {profile}")?;
                nearest.iter().try_for_each(|near| write!(f, "; the nearest is {near}"))
            }
            Self::ComputeAboveInstance { profile, asked_milli, has_milli } => write!(
                f,
                "asks {asked_milli}/1000 of compute, and no instance has that: {profile} has {has_milli}/1000"
            ),
            Self::OnlyWholeIsolates => {
                f.write_str("nothing on this card isolates so hard but the whole of it")
            }
            Self::TooLarge { asked_mib, has_mib } => {
                write!(
                    f,
                    "needs {asked_mib} MiB with its CUDA context, and a card has {has_mib} MiB"
                )
            }
        }
    }
}

/// What is known beside the workload itself.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The card.
    pub model: &'a GpuModel,
    /// Whether the list has workloads of several owners.
    pub several_owners: bool,
    /// The smallest workload of the list that could share, in thousandths of a card.
    pub smallest_milli: u32,
}

/// The way that suits a workload.
pub fn scheme(workload: &Workload, around: &Around<'_>) -> Scheme {
    let (kind, because) = chosen(workload, around);
    let mut warnings = Vec::new();
    let (mut kind, mut profile) = (kind, None);
    if kind == SharingKind::Mig {
        profile = instance(workload, around.model, &mut warnings);
        if profile.is_none() {
            kind = SharingKind::Exclusive;
        }
    }
    // What its owner has ruled out, or the card cannot do, it is not given.
    if kind != SharingKind::Exclusive && demand_as(workload, around.model, kind).is_none() {
        kind = others(workload, around.model);
    }
    too_large(workload, around.model, &mut warnings);
    Scheme { kind, profile: profile.filter(|_| kind == SharingKind::Mig), because, warnings }
}

fn chosen(workload: &Workload, around: &Around<'_>) -> (SharingKind, Because) {
    let Some((gpus, need)) = workload.demand.gpus.as_ref().zip(Need::of(workload, around.model))
    else {
        return (SharingKind::Exclusive, Because::NoGpu);
    };
    let count = gpus.count.saturating_mul(workload.members.max(1));
    let waited_for = workload.latency_target_ms.is_some()
        || matches!(workload.class, Class::Service | Class::Interactive);
    let size_milli = need.size_milli(around.model);
    let is_huge =
        size_milli > HUGE_MILLI || size_milli.saturating_add(around.smallest_milli) > 1000;
    if count > 1 {
        (SharingKind::Exclusive, Because::Several { gpus: count })
    } else if matches!(gpus.each, GpuAsk::Profile(_)) {
        (SharingKind::Mig, Because::NamesProfile)
    } else if need.is_whole {
        (SharingKind::Exclusive, Because::AsksWhole)
    } else if gpus.isolation == Isolation::Hard {
        (SharingKind::Mig, Because::InsistsOnHardware)
    } else if is_huge {
        (SharingKind::Exclusive, Because::Fills { milli: size_milli })
    } else if waited_for && around.several_owners {
        (SharingKind::MemoryCapped, Because::LatencyAmongOthers)
    } else if waited_for {
        (SharingKind::Mps, Because::LatencyAmongOwn)
    } else if need.memory_mib == 0 && need.compute_milli == 0 {
        (SharingKind::TimeSlice, Because::NothingToCap)
    } else if need.compute_milli > 0 && !around.several_owners {
        (SharingKind::Mps, Because::ComputeAmongOwn)
    } else {
        (SharingKind::MemoryCapped, Because::Small)
    }
}

/// The profile that it is to have.
fn instance(workload: &Workload, model: &GpuModel, warnings: &mut Vec<Warning>) -> Option<String> {
    let need = Need::of(workload, model)?;
    let named = workload.demand.gpus.as_ref().and_then(|gpus| match &gpus.each {
        GpuAsk::Profile(name) => Some(name),
        GpuAsk::Whole | GpuAsk::Fraction { .. } => None,
    });
    if let Some(name) = named {
        if profile_named(model, name).is_some() {
            return Some(name.clone());
        }
        let nearest = nearest(model, name);
        warnings.push(Warning::NoSuchProfile { profile: name.clone(), nearest });
        return None;
    }
    let Some(found) = smallest_profile(model, &need) else {
        warnings.push(Warning::OnlyWholeIsolates);
        return None;
    };
    let share = profile_named(model, &found.name)
        .and_then(|(index, _)| engine::sharing::instance_share(model.mig.as_ref()?, index));
    let has_milli = share.map_or(0, |share| share.compute_milli);
    if has_milli < need.compute_milli {
        let profile = found.name.clone();
        let asked_milli = need.compute_milli;
        warnings.push(Warning::ComputeAboveInstance { profile, asked_milli, has_milli });
    }
    Some(found.name.clone())
}

/// The profile with as many compute slices, or else the first.
fn nearest(model: &GpuModel, name: &str) -> Option<String> {
    let slices = |name: &str| name.split_once('g').and_then(|(count, _)| count.parse::<u8>().ok());
    let plain = || model.mig.iter().flat_map(|all| &all.profiles).filter(|one| one.is_plain());
    let wanted = slices(name);
    let found = plain().find(|one| Some(one.compute_slices) == wanted).or_else(|| plain().next());
    found.map(|one| one.name.clone())
}

/// The first way but the chosen one that it could share by.
fn others(workload: &Workload, model: &GpuModel) -> SharingKind {
    let order =
        [SharingKind::MemoryCapped, SharingKind::Mps, SharingKind::Mig, SharingKind::TimeSlice];
    let mut possible = order.into_iter().filter(|kind| demand_as(workload, model, *kind).is_some());
    possible.next().unwrap_or(SharingKind::Exclusive)
}

fn too_large(workload: &Workload, model: &GpuModel, warnings: &mut Vec<Warning>) {
    let Some(need) = Need::of(workload, model).filter(|need| need.is_too_large(model)) else {
        return;
    };
    let asked_mib = need.memory_mib.saturating_add(model.context_mib);
    warnings.push(Warning::TooLarge { asked_mib, has_mib: model.memory_mib });
}
