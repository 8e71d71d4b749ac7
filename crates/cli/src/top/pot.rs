//! A GPU as a pot: who sits where in it, to scale, and what is free. Made of what the driver says it
//! is (inventory) and of what was measured (sample), of nothing else.

use std::collections::BTreeSet;

use model::SharingKind;
use node::amounts;
use node::backend::Backends;
use node::inventory::{ComputeMode, Device, Inventory};
use node::sample::{AccountSample, GpuSample, ProcessSample, Sample};
use serde::Serialize;
use simulator::report::harmless;

use super::parts::{self, Held};

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Pot {
    /// Of a cluster: its node, and what Slurm could give of it.
    #[serde(flatten)]
    pub(super) on: Option<OnNode>,
    /// The driver's number; of a cluster, that by which Slurm counts the node's devices.
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
    /// What tenants have booked whose caps the limiter holds.
    pub(super) accounts: Vec<AccountSample>,
    /// What could hold a cap on it; `None` for a GPU that cannot be reached.
    pub(super) backends: Option<Backends>,
    /// Facts for the page of details.
    #[serde(skip)]
    pub(super) facts: Vec<(&'static str, String)>,
}

impl Pot {
    /// What it is known by from picture to picture.
    pub(super) fn key(&self) -> String {
        self.on.as_ref().map_or_else(|| self.uuid.clone(), |_| self.place())
    }

    /// `3`, or `n2/3` in a cluster.
    pub(super) fn place(&self) -> String {
        match &self.on {
            Some(on) => format!("{}/{}", on.node, self.index),
            None => self.index.to_string(),
        }
    }

    /// Memory that somebody could get: by Slurm's books, else what is not in use.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        match &self.on {
            Some(on) => on.free_bytes,
            None => Some(self.memory_total_bytes?.saturating_sub(self.memory_used_bytes?)),
        }
    }
}

/// Where a GPU of a cluster is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct OnNode {
    pub(super) node: String,
    /// Memory that Slurm could give to a job now; nothing on a node that takes none.
    pub(super) free_bytes: Option<u64>,
}

/// How a GPU is shared at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Sharing {
    /// The driver does not reach it.
    Lost,
    /// Divided into instances.
    Mig,
    /// Tenants at once, each under the caps in its environment.
    Mps,
    /// One process at a time may use it.
    Exclusive,
    /// Under caps of memory, held by the driver on each tenant's cgroup, or by the limiter in its
    /// processes.
    MemoryCapped,
    /// Tenants take turns.
    TimeSlice,
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
            Self::MemoryCapped => "capped",
            Self::TimeSlice => "turns",
            Self::Shared => "shared",
            Self::Single => "single",
            Self::Idle => "idle",
        }
    }

    /// How hard it separates tenants.
    fn enforcement(self, held: &[&Held]) -> &'static str {
        match self {
            // As hard as the weakest of the caps.
            Self::MemoryCapped if held.iter().any(|held| held.share.enforcement != "hard") => {
                "cooperative"
            }
            Self::Mig | Self::Exclusive | Self::MemoryCapped => "hard",
            Self::Mps => "cooperative",
            Self::TimeSlice | Self::Shared | Self::Single => "none",
            Self::Lost | Self::Idle => "–",
        }
    }
}

/// A piece of a pot.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Part {
    /// Who sits there, in words.
    pub(super) label: String,
    /// The job that Slurm has given it to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) job: Option<OfJob>,
    pub(super) class: Class,
    /// The instance's profile.
    pub(super) profile: Option<String>,
    /// Where it begins and ends, in parts of the GPU's memory, 0 to 1.
    pub(super) from: f64,
    pub(super) to: f64,
    /// Memory it may use: that of its instance, else what it uses.
    pub(super) room_bytes: Option<u64>,
    pub(super) used_bytes: Option<u64>,
    /// How hard its memory cap holds, where it has one.
    pub(super) enforcement: Option<String>,
    /// Its cap of compute, in thousandths of the GPU; in JSON it stands in the accounts.
    #[serde(skip)]
    pub(super) compute_milli: Option<u32>,
    /// Part of the GPU's SM time of its processes, 0 to 1.
    pub(super) sm_ratio: Option<f64>,
    pub(super) processes: usize,
}

/// A job of Slurm and what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct OfJob {
    /// As users are told of it: `7`, `4_3`.
    pub(super) id: String,
    pub(super) user: String,
    pub(super) name: String,
    /// `gpu`, `shard` or `mps`.
    pub(super) of: String,
    /// Shards or percent of MPS; 0 for all of it.
    pub(super) amount: u64,
}

/// What kind of tenant it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Class {
    /// An instance in which nobody sits.
    #[default]
    Empty,
    Task,
    Slurm,
    Pod,
    User,
    /// Several, or not known.
    Other,
}

/// All pots of a machine, in the driver's order.
///
/// * `mps` — UUIDs of GPUs that an MPS daemon serves.
/// * `held` — what tasks of this machine's runs hold.
pub(super) fn pots(
    inventory: &Inventory,
    sample: &Sample,
    mps: &BTreeSet<String>,
    held: &[Held],
) -> Vec<Pot> {
    let pot = |gpu: &GpuSample| {
        let held: Vec<&Held> = held.iter().filter(|held| held.share.gpu == gpu.uuid).collect();
        pot(inventory.device(&gpu.uuid), gpu, mps.contains(&gpu.uuid), &held)
    };
    sample.gpus.iter().map(pot).collect()
}

fn pot(device: Option<&Device>, gpu: &GpuSample, mps: bool, held: &[&Held]) -> Pot {
    let sharing = sharing(device, gpu, mps, held);
    let parts = match sharing {
        Sharing::Lost => Vec::new(),
        Sharing::Mig => parts::instances(device, gpu, held),
        Sharing::Mps
        | Sharing::Exclusive
        | Sharing::MemoryCapped
        | Sharing::TimeSlice
        | Sharing::Shared
        | Sharing::Single
        | Sharing::Idle => parts::tenants(gpu, held),
    };
    let engine = || gpu.profile.and_then(|profile| profile.engine_ratio);
    let named = |device: &Device| device.model.clone().unwrap_or_else(|| device.product.clone());
    Pot {
        on: None,
        index: gpu.index,
        uuid: gpu.uuid.clone(),
        model: device.map_or_else(|| "–".into(), named),
        sharing,
        enforcement: sharing.enforcement(held),
        busy_ratio: gpu.busy_ratio.or_else(engine),
        memory_total_bytes: gpu.memory_total_bytes,
        memory_used_bytes: gpu.memory_used_bytes,
        temperature_celsius: gpu.temperature_celsius,
        power_watts: gpu.power_watts,
        alpha: None,
        xid: gpu.xid,
        parts,
        processes: gpu.processes.clone(),
        accounts: gpu.accounts.clone(),
        backends: device.map(|device| device.backends.clone()),
        facts: device.map(facts).unwrap_or_default(),
    }
}

/// Without a daemon that can be seen, several processes in exclusive mode still mean MPS.
fn sharing(device: Option<&Device>, gpu: &GpuSample, mps: bool, held: &[&Held]) -> Sharing {
    let kind = held.iter().find_map(|held| held.share.sharing());
    let mode = device.map(|device| device.compute_mode).unwrap_or_default();
    let several = parts::distinct(gpu.processes.iter()).len() > 1;
    if let (false, None | Some(false), Some(kind)) = (gpu.lost, gpu.mig_enabled, kind) {
        return granted(kind);
    }
    match (gpu.lost, gpu.mig_enabled, mode, gpu.processes.len()) {
        (true, ..) => Sharing::Lost,
        (false, Some(true), ..) => Sharing::Mig,
        (false, ..) if mps => Sharing::Mps,
        (false, _, ComputeMode::ExclusiveProcess, 2..) => Sharing::Mps,
        (false, _, ComputeMode::ExclusiveProcess, _) => Sharing::Exclusive,
        (false, _, ComputeMode::Default | ComputeMode::Prohibited, 0) => Sharing::Idle,
        (false, _, ComputeMode::Default | ComputeMode::Prohibited, _) if several => Sharing::Shared,
        (false, _, ComputeMode::Default | ComputeMode::Prohibited, _) => Sharing::Single,
    }
}

/// The mode of a GPU on which a share of this kind has been granted.
pub(super) fn granted(kind: SharingKind) -> Sharing {
    match kind {
        SharingKind::Exclusive => Sharing::Exclusive,
        SharingKind::TimeSlice => Sharing::TimeSlice,
        SharingKind::Mps => Sharing::Mps,
        SharingKind::Mig => Sharing::Mig,
        SharingKind::MemoryCapped => Sharing::MemoryCapped,
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
        ("kept by the driver", amounts::mib(device.reserved_mib)),
    ]
}
