//! What was measured on a machine's GPUs at one moment. What the driver does not tell stays `None`
//! and is never made up.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::account::{Account, Counts};
use crate::tenant::Tenant;

/// One round of measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// When, in ms since 1970.
    pub at_ms: u64,
    /// GPUs in the driver's order. One that has been lost is here with `lost` set.
    pub gpus: Vec<GpuSample>,
}

/// One physical GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuSample {
    /// Position in the driver's order.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// The driver no longer reaches it.
    pub lost: bool,
    /// Device memory, all of it.
    pub memory_total_bytes: Option<u64>,
    /// Device memory in use, without what the driver keeps.
    pub memory_used_bytes: Option<u64>,
    /// Device memory that the driver keeps.
    pub memory_reserved_bytes: Option<u64>,
    /// Part of the last sampling period in which a kernel ran, 0 to 1; MIG mode has none.
    pub busy_ratio: Option<f64>,
    /// Part of that period in which device memory was read or written, 0 to 1.
    pub memory_busy_ratio: Option<f64>,
    /// Encoder use, 0 to 1.
    pub encoder_ratio: Option<f64>,
    /// Decoder use, 0 to 1.
    pub decoder_ratio: Option<f64>,
    /// Temperature of the chip.
    pub temperature_celsius: Option<f64>,
    /// Temperature of the memory.
    pub memory_temperature_celsius: Option<f64>,
    /// Power drawn.
    pub power_watts: Option<f64>,
    /// Energy since the driver was loaded.
    pub energy_joules: Option<f64>,
    /// SM clock.
    pub sm_clock_hertz: Option<f64>,
    /// Memory clock.
    pub memory_clock_hertz: Option<f64>,
    /// PCIe replays since the driver was loaded.
    pub pcie_replays: Option<u64>,
    /// Remapped rows after correctable and uncorrectable errors.
    pub remapped_rows: Option<(u64, u64)>,
    /// Code of the last Xid event that was seen while measuring; 0 for none yet.
    pub xid: Option<u64>,
    /// How often each Xid code was seen while measuring; `None` where the driver tells of none.
    pub xid_counts: Option<BTreeMap<u64, u64>>,
    /// Whether MIG mode is on; `None` where the GPU cannot do MIG.
    pub mig_enabled: Option<bool>,
    /// Finer counters where the hardware has them (Hopper and newer).
    pub profile: Option<ProfileCounters>,
    /// MIG devices in the driver's order.
    pub instances: Vec<InstanceSample>,
    /// Whether the driver told which processes there are: without, `processes` says nothing.
    pub processes_listed: bool,
    /// Processes on it, MIG instances included.
    pub processes: Vec<ProcessSample>,
    /// Accounts of tasks that the limiter holds.
    pub accounts: Vec<AccountSample>,
    /// What ended tasks of runs that are going on had booked, by run.
    pub ended: BTreeMap<String, Counts>,
}

/// Parts of a period in which units were active, 0 to 1 (NVML GPM).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProfileCounters {
    /// Graphics or compute engine.
    pub engine_ratio: Option<f64>,
    /// Multiprocessors with a warp.
    pub sm_ratio: Option<f64>,
    /// Warps of those possible.
    pub occupancy_ratio: Option<f64>,
    /// Tensor cores.
    pub tensor_ratio: Option<f64>,
    /// Memory interface.
    pub dram_ratio: Option<f64>,
}

/// One MIG device: a GPU instance as its tenant sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InstanceSample {
    /// The driver's number of the GPU instance.
    pub gpu_instance: u32,
    /// `MIG-…`.
    pub uuid: String,
    /// Profile name, such as `1g.10gb`.
    pub profile: String,
    /// First memory slice; the driver tells it to the privileged only.
    pub start: Option<u8>,
    /// Device memory of the instance.
    pub memory_total_bytes: Option<u64>,
    /// In use.
    pub memory_used_bytes: Option<u64>,
    /// Finer counters where the hardware has them.
    pub profile_counters: Option<ProfileCounters>,
}

/// One process on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessSample {
    /// The process.
    pub pid: u32,
    /// GPU instance that it is on, in MIG mode.
    pub gpu_instance: Option<u32>,
    /// Device memory that it uses.
    pub memory_bytes: Option<u64>,
    /// Its part of SM time in the last period, 0 to 1. Of an MPS client that the driver does not name
    /// it is not known: what clients use may be booked to their server.
    pub sm_ratio: Option<f64>,
    /// Whose it is.
    pub tenant: Tenant,
}

/// What a task has booked on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccountSample {
    /// The task.
    pub tenant: Tenant,
    /// Its cap of memory; `None` without one.
    pub cap_bytes: Option<u64>,
    /// Its cap of compute, in thousandths of the GPU's time; `None` without one.
    pub compute_milli: Option<u32>,
    /// What its limiter wrote down.
    pub account: Account,
    /// Part of the time since the last round in which it had the GPU; from the second round on.
    pub gpu_ratio: Option<f64>,
    /// Part of the time since the last round in which launches were held back, summed over its processes,
    /// so that it can be above 1; from the second round on.
    pub throttled_ratio: Option<f64>,
}
