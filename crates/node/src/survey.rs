//! Fills the inventory: asks the driver for every GPU. One that does not answer is listed as lost and
//! hides no other.

use nvml_wrapper::Device as Handle;
use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper::enum_wrappers::nv_link::IntDeviceType;
use nvml_wrapper::{cuda_driver_version_major, cuda_driver_version_minor};

use crate::backend::Enforcement;
use crate::compute_mode;
use crate::driver::{Driver, DriverError, Fault};
use crate::inventory::{Device, DriverFacts, Inventory, Link, LostDevice, Mig};
use crate::limiter::Limiter;
use crate::mig;
use crate::model_names::catalogue_name;
use crate::probe::{self, OnAll};

const MIB: u64 = 1 << 20;
/// Most NVLinks of a GPU known (18 since Hopper).
const NVLINKS_MAX: u32 = 18;

impl Driver {
    /// All GPUs of the machine and what can be done with them.
    ///
    /// # Errors
    /// The driver itself does not answer. A single GPU that does not is in [`Inventory::lost`].
    pub fn inventory(&self) -> Result<Inventory, DriverError> {
        self.inventory_with(Limiter::probe(None))
    }

    /// The same for who knows already whether the limiter can be had: to find out starts a program.
    pub(crate) fn inventory_with(&self, limiter: Enforcement) -> Result<Inventory, DriverError> {
        let mut inventory =
            Inventory { driver: self.facts()?, devices: Vec::new(), lost: Vec::new() };
        let count = self.nvml().device_count().map_err(DriverError::of("nvmlDeviceGetCount_v2"))?;
        let on_all = OnAll::find(limiter);
        let mut before: Vec<Reached<'_>> = Vec::new();
        for index in 0..count {
            match self.survey(index, &before, &on_all) {
                Ok((device, reached)) => {
                    inventory.devices.push(device);
                    before.push(reached);
                }
                Err((uuid, error)) => {
                    inventory.lost.push(LostDevice { index, uuid, why: error.to_string() });
                }
            }
        }
        Ok(inventory)
    }

    /// Versions of driver, NVML and CUDA.
    ///
    /// # Errors
    /// The driver does not answer.
    pub fn facts(&self) -> Result<DriverFacts, DriverError> {
        let nvml = self.nvml();
        let cuda = nvml.sys_cuda_driver_version();
        let cuda = cuda.map_err(DriverError::of("nvmlSystemGetCudaDriverVersion_v2"))?;
        let part = |number: i32| u32::try_from(number).unwrap_or(0);
        Ok(DriverFacts {
            driver: nvml
                .sys_driver_version()
                .map_err(DriverError::of("nvmlSystemGetDriverVersion"))?,
            nvml: nvml.sys_nvml_version().map_err(DriverError::of("nvmlSystemGetNVMLVersion"))?,
            cuda: (part(cuda_driver_version_major(cuda)), part(cuda_driver_version_minor(cuda))),
        })
    }

    fn survey<'a>(
        &'a self,
        index: u32,
        before: &[Reached<'a>],
        on_all: &OnAll,
    ) -> Result<(Device, Reached<'a>), (Option<String>, DriverError)> {
        let name = format!("GPU {index}");
        let unnamed = |error: DriverError| (None, error.on(&name));
        let call = DriverError::of("nvmlDeviceGetHandleByIndex_v2");
        let handle = self.nvml().device_by_index(index).map_err(call).map_err(unnamed)?;
        let uuid = handle.uuid().map_err(DriverError::of("nvmlDeviceGetUUID")).map_err(unnamed)?;
        let named = |error: DriverError| (Some(uuid.clone()), error.on(&uuid));
        let reached = Reached::new(index, handle).map_err(named)?;
        let device = self.describe(&uuid, &reached, before, on_all).map_err(named)?;
        Ok((device, reached))
    }

    fn describe(
        &self,
        uuid: &str,
        reached: &Reached<'_>,
        before: &[Reached<'_>],
        on_all: &OnAll,
    ) -> Result<Device, DriverError> {
        let handle = &reached.handle;
        let product = handle.name().map_err(DriverError::of("nvmlDeviceGetName"))?;
        let (memory_mib, reserved_mib) = memory(handle)?;
        let capability = handle.cuda_compute_capability();
        let capability =
            capability.map_err(DriverError::of("nvmlDeviceGetCudaComputeCapability"))?;
        let part = |number: i32| u32::try_from(number).unwrap_or(0);
        let compute_capability = (part(capability.major), part(capability.minor));
        let (mig, mig_backend) = self.mig(uuid)?;
        Ok(Device {
            index: reached.index,
            minor: handle.minor_number().ok(),
            uuid: uuid.to_owned(),
            pci_bus_id: reached.bus_id.clone(),
            model: catalogue_name(&product, memory_mib),
            product,
            memory_mib,
            reserved_mib,
            compute_capability,
            compute_mode: compute_mode::read(handle)?.unwrap_or_default(),
            numa_node: handle.numa_node_id().ok(),
            mig,
            backends: probe::backends(self, uuid, mig_backend, compute_capability, on_all),
            links: before.iter().map(|other| reached.link_to(other)).collect(),
        })
    }

    /// MIG, and whether hotpot may use it. Reading placements wants root, and a machine without it
    /// must still be seen.
    fn mig(&self, uuid: &str) -> Result<(Option<Mig>, Enforcement), DriverError> {
        let absent = |why: &str| Enforcement::Absent(why.to_owned());
        match mig::read(self, uuid) {
            Ok(None) => Ok((None, absent("this GPU has no MIG"))),
            Ok(Some(mig)) if mig.geometry.profiles.is_empty() => {
                Ok((Some(mig), absent("the driver lists no MIG profiles for this GPU")))
            }
            Ok(Some(mig)) => {
                let enforcement = probe::mig(&mig);
                Ok((Some(mig), enforcement))
            }
            Err(error) if error.is(&Fault::NoPermission) => {
                let mode = mig::mode(self, uuid)?;
                let mig = mode.map(|(enabled, pending)| Mig::unread(enabled, pending));
                Ok((mig, absent("reading and changing MIG instances needs root")))
            }
            Err(error) if error.is(&Fault::TooOld) => {
                Ok((None, Enforcement::Absent(format!("no MIG calls in this driver: {error}"))))
            }
            Err(error) => Err(error),
        }
    }
}

/// Device memory, all and reserved, in MiB; 0 where the driver does not say: for GPUs that share the
/// machine's memory, and in MIG mode for anybody but root.
fn memory(handle: &Handle<'_>) -> Result<(u64, u64), DriverError> {
    let info = handle.memory_info().map_err(DriverError::of("nvmlDeviceGetMemoryInfo_v2"));
    let info = match info {
        Err(error) if error.is(&Fault::NotSupported) || error.is(&Fault::NoPermission) => {
            return Ok((0, 0));
        }
        other => other?,
    };
    Ok((info.total / MIB, info.reserved.div_ceil(MIB)))
}

/// A GPU that answers, and where its links go.
struct Reached<'a> {
    index: u32,
    handle: Handle<'a>,
    bus_id: String,
    remotes: Vec<String>,
    to_switch: bool,
}

impl<'a> Reached<'a> {
    fn new(index: u32, handle: Handle<'a>) -> Result<Self, DriverError> {
        let pci = handle.pci_info().map_err(DriverError::of("nvmlDeviceGetPciInfo_v3"))?;
        let remotes = Vec::new();
        let mut found = Self { index, handle, bus_id: pci.bus_id, remotes, to_switch: false };
        for number in 0..NVLINKS_MAX {
            let link = found.handle.link_wrapper_for(number);
            // The first number that the GPU does not have ends the list.
            let Ok(active) = link.is_active() else { break };
            if !active {
                continue;
            }
            let to_switch = link.remote_device_type(number).ok() == Some(IntDeviceType::Switch);
            let remote = link.remote_pci_info().ok().map(|remote| remote.bus_id);
            found.to_switch |= to_switch;
            found.remotes.extend(remote);
        }
        Ok(found)
    }

    fn link_to(&self, other: &Self) -> Link {
        if self.remotes.contains(&other.bus_id) || (self.to_switch && other.to_switch) {
            return Link::NvLink;
        }
        // The wrapper takes the other device by value; a handle found anew is the same one.
        let again = self.handle.nvml().device_by_index(other.index);
        match again.and_then(|again| self.handle.topology_common_ancestor(again)) {
            Ok(TopologyLevel::Internal) => Link::Internal,
            Ok(TopologyLevel::Single) => Link::Single,
            Ok(TopologyLevel::Multiple) => Link::Multiple,
            Ok(TopologyLevel::HostBridge) => Link::HostBridge,
            Ok(TopologyLevel::Node) => Link::Node,
            Ok(TopologyLevel::System) => Link::System,
            Err(_) => Link::Unknown,
        }
    }
}
