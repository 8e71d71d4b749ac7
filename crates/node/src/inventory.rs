//! What GPUs a machine has and how they are divided now: facts, read from the driver.

use model::{MigGeometry, ProfileIndex};
use serde::Serialize;

use crate::backend::Backends;

/// The machine's GPUs at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// The driver.
    pub driver: DriverFacts,
    /// GPUs in the driver's order, which is that of their PCI addresses.
    pub devices: Vec<Device>,
    /// GPUs that the driver counts but cannot reach.
    pub lost: Vec<LostDevice>,
}

/// A GPU that the driver counts but cannot reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostDevice {
    /// Position in the driver's order, from 0.
    pub index: u32,
    /// `GPU-…`, if the driver still says it.
    pub uuid: Option<String>,
    /// What the driver says.
    pub why: String,
}

/// Versions of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DriverFacts {
    /// Driver, such as `580.95.05`.
    pub driver: String,
    /// NVML, such as `13.580.95.05`.
    pub nvml: String,
    /// Newest CUDA that the driver can run: major and minor.
    pub cuda: (u32, u32),
}

/// One physical GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Position in the driver's order, from 0.
    pub index: u32,
    /// Number of its device file `/dev/nvidia…`; `None` where the driver does not say.
    pub minor: Option<u32>,
    /// `GPU-…`; the name by which everything else refers to it.
    pub uuid: String,
    /// Such as `00000000:3B:00.0`.
    pub pci_bus_id: String,
    /// What the driver calls it, such as `NVIDIA A100-SXM4-80GB`.
    pub product: String,
    /// The catalogue's name of the model, such as `a100-80gb`; `None` if the catalogue lacks it.
    pub model: Option<String>,
    /// Device memory, all of it; 0 where the driver does not say.
    pub memory_mib: u64,
    /// What the driver keeps of it.
    pub reserved_mib: u64,
    /// CUDA compute capability: major and minor.
    pub compute_capability: (u32, u32),
    /// Who may make contexts on it.
    pub compute_mode: ComputeMode,
    /// NUMA node that it hangs on, where known.
    pub numa_node: Option<u32>,
    /// MIG, where the GPU can do it.
    pub mig: Option<Mig>,
    /// What holds caps here, probed.
    pub backends: Backends,
    /// How near it is to the GPUs before it in the list, by index.
    pub links: Vec<Link>,
}

/// How near two GPUs are, from near to far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// NVLink between them.
    NvLink,
    /// On one board.
    Internal,
    /// One PCIe switch.
    Single,
    /// Several PCIe switches.
    Multiple,
    /// One host bridge.
    HostBridge,
    /// One NUMA node.
    Node,
    /// Across NUMA nodes.
    System,
    /// The driver does not say.
    Unknown,
}

/// Who may make contexts on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Anybody.
    #[default]
    Default,
    /// Nobody.
    Prohibited,
    /// One process; what an MPS server's GPU should be in.
    ExclusiveProcess,
}

impl ComputeMode {
    /// `default`, `prohibited` or `exclusive-process`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Prohibited => "prohibited",
            Self::ExclusiveProcess => "exclusive-process",
        }
    }

    /// Reads a name; `None` if it is not one of the three.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Default, Self::Prohibited, Self::ExclusiveProcess]
            .into_iter()
            .find(|mode| mode.as_str() == name)
    }
}

/// MIG on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Mig {
    /// Whether MIG mode is on now.
    pub enabled: bool,
    /// Whether it will be on after the next reset.
    pub pending: bool,
    /// Profiles and placements as the driver reports them.
    pub geometry: MigGeometry,
    /// The driver's profile number for each profile of `geometry`, in its order.
    pub profile_ids: Vec<u32>,
    /// Instances there are now, by first memory slice.
    pub instances: Vec<Instance>,
}

impl Mig {
    /// MIG that may be looked at no further: reading instances needs root.
    pub(crate) fn unread(enabled: bool, pending: bool) -> Self {
        let geometry = MigGeometry { compute_slices: 0, memory_slices: 0, profiles: Vec::new() };
        Self { enabled, pending, geometry, profile_ids: Vec::new(), instances: Vec::new() }
    }
}

impl Inventory {
    /// The GPU with a UUID.
    pub fn device(&self, uuid: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.uuid == uuid)
    }
}

/// One GPU instance and the compute instance that fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The driver's number of the GPU instance.
    pub gpu_instance: u32,
    /// The profile, as a position in the geometry.
    pub profile: ProfileIndex,
    /// First memory slice.
    pub start: u8,
    /// The MIG device in it; `None` while it has no compute instance.
    pub device: Option<MigDevice>,
    /// Several compute instances, or one that does not fill it: somebody else has divided it, and
    /// `device` is then `None`.
    pub divided: bool,
    /// Processes on it.
    pub pids: Vec<u32>,
}

/// What a tenant sees of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigDevice {
    /// `MIG-…`.
    pub uuid: String,
    /// The driver's number of the compute instance.
    pub compute_instance: u32,
    /// Device memory.
    pub memory_mib: u64,
}
