//! Policy files (TOML or YAML): how to place, which modes to prefer, who may use how much.
//!
//! The keys are described in `docs/files.md`; what is left out keeps the value of
//! [`Policy::new`].

use model::{
    AffinityMatrix, Class, Owner, Placement, Policy, Preemption, Quota, SharingKind, SharingMode,
};

use crate::error::{Complaint, ReadError};
use crate::keys::{Field, Keys};
use crate::text::Source;
use crate::{names, quantity};

/// Largest magnitude of a weight, in thousandths.
const WEIGHT_MAX_MILLI: u32 = 1_000_000;
/// Largest magnitude of an affinity, in thousandths.
const AFFINITY_MAX_MILLI: u32 = 1000;
/// Clients of one MPS server since Volta (NVIDIA MPS guide, client limits).
const MPS_TENANTS_MAX: u32 = 48;
/// Most workloads looked at in one cycle.
const DEPTH_MAX: u32 = 1_000_000;

const KEYS: [&str; 11] = [
    "placement",
    "seed",
    "weighted",
    "interference",
    "modes",
    "quotas",
    "backfill",
    "depth",
    "patience",
    "time_limit_default",
    "preemption",
];

/// Reads a policy file.
///
/// # Errors
/// The first value that is wrong, with its line: an unknown key, placement or mode, a weight or
/// affinity out of range, a key of a placement that is not the chosen one.
pub fn read(source: &Source) -> Result<Policy, ReadError> {
    let tree = source.tree()?;
    let keys = Keys::of_file(source, &tree, &KEYS)?;
    let mut policy = Policy::new(placement(&keys)?);
    if let Some(field) = keys.get("modes") {
        policy.modes = modes(&field, &policy.modes)?;
    }
    if let Some(field) = keys.get("quotas") {
        for owner in field.any_keys()?.iter() {
            policy.quotas.insert(Owner::new(owner.name()), quota(&owner)?);
        }
    }
    if let Some(field) = keys.get("backfill") {
        policy.backfill = field.flag()?;
    }
    if let Some(field) = keys.get("depth") {
        policy.depth = field.count(1, DEPTH_MAX)?;
    }
    if let Some(field) = keys.get("patience") {
        policy.patience_ms = field.read(quantity::duration_ms)?;
    }
    if let Some(field) = keys.get("time_limit_default") {
        policy.time_limit_default_ms = match field.read(quantity::duration_ms)? {
            0 => return Err(field.error("leaves no time to run", "give more, such as \"24h\"")),
            limit => limit,
        };
    }
    if let Some(field) = keys.get("interference") {
        policy.hotpot.interference_milli = interference(&policy, &field)?;
    }
    policy.preemption = keys.get("preemption").as_ref().map(preemption).transpose()?;
    Ok(policy)
}

/// The weight of what tenants lose beside each other, 0 to 1000.
fn interference(policy: &Policy, field: &Field<'_>) -> Result<u32, ReadError> {
    if policy.placement != Placement::Hotpot {
        return Err(field.error("counts for hotpot placement only", "leave it out"));
    }
    let milli = field.read(|text| quantity::signed_milli(text, WEIGHT_MAX_MILLI))?;
    u32::try_from(milli).map_err(|_| field.error("is below 0", "give 0 or more"))
}

/// `{ grace = "30s" }`; a grace of 0 ends whoever is asked to leave at once.
fn preemption(table: &Field<'_>) -> Result<Preemption, ReadError> {
    let keys = table.keys(&["grace"])?;
    let grace_ms = keys.need("grace", "grace = \"30s\"")?.read(quantity::duration_ms)?;
    Ok(Preemption { grace_ms })
}

fn placement(keys: &Keys<'_>) -> Result<Placement, ReadError> {
    let field = keys.need("placement", "placement = \"hotpot\"")?;
    let mut placement = field.read(|name| {
        Placement::parse(name).ok_or_else(|| names::unknown("placement", name, &Placement::NAMES))
    })?;
    if let Some(seed) = keys.get("seed") {
        let Placement::Random { seed: value } = &mut placement else {
            return Err(seed.error("counts for random placement only", "leave it out"));
        };
        *value = seed.read(|text| {
            let refuse = |_| Complaint::new(format!("{text:?} is not a seed"), "give 0 or more");
            text.parse().map_err(refuse)
        })?;
    }
    if let Some(table) = keys.get("weighted") {
        if !matches!(placement, Placement::Weighted { .. }) {
            return Err(table.error("counts for weighted placement only", "leave it out"));
        }
        placement = weighted(&table)?;
    }
    Ok(placement)
}

fn weighted(table: &Field<'_>) -> Result<Placement, ReadError> {
    let keys = table.keys(&["memory_weight", "affinity_weight", "affinity"])?;
    let weight = |name: &str| -> Result<i32, ReadError> {
        let milli = keys.read(name, |text| quantity::signed_milli(text, WEIGHT_MAX_MILLI))?;
        Ok(milli.unwrap_or(1000))
    };
    let mut affinity = AffinityMatrix::default();
    if let Some(field) = keys.get("affinity") {
        fill(&mut affinity, &field)?;
    }
    Ok(Placement::Weighted {
        memory_weight_milli: weight("memory_weight")?,
        affinity_weight_milli: weight("affinity_weight")?,
        affinity,
    })
}

/// A table of tables, `training = { service = 0.25 }`; a pair given both ways must agree.
fn fill(affinity: &mut AffinityMatrix, field: &Field<'_>) -> Result<(), ReadError> {
    let mut given: Vec<(Class, Class, i32)> = Vec::new();
    for row in field.any_keys()?.iter() {
        let one = names::class(row.name()).map_err(|complaint| row.complain(complaint))?;
        for cell in row.any_keys()?.iter() {
            let other = names::class(cell.name()).map_err(|complaint| cell.complain(complaint))?;
            let milli = cell.read(|text| quantity::signed_milli(text, AFFINITY_MAX_MILLI))?;
            if given.iter().any(|(a, b, was)| (*a, *b) == (other, one) && *was != milli) {
                let what = "differs from the same pair the other way round";
                return Err(cell.error(what, "keep one of the two"));
            }
            given.push((one, other, milli));
            affinity.set(one, other, milli);
        }
    }
    Ok(())
}

/// The modes in order of preference: `"mig"`, or `{ mode = "mps", tenants_max = 8 }`.
fn modes(field: &Field<'_>, defaults: &[SharingMode]) -> Result<Vec<SharingMode>, ReadError> {
    let mut modes: Vec<SharingMode> = Vec::new();
    for item in field.items()? {
        let mode = mode(&item, defaults)?;
        if modes.iter().any(|known| known.kind() == mode.kind()) {
            return Err(item.error(format!("names {} twice", mode.kind()), "keep one"));
        }
        modes.push(mode);
    }
    if modes.is_empty() {
        return Err(field.error("names no mode", "name one, or leave the key out"));
    }
    Ok(modes)
}

fn mode(item: &Field<'_>, defaults: &[SharingMode]) -> Result<SharingMode, ReadError> {
    if !item.is_table() {
        return Ok(default_of(item.read(names::mode)?, defaults));
    }
    let keys = item.keys(&["mode", "tenants_max"])?;
    let kind = keys.need("mode", "mode = \"mps\"")?.read(names::mode)?;
    let Some(field) = keys.get("tenants_max") else {
        return Ok(default_of(kind, defaults));
    };
    let most = if kind == SharingKind::Mps { MPS_TENANTS_MAX } else { u32::from(u8::MAX) };
    let tenants_max = field.count(1, most)? as u8;
    match kind {
        SharingKind::TimeSlice => Ok(SharingMode::TimeSlice { tenants_max }),
        SharingKind::Mps => Ok(SharingMode::Mps { tenants_max }),
        SharingKind::MemoryCapped => Ok(SharingMode::MemoryCapped { tenants_max }),
        SharingKind::Exclusive | SharingKind::Mig => {
            Err(field.error(format!("{kind} has no limit of tenants to set"), "leave it out"))
        }
    }
}

fn default_of(kind: SharingKind, defaults: &[SharingMode]) -> SharingMode {
    let known = defaults.iter().copied().find(|mode| mode.kind() == kind);
    known.unwrap_or(SharingMode::Exclusive)
}

fn quota(owner: &Field<'_>) -> Result<Quota, ReadError> {
    let keys = owner.keys(&["gpus", "weight", "speed_min"])?;
    let gpus = |text: &str| {
        let refuse =
            |_| Complaint::new(format!("{text:?} is not a number of GPUs"), "give 0 or more");
        quantity::cpu_milli(text).map_err(refuse)
    };
    Ok(Quota {
        gpu_milli_max: keys.read("gpus", gpus)?,
        weight: keys.get("weight").map_or(Ok(1), |field| field.count(1, 1_000_000))?,
        speed_min_milli: keys.read("speed_min", quantity::part_milli)?.unwrap_or(0),
    })
}
