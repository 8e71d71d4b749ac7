//! One simulated GPU: who it is, what it is set to, who is on it, and what its sensors show.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::mig::GpuInstance;
use crate::models::{ModelFacts, facts};
use crate::process::{Process, pids_of_cgroup};

/// MIG mode now and after the next reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigMode {
    /// In force.
    pub current: bool,
    /// In force after the next reset.
    pub pending: bool,
}

/// What sensors show beyond what follows from the processes. `None` means: as the load suggests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Busy SMs, 0 to 100; else the sum over the processes.
    pub sm_percent: Option<u32>,
    /// Busy memory interface, 0 to 100.
    pub memory_percent: u32,
    /// Busy encoder, 0 to 100.
    pub encoder_percent: u32,
    /// Busy decoder, 0 to 100.
    pub decoder_percent: u32,
    /// Busy tensor cores, 0 to 100 (GPM).
    pub tensor_percent: u32,
    /// Warps of those possible, 0 to 100 (GPM).
    pub occupancy_percent: u32,
    /// Chip, in °C.
    pub temperature_c: Option<u32>,
    /// Memory, in °C.
    pub memory_temperature_c: Option<u32>,
    /// Power drawn, in mW.
    pub power_mw: Option<u32>,
    /// SM clock in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// PCIe traffic out and in, in KiB/s.
    pub pcie_kib: (u32, u32),
    /// Bits of `nvmlClocksEventReason…`.
    pub clocks_event_reasons: u64,
}

/// Counters of memory errors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ecc {
    /// Corrected.
    pub corrected: u64,
    /// Not corrected.
    pub uncorrected: u64,
    /// Rows remapped after corrected errors.
    pub remapped_corrected: u32,
    /// Rows remapped after uncorrected errors.
    pub remapped_uncorrected: u32,
    /// A remapping waits for a reset.
    pub remap_pending: bool,
    /// A remapping has failed.
    pub remap_failed: bool,
}

/// A memory limit on a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// The cgroup's folder.
    pub cgroup: String,
    /// Guaranteed, in bytes.
    pub soft_bytes: u64,
    /// Most, in bytes; [`MemoryLimit::NONE`] for none.
    pub hard_bytes: u64,
}

impl MemoryLimit {
    /// Stands for no hard limit (`NVML_DEVICE_MEMORY_LIMIT_MAX`).
    pub const NONE: u64 = u64::MAX;

    /// The processes that it holds for, as the kernel tells now: those of the cgroup and of all below it.
    pub fn pids(&self) -> BTreeSet<u32> {
        pids_of_cgroup(Path::new(&self.cgroup))
    }
}

/// What accounting keeps of a process that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountingRecord {
    /// The process.
    pub pid: u32,
    /// SM use, 0 to 100.
    pub sm_percent: u32,
    /// Most memory in use.
    pub memory_mib: u64,
    /// First seen, in ms since 1970.
    pub since_ms: u64,
    /// How long, in ms; 0 while it runs.
    pub ran_ms: u64,
}

/// One physical GPU. Every field may be set as a test needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// The catalogue's name of the model.
    pub model: String,
    /// `GPU-…`.
    pub uuid: String,
    /// PCI bus number; domain and device are 0.
    pub bus: u32,
    /// NUMA node.
    pub numa_node: u32,
    /// The driver no longer reaches it.
    pub lost: bool,
    /// The machine lets nobody reset it, as with passed-through GPUs: a MIG mode waits for
    /// [`Gpu::reset`].
    pub needs_reset: bool,
    /// Another client of the driver has it open: it is neither reset nor is a MIG mode activated.
    pub blocked_by_client: bool,
    /// MIG mode.
    pub mig: MigMode,
    /// GPU instances in order of creation.
    pub instances: Vec<GpuInstance>,
    /// NVML's compute mode: 0 default, 2 prohibited, 3 exclusive process.
    pub compute_mode: u32,
    /// Persistence mode.
    pub persistence: bool,
    /// Accounting mode.
    pub accounting: bool,
    /// Ended processes, the oldest first.
    pub accounted: Vec<AccountingRecord>,
    /// Processes; use [`Gpu::shown`] to see what the driver shows.
    pub processes: Vec<Process>,
    /// Injected sensor values.
    pub load: Load,
    /// Memory errors.
    pub ecc: Ecc,
    /// PCIe replays.
    pub pcie_replays: u32,
    /// Memory limits on cgroups.
    pub memory_limits: Vec<MemoryLimit>,
    pub(crate) meter: Meter,
}

/// Energy: what was counted up to a moment, and the power since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meter {
    energy_mj: u64,
    at_ms: u64,
    power_mw: u32,
}

/// Ended processes that accounting keeps, as drivers do.
const ACCOUNTED_MAX: usize = 4000;

impl Gpu {
    pub(crate) fn new(model: &str, index: u32, gpus: u32) -> Self {
        let mut gpu = Self {
            model: model.to_string(),
            uuid: format!("GPU-{}", uuid_text(&format!("{model}/{index}"), 4)),
            bus: 0x10 + index,
            // Two sockets, as servers with four GPUs and more have.
            numa_node: u32::from(gpus >= 4 && index >= gpus / 2),
            lost: false,
            needs_reset: false,
            blocked_by_client: false,
            mig: MigMode::default(),
            instances: Vec::new(),
            compute_mode: 0,
            persistence: true,
            accounting: false,
            accounted: Vec::new(),
            processes: Vec::new(),
            load: Load::default(),
            ecc: Ecc::default(),
            pcie_replays: 0,
            memory_limits: Vec::new(),
            meter: Meter::default(),
        };
        gpu.meter.power_mw = gpu.power_mw();
        gpu
    }

    /// What is true of its model.
    ///
    /// # Errors
    /// [`Code::Unknown`] if the state file names a model that is not known.
    pub fn facts(&self) -> Result<&'static ModelFacts, Code> {
        facts(&self.model).ok_or(Code::Unknown)
    }

    /// Such as `00000000:10:00.0`.
    pub fn pci_bus_id(&self) -> String {
        format!("00000000:{:02X}:00.0", self.bus)
    }

    /// Puts a process on it.
    pub fn add(&mut self, process: Process) {
        self.processes.push(process);
    }

    /// The processes that the driver shows.
    pub fn shown(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| process.is_shown())
    }

    /// Device memory that processes use, in MiB; of one GPU instance if one is named.
    pub fn used_mib(&self, instance: Option<u32>) -> u64 {
        let on = |process: &&Process| match (instance, process.instance) {
            (None, _) => true,
            (Some(asked), Some((gpu_instance, _))) => asked == gpu_instance,
            (Some(_), None) => false,
        };
        self.shown().filter(on).map(|process| process.memory_mib).sum()
    }

    /// Device memory in MiB that some of the processes use.
    pub fn used_mib_by(&self, pids: &BTreeSet<u32>) -> u64 {
        let theirs = self.shown().filter(|process| pids.contains(&process.pid));
        theirs.map(|process| process.memory_mib).sum()
    }

    /// Busy SMs, 0 to 100; of one GPU instance if one is named.
    pub fn sm_percent(&self, instance: Option<u32>) -> u32 {
        match (instance, self.load.sm_percent) {
            (None, Some(injected)) => injected.min(100),
            (None, None) => self.shown().map(|process| process.sm_percent).sum::<u32>().min(100),
            (Some(asked), _) => {
                let on = |p: &&Process| p.instance.is_some_and(|(instance, _)| instance == asked);
                self.shown().filter(on).map(|p| p.sm_percent).sum::<u32>().min(100)
            }
        }
    }

    /// Power drawn in mW: injected, or a fifth of the limit when idle and all of it when busy.
    pub fn power_mw(&self) -> u32 {
        let limit = self.facts().map_or(0, |facts| facts.power_w * 1000);
        self.load.power_mw.unwrap_or(limit / 5 + limit / 125 * self.sm_percent(None))
    }

    /// Temperature in °C: injected, or from 30 when idle to 70 when busy.
    pub fn temperature_c(&self) -> u32 {
        self.load.temperature_c.unwrap_or(30 + self.sm_percent(None) * 2 / 5)
    }

    /// SM clock in MHz: injected, or the highest when busy and a seventh of it when idle.
    pub fn sm_clock_mhz(&self) -> u32 {
        let highest = self.facts().map_or(0, |facts| facts.clocks_mhz.0);
        let idle = self.sm_percent(None) == 0;
        self.load.sm_clock_mhz.unwrap_or(if idle { highest / 7 } else { highest })
    }

    /// Energy in mJ since the machine was made; never falls.
    pub fn energy_mj(&self, now_ms: u64) -> u64 {
        let elapsed_ms = now_ms.saturating_sub(self.meter.at_ms);
        self.meter.energy_mj + u64::from(self.meter.power_mw) * elapsed_ms / 1000
    }

    /// What a reset does: pending modes come into force; instances and the compute mode are gone.
    ///
    /// # Errors
    /// [`Code::InUse`] while processes are on it or another client has it open.
    pub fn reset(&mut self) -> Result<(), Code> {
        if self.blocked_by_client || self.shown().next().is_some() {
            return Err(Code::InUse);
        }
        self.start_anew();
        self.lost = false;
        Ok(())
    }

    /// What is left of the settings when the chip starts anew: the header's note on compute mode is
    /// that it does not persist.
    pub(crate) fn start_anew(&mut self) {
        self.instances.clear();
        self.mig.current = self.mig.pending;
        self.compute_mode = 0;
    }

    /// Lets go of what has ended and turns the energy meter on to `now_ms`.
    pub(crate) fn settle(&mut self, now_ms: u64) {
        for process in &mut self.processes {
            if process.since_ms == 0 {
                process.since_ms = now_ms;
            }
        }
        let (shown, ended) =
            std::mem::take(&mut self.processes).into_iter().partition(Process::is_there);
        self.processes = shown;
        let ended: Vec<Process> = ended;
        if self.accounting {
            self.accounted.extend(ended.iter().map(|process| record(process, now_ms)));
            let surplus = self.accounted.len().saturating_sub(ACCOUNTED_MAX);
            self.accounted.drain(..surplus);
        }
        self.memory_limits.retain(|limit| Path::new(&limit.cgroup).is_dir());
        self.meter =
            Meter { energy_mj: self.energy_mj(now_ms), at_ms: now_ms, power_mw: self.power_mw() };
    }

    pub(crate) fn start_meter(&mut self, now_ms: u64) {
        self.meter.at_ms = now_ms;
    }
}

fn record(process: &Process, now_ms: u64) -> AccountingRecord {
    AccountingRecord {
        pid: process.pid,
        sm_percent: process.sm_percent,
        memory_mib: process.memory_mib,
        since_ms: process.since_ms,
        ran_ms: now_ms.saturating_sub(process.since_ms),
    }
}

/// A UUID that follows from a name, so that runs can be repeated; `version` is its version digit.
pub(crate) fn uuid_text(of: &str, version: u8) -> String {
    let mixed = |seed: u64| {
        let start = 0xcbf2_9ce4_8422_2325 ^ seed;
        let hash = of.bytes().fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let (high, low) = (mixed(1), mixed(2));
    format!(
        "{:08x}-{:04x}-{version}{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | ((low >> 48) & 0x3fff),
        low & 0xffff_ffff_ffff
    )
}
