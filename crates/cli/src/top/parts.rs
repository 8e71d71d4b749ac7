//! Who sits where on a GPU: tenants by their memory, MIG instances at their slices.

use std::collections::BTreeMap;

use model::SharingKind;
use node::inventory::{Device, Mig};
use node::live::LiveShare;
use node::sample::{GpuSample, InstanceSample, ProcessSample};
use node::tenant::Tenant;
use simulator::report::harmless;

use super::pot::{Class, Part};

/// What a task holds of a GPU, whether or not it uses it already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) tenant: Tenant,
    pub(super) share: LiveShare,
}

/// Tenants side by side, each as wide as the memory that it was given, else as what it uses.
pub(super) fn tenants(gpu: &GpuSample, held: &[&Held]) -> Vec<Part> {
    let total = gpu.memory_total_bytes.filter(|total| *total > 0);
    let shares: BTreeMap<&Tenant, &LiveShare> =
        held.iter().map(|held| (&held.tenant, &held.share)).collect();
    let mut groups = distinct(gpu.processes.iter());
    for tenant in shares.keys().copied() {
        groups.entry(tenant).or_default();
    }
    let mut at = 0.0;
    let part = |(tenant, processes): (&Tenant, Vec<&ProcessSample>)| {
        let mut part = occupied(&[tenant], &processes);
        let share = shares.get(tenant).copied();
        part.room_bytes = share.and_then(|share| given(share, total)).or(part.used_bytes);
        part.enforcement = share.map(|share| share.enforcement.clone());
        part.compute_milli = share.map(|share| share.compute_milli).filter(|milli| *milli > 0);
        let wide = part.room_bytes.zip(total).map_or(0.0, |(room, total)| ratio(room, total));
        (part.from, part.to) = (at, f64::min(at + wide, 1.0));
        at = part.to;
        part
    };
    groups.into_iter().map(part).collect()
}

/// Memory that a share gives; `None` for one without a cap.
fn given(share: &LiveShare, total: Option<u64>) -> Option<u64> {
    match share.sharing() {
        Some(SharingKind::Exclusive) => total,
        _ => Some(share.memory_mib.checked_mul(1 << 20)?).filter(|bytes| *bytes > 0),
    }
}

/// Instances at their memory slices; those without a MIG device too, for their room is taken.
pub(super) fn instances(device: Option<&Device>, gpu: &GpuSample, held: &[&Held]) -> Vec<Part> {
    let mig = device.and_then(|device| device.mig.as_ref());
    let known = |number: u32| gpu.instances.iter().any(|found| found.gpu_instance == number);
    let bare = mig.into_iter().flat_map(|mig| {
        let bare = mig.instances.iter().filter(|instance| !known(instance.gpu_instance));
        bare.filter_map(|instance| {
            let profile = mig.geometry.profile(instance.profile)?;
            let memory_total_bytes = Some(profile.memory_mib << 20);
            let (profile, start) = (profile.name.clone(), Some(instance.start));
            Some(InstanceSample { profile, start, memory_total_bytes, ..Default::default() })
        })
    });
    let all = gpu.instances.iter().cloned().chain(bare);
    let part = |instance: InstanceSample| {
        let mut part = part_of_instance(mig, gpu, &instance);
        let holder = held
            .iter()
            .find(|held| held.share.start.is_some() && held.share.start == instance.start);
        if let (Class::Empty, Some(holder)) = (part.class, holder) {
            (part.label, part.class) = (label(&holder.tenant), class(&holder.tenant));
        }
        part
    };
    let mut parts: Vec<Part> = all.map(part).collect();
    parts.sort_by(|one, other| one.from.total_cmp(&other.from));
    // Where an instance lies is told to the privileged only; side by side is as good a picture.
    let mut at = 0.0;
    for part in &mut parts {
        let pushed = f64::max(at - part.from, 0.0);
        (part.from, part.to) = ((part.from + pushed).min(1.0), (part.to + pushed).min(1.0));
        at = part.to;
    }
    parts
}

fn part_of_instance(mig: Option<&Mig>, gpu: &GpuSample, instance: &InstanceSample) -> Part {
    // One without a MIG device has no UUID, and nobody can sit there.
    let on = |process: &&ProcessSample| {
        !instance.uuid.is_empty() && process.gpu_instance == Some(instance.gpu_instance)
    };
    let tenants = distinct(gpu.processes.iter().filter(on));
    let processes: Vec<&ProcessSample> = tenants.values().flatten().copied().collect();
    let (from, to) = reach(mig, gpu, instance);
    Part {
        profile: Some(instance.profile.clone()),
        from,
        to,
        room_bytes: instance.memory_total_bytes,
        used_bytes: instance.memory_used_bytes,
        enforcement: Some("hard".into()),
        ..occupied(&tenants.into_keys().collect::<Vec<_>>(), &processes)
    }
}

/// Where an instance begins and ends: by its slices, or by its memory where its profile is not known.
fn reach(mig: Option<&Mig>, gpu: &GpuSample, instance: &InstanceSample) -> (f64, f64) {
    let geometry = mig.map(|mig| &mig.geometry);
    let slices = f64::from(geometry.map_or(8, |geometry| geometry.memory_slices.max(1)));
    let profile = geometry.and_then(|of| of.profile(of.find(&instance.profile)?));
    let wide = match (profile, instance.memory_total_bytes, gpu.memory_total_bytes) {
        (Some(profile), ..) => f64::from(profile.memory_slices) / slices,
        (None, Some(room), Some(total)) => ratio(room, total),
        (None, ..) => 0.0,
    };
    let from = (instance.start.map_or(0.0, f64::from) / slices).min(1.0);
    (from, (from + wide).min(1.0))
}

/// What is common to all parts; where it lies comes later.
fn occupied(tenants: &[&Tenant], processes: &[&ProcessSample]) -> Part {
    let (label, class) = match tenants {
        [] => (String::new(), Class::Empty),
        [one] => (label(one), class(one)),
        several => (format!("{} tenants", several.len()), Class::Other),
    };
    let memory: Vec<u64> = processes.iter().filter_map(|process| process.memory_bytes).collect();
    let sm: Vec<f64> = processes.iter().filter_map(|process| process.sm_ratio).collect();
    Part {
        label,
        class,
        used_bytes: (!memory.is_empty()).then(|| memory.iter().sum()),
        sm_ratio: (!sm.is_empty()).then(|| sm.iter().sum()),
        processes: processes.len(),
        ..Part::default()
    }
}

/// Processes by whose they are.
pub(super) fn distinct<'a>(
    processes: impl Iterator<Item = &'a ProcessSample>,
) -> BTreeMap<&'a Tenant, Vec<&'a ProcessSample>> {
    let mut found = BTreeMap::new();
    for process in processes {
        found.entry(&process.tenant).or_insert_with(Vec::new).push(process);
    }
    found
}

/// A tenant in words. Names come from outside, so nothing that steers a terminal gets through.
pub(super) fn label(tenant: &Tenant) -> String {
    match tenant {
        Tenant::Task { run, task } => harmless(&format!("{run}/{task}")).replace(['\n', '\t'], " "),
        Tenant::SlurmJob(job) => format!("slurm {job}"),
        Tenant::Pod(uid) => harmless(&format!("pod {uid}")),
        Tenant::Claim(uid) => harmless(&format!("claim {uid}")),
        Tenant::User(uid) => format!("user {uid}"),
        Tenant::Unknown => "unknown".into(),
    }
}

fn class(tenant: &Tenant) -> Class {
    match tenant {
        Tenant::Task { .. } => Class::Task,
        Tenant::SlurmJob(_) => Class::Slurm,
        Tenant::Pod(_) | Tenant::Claim(_) => Class::Pod,
        Tenant::User(_) => Class::User,
        Tenant::Unknown => Class::Other,
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
