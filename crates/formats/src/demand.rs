//! The GPU part of a workload file's entry: how many, how much of each, which models, how protected.

use model::{GpuAsk, GpuDemand, Isolation, ModeSet, ModelSet, SharingKind};

use crate::error::ReadError;
use crate::keys::{Field, Keys};
use crate::{names, quantity};

/// Most GPUs that one member may ask for on one node: a node's GPUs are counted in a byte.
pub(crate) const GPUS_MAX: u32 = 255;

/// Keys that make no sense without GPUs.
const GPU_KEYS: [&str; 8] = [
    "gpu_share",
    "gpu_compute",
    "gpu_memory",
    "mig_profile",
    "models",
    "isolation",
    "modes",
    "profile",
];
/// Keys that say how much of each GPU is needed.
const AMOUNT_KEYS: [&str; 4] = ["mig_profile", "gpu_share", "gpu_compute", "gpu_memory"];

/// The GPU demand of a workload's entry; `None` for CPU-only work.
pub(crate) fn gpus(keys: &Keys<'_>) -> Result<Option<GpuDemand>, ReadError> {
    let count = keys.get("gpus").map_or(Ok(0), |field| field.count(0, GPUS_MAX))?;
    if count == 0 {
        return match keys.first_of(&GPU_KEYS) {
            None => Ok(None),
            Some(field) => Err(field.error("is set, but no GPU is asked for", "add gpus = 1")),
        };
    }
    let each = each(keys)?;
    let accepts = models(keys)?;
    let isolation = keys.read("isolation", names::isolation)?.unwrap_or_default();
    let modes = modes(keys, &each, isolation)?;
    Ok(Some(GpuDemand { count, each, accepts, isolation, modes }))
}

fn each(keys: &Keys<'_>) -> Result<GpuAsk, ReadError> {
    let Some(first) = keys.first_of(&AMOUNT_KEYS) else {
        return Ok(GpuAsk::Whole);
    };
    let exclusive_of = match first.name() {
        "mig_profile" => &AMOUNT_KEYS[1..],
        "gpu_share" => &AMOUNT_KEYS[2..],
        _ => &[],
    };
    if let Some(second) = keys.first_of(exclusive_of) {
        let what = format!("says the size again, after {}", first.name());
        return Err(second.error(what, "keep one of the two"));
    }
    match first.name() {
        "mig_profile" => Ok(GpuAsk::Profile(first.read(names::mig_profile)?)),
        "gpu_share" => share(&first),
        _ => caps(keys),
    }
}

/// `gpu_share`: a part (`0.5`, `"50%"`) or an amount of memory (`"2GiB"`).
fn share(field: &Field<'_>) -> Result<GpuAsk, ReadError> {
    let is_memory = field.read(|text| Ok(text.ends_with(|c: char| c.is_alphabetic())))?;
    if is_memory {
        return Ok(GpuAsk::Fraction { compute_milli: 0, memory_mib: gpu_memory(field)? });
    }
    Ok(match field.read(quantity::share_milli)? {
        1000 => GpuAsk::Whole,
        compute_milli => GpuAsk::Fraction { compute_milli, memory_mib: 0 },
    })
}

/// `gpu_compute` and `gpu_memory`, of which at least one is there.
fn caps(keys: &Keys<'_>) -> Result<GpuAsk, ReadError> {
    let compute_milli = keys.read("gpu_compute", quantity::share_milli)?.unwrap_or(0);
    let memory_mib = keys.get("gpu_memory").map(|field| gpu_memory(&field)).transpose()?;
    Ok(match (compute_milli, memory_mib) {
        (1000, None) => GpuAsk::Whole,
        (compute_milli, memory) => {
            GpuAsk::Fraction { compute_milli, memory_mib: memory.unwrap_or(0) }
        }
    })
}

fn gpu_memory(field: &Field<'_>) -> Result<u64, ReadError> {
    match field.read(quantity::memory_mib)? {
        0 => Err(field.error("is no memory at all", "give a size such as \"2GiB\"")),
        mib => Ok(mib),
    }
}

/// Alternatives in order of preference; each may join models by `|`.
fn models(keys: &Keys<'_>) -> Result<Vec<ModelSet>, ReadError> {
    let mut accepts = Vec::new();
    for item in keys.items("models")? {
        let set = ModelSet::parse(item.text()?);
        if set == ModelSet::default() {
            return Err(item.error("names no GPU model", "give one such as \"a100-80gb\""));
        }
        accepts.push(set);
    }
    Ok(accepts)
}

/// The modes accepted, of which at least one must be able to hold what is asked.
fn modes(keys: &Keys<'_>, each: &GpuAsk, isolation: Isolation) -> Result<ModeSet, ReadError> {
    let Some(field) = keys.get("modes") else {
        return Ok(ModeSet::ALL);
    };
    let mut modes = ModeSet::EMPTY;
    for item in field.items()? {
        modes = modes.with(item.read(names::mode)?);
    }
    if modes.is_empty() {
        return Err(field.error("accepts no mode", "name one, or leave the key out"));
    }
    let (able, kind) = match each {
        GpuAsk::Whole => (ModeSet::of(&[SharingKind::Exclusive]), "a whole GPU"),
        GpuAsk::Profile(_) => (ModeSet::of(&[SharingKind::Mig]), "a MIG profile"),
        GpuAsk::Fraction { .. } => (ModeSet::ALL, "a share"),
    };
    if modes.and(able).is_empty() {
        let needed: Vec<_> = able.iter().map(SharingKind::as_str).collect();
        let way_out = format!("add {:?}, or change the size", needed.join(", "));
        return Err(field.error(format!("cannot give {kind}"), way_out));
    }
    if !modes.iter().any(|mode| mode.isolation() >= isolation) {
        let what = format!("holds no mode with isolation {isolation}");
        return Err(field.error(what, isolating(isolation)));
    }
    Ok(modes)
}

fn isolating(isolation: Isolation) -> String {
    let strong = SharingKind::ALL.into_iter().filter(|mode| mode.isolation() >= isolation);
    let names: Vec<_> = strong.map(SharingKind::as_str).collect();
    format!("add one of {}", names.join(", "))
}
