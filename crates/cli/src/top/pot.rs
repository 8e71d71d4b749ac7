//! A GPU as a pot: who sits where in it, to scale, and what is free. Made of what the driver says it
//! is (inventory) and of what was measured (sample), of nothing else.

use std::collections::BTreeMap;

use node::backend::Backends;
use node::inventory::{ComputeMode, Device, Inventory, Mig};
use node::sample::{GpuSample, InstanceSample, ProcessSample, Sample};
use node::tenant::Tenant;
use serde::Serialize;
use simulator::report::harmless;

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Pot {
    pub(super) index: u32,
    pub(super) uuid: String,
    /// Name in the catalogue, else what the driver calls it.
    pub(super) model: String,
    pub(super) sharing: Sharing,
    /// How hard caps hold between tenants, as the mode gives it.
    pub(super) enforcement: &'static str,
    /// Part of the last period in which it was busy, 0 to 1.
    pub(super) busy_ratio: Option<f64>,
    pub(super) memory_total_bytes: Option<u64>,
    pub(super) memory_used_bytes: Option<u64>,
    pub(super) temperature_celsius: Option<f64>,
    pub(super) power_watts: Option<f64>,
    /// How much slower tenants run than alone; nothing measures it yet.
    pub(super) alpha: Option<f64>,
    /// Code of the last Xid event; 0 for none.
    pub(super) xid: Option<u64>,
    /// Who sits where, by position.
    pub(super) parts: Vec<Part>,
    pub(super) processes: Vec<ProcessSample>,
    /// What could hold a cap on it; `None` for a GPU that cannot be reached.
    pub(super) backends: Option<Backends>,
    /// Facts for the page of details.
    #[serde(skip)]
    pub(super) facts: Vec<(&'static str, String)>,
}

/// How a GPU is shared at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Sharing {
    /// The driver does not reach it.
    Lost,
    /// Divided into instances.
    Mig,
    /// One process at a time may use it, and several do: through MPS.
    Mps,
    /// One process at a time may use it.
    Exclusive,
    /// Several tenants, and nothing between them.
    Shared,
    /// One tenant; nothing keeps others away.
    Single,
    /// Nobody.
    Idle,
}

impl Sharing {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Mig => "mig",
            Self::Mps => "mps",
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Single => "single",
            Self::Idle => "idle",
        }
    }

    /// How hard it separates tenants.
    fn enforcement(self) -> &'static str {
        match self {
            Self::Mig | Self::Exclusive => "hard",
            Self::Mps => "cooperative",
            Self::Shared | Self::Single => "none",
            Self::Lost | Self::Idle => "–",
        }
    }
}

/// A piece of a pot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Part {
    /// Who sits there, in words.
    pub(super) label: String,
    pub(super) class: Class,
    /// The instance's profile.
    pub(super) profile: Option<String>,
    /// Where it begins and ends, in parts of the GPU's memory, 0 to 1.
    pub(super) from: f64,
    pub(super) to: f64,
    /// Memory it may use: that of its instance, else what it uses.
    pub(super) room_bytes: Option<u64>,
    pub(super) used_bytes: Option<u64>,
    /// Part of the GPU's SM time of its processes, 0 to 1.
    pub(super) sm_ratio: Option<f64>,
    pub(super) processes: usize,
}

/// What kind of tenant it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Class {
    /// An instance in which nobody sits.
    Empty,
    Task,
    Slurm,
    Pod,
    User,
    /// Several, or not known.
    Other,
}

/// All pots of a machine, in the driver's order.
pub(super) fn pots(inventory: &Inventory, sample: &Sample) -> Vec<Pot> {
    let device = |gpu: &GpuSample| inventory.devices.iter().find(|device| device.uuid == gpu.uuid);
    sample.gpus.iter().map(|gpu| pot(device(gpu), gpu)).collect()
}

fn pot(device: Option<&Device>, gpu: &GpuSample) -> Pot {
    let sharing = sharing(device, gpu);
    let parts = match sharing {
        Sharing::Lost => Vec::new(),
        Sharing::Mig => instances(device, gpu),
        Sharing::Mps | Sharing::Exclusive | Sharing::Shared | Sharing::Single | Sharing::Idle => {
            tenants(gpu)
        }
    };
    let engine = || gpu.profile.and_then(|profile| profile.engine_ratio);
    let named = |device: &Device| device.model.clone().unwrap_or_else(|| device.product.clone());
    Pot {
        index: gpu.index,
        uuid: gpu.uuid.clone(),
        model: device.map_or_else(|| "–".into(), named),
        sharing,
        enforcement: sharing.enforcement(),
        busy_ratio: gpu.busy_ratio.or_else(engine),
        memory_total_bytes: gpu.memory_total_bytes,
        memory_used_bytes: gpu.memory_used_bytes,
        temperature_celsius: gpu.temperature_celsius,
        power_watts: gpu.power_watts,
        alpha: None,
        xid: gpu.xid,
        parts,
        processes: gpu.processes.clone(),
        backends: device.map(|device| device.backends.clone()),
        facts: device.map(facts).unwrap_or_default(),
    }
}

fn sharing(device: Option<&Device>, gpu: &GpuSample) -> Sharing {
    let mode = device.map(|device| device.compute_mode).unwrap_or_default();
    let several = distinct(gpu.processes.iter()).len() > 1;
    match (gpu.lost, gpu.mig_enabled, mode, gpu.processes.len()) {
        (true, ..) => Sharing::Lost,
        (false, Some(true), ..) => Sharing::Mig,
        (false, _, ComputeMode::ExclusiveProcess, 2..) => Sharing::Mps,
        (false, _, ComputeMode::ExclusiveProcess, _) => Sharing::Exclusive,
        (false, _, ComputeMode::Default | ComputeMode::Prohibited, 0) => Sharing::Idle,
        (false, _, ComputeMode::Default | ComputeMode::Prohibited, _) if several => Sharing::Shared,
        (false, _, ComputeMode::Default | ComputeMode::Prohibited, _) => Sharing::Single,
    }
}

/// Tenants side by side, each as wide as the memory it uses.
fn tenants(gpu: &GpuSample) -> Vec<Part> {
    let total = gpu.memory_total_bytes.filter(|total| *total > 0);
    let mut at = 0.0;
    let part = |(tenant, processes): (&Tenant, Vec<&ProcessSample>)| {
        let mut part = occupied(&[tenant], &processes);
        part.room_bytes = part.used_bytes;
        let wide = part.used_bytes.zip(total).map_or(0.0, |(used, total)| ratio(used, total));
        (part.from, part.to) = (at, f64::min(at + wide, 1.0));
        at = part.to;
        part
    };
    distinct(gpu.processes.iter()).into_iter().map(part).collect()
}

/// Instances at their memory slices; those without a MIG device too, for their room is taken.
fn instances(device: Option<&Device>, gpu: &GpuSample) -> Vec<Part> {
    let mig = device.and_then(|device| device.mig.as_ref());
    let known = |number: u32| gpu.instances.iter().any(|found| found.gpu_instance == number);
    let bare = mig.into_iter().flat_map(|mig| {
        let bare = mig.instances.iter().filter(|instance| !known(instance.gpu_instance));
        bare.filter_map(|instance| {
            let profile = mig.geometry.profile(instance.profile)?;
            let memory_total_bytes = Some(profile.memory_mib << 20);
            let (profile, start) = (profile.name.clone(), instance.start);
            Some(InstanceSample { profile, start, memory_total_bytes, ..Default::default() })
        })
    });
    let all = gpu.instances.iter().cloned().chain(bare);
    let mut parts: Vec<Part> = all.map(|instance| part_of_instance(mig, gpu, &instance)).collect();
    parts.sort_by(|one, other| one.from.total_cmp(&other.from));
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
    let from = (f64::from(instance.start) / slices).min(1.0);
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
        profile: None,
        from: 0.0,
        to: 0.0,
        room_bytes: None,
        used_bytes: (!memory.is_empty()).then(|| memory.iter().sum()),
        sm_ratio: (!sm.is_empty()).then(|| sm.iter().sum()),
        processes: processes.len(),
    }
}

fn distinct<'a>(
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
        Tenant::User(uid) => format!("user {uid}"),
        Tenant::Unknown => "unknown".into(),
    }
}

fn class(tenant: &Tenant) -> Class {
    match tenant {
        Tenant::Task { .. } => Class::Task,
        Tenant::SlurmJob(_) => Class::Slurm,
        Tenant::Pod(_) => Class::Pod,
        Tenant::User(_) => Class::User,
        Tenant::Unknown => Class::Other,
    }
}

fn facts(device: &Device) -> Vec<(&'static str, String)> {
    let (major, minor) = device.compute_capability;
    let compute = match device.compute_mode {
        ComputeMode::Default => "anybody may use it",
        ComputeMode::Prohibited => "nobody may use it",
        ComputeMode::ExclusiveProcess => "one process at a time",
    };
    let numa = device.numa_node.map_or_else(|| "–".into(), |node| node.to_string());
    vec![
        ("product", harmless(&device.product)),
        ("PCI", device.pci_bus_id.clone()),
        ("NUMA node", numa),
        ("compute capability", format!("{major}.{minor}")),
        ("compute mode", compute.into()),
        ("kept by the driver", format!("{} MiB", device.reserved_mib)),
    ]
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
