//! Which GPUs there are and who they are.

use std::ffi::{c_char, c_int, c_uint};

use fake_machine::{Code, Gpu, compute_profiles};
use nvml_wrapper_sys::bindings::{
    nvmlBrandType_t, nvmlDevice_t, nvmlDeviceArchitecture_t, nvmlDeviceAttributes_t, nvmlPciInfo_t,
};

use crate::calls::{Call, also, nvml};
use crate::handles::{self, Device};
use crate::pointers::{chars, get_text, put, put_text};

/// `NVML_BRAND_NVIDIA`
const BRAND: nvmlBrandType_t = 14;

impl Call {
    /// The index of the first GPU that is looked for, if it is not lost.
    fn find(&self, wanted: impl Fn(&Gpu) -> bool) -> Result<u32, Code> {
        let mut indexed = (0u32..).zip(&self.state.gpus);
        let (index, gpu) = indexed.find(|(_, gpu)| wanted(gpu)).ok_or(Code::NotFound)?;
        if gpu.lost { Err(Code::GpuIsLost) } else { Ok(index) }
    }
}

nvml! {
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) |call| {
        put(count, call.state.gpus.len() as c_uint)
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) |call| {
        if call.state.gpu(index)?.lost {
            return Err(Code::GpuIsLost);
        }
        put(device, handles::of_gpu(index))
    }

    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) |call| {
        let uuid = get_text(uuid)?;
        for (index, gpu) in (0u32..).zip(&call.state.gpus) {
            for (_, part) in gpu.mig_devices() {
                if part.uuid == uuid {
                    return put(device, handles::of_mig_device(index, part));
                }
            }
        }
        put(device, handles::of_gpu(call.find(|gpu| gpu.uuid == uuid)?))
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(bus: *const c_char, device: *mut nvmlDevice_t) |call| {
        let asked = get_text(bus)?.to_ascii_uppercase();
        // The domain may be written with 4 or 8 digits.
        let tail = |text: &str| text.split_once(':').map(|(_, rest)| rest.to_string());
        let found = call.find(|gpu| tail(&gpu.pci_bus_id()) == tail(&asked))?;
        put(device, handles::of_gpu(found))
    }

    fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) |call| {
        match call.device(device)? {
            Device::Gpu(at, _) => put(index, at),
            Device::Mig(_, gpu, _, part) => {
                let at = gpu.mig_devices().iter().position(|(_, other)| other.serial == part.serial);
                put(index, at.unwrap_or(0) as c_uint)
            }
        }
    }

    fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint) |call| {
        match call.device(device)? {
            Device::Gpu(_, gpu) => put_text(name, length, gpu.facts()?.product),
            Device::Mig(_, gpu, instance, part) => {
                let profile = gpu.profile(instance.profile_id)?;
                let mut within = compute_profiles(profile).into_iter();
                let within = within.find(|p| p.id == part.profile_id).ok_or(Code::Unknown)?;
                put_text(name, length, &format!("{} MIG {}", gpu.facts()?.product, within.name))
            }
        }
    }

    fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) |call| {
        match call.device(device)? {
            Device::Gpu(_, gpu) => put_text(uuid, length, &gpu.uuid),
            Device::Mig(.., part) => put_text(uuid, length, &part.uuid),
        }
    }

    fn nvmlDeviceGetSerial(device: nvmlDevice_t, serial: *mut c_char, length: c_uint) |call| {
        let (index, _) = call.gpu(device)?;
        put_text(serial, length, &format!("16500210{index:05}"))
    }

    fn nvmlDeviceGetMinorNumber(device: nvmlDevice_t, minor: *mut c_uint) |call| {
        put(minor, call.device(device)?.physical().0)
    }

    fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) |call| {
        let (_, gpu) = call.device(device)?.physical();
        let bus_id = gpu.pci_bus_id();
        put(pci, nvmlPciInfo_t {
            busIdLegacy: chars(bus_id.get(4..).unwrap_or("")),
            domain: 0,
            bus: gpu.bus,
            device: 0,
            pciDeviceId: gpu.facts()?.pci_device,
            pciSubSystemId: gpu.facts()?.pci_device,
            busId: chars(&bus_id),
        })
    }

    fn nvmlDeviceGetBrand(device: nvmlDevice_t, brand: *mut nvmlBrandType_t) |call| {
        call.device(device)?;
        put(brand, BRAND)
    }

    fn nvmlDeviceGetArchitecture(device: nvmlDevice_t, to: *mut nvmlDeviceArchitecture_t) |call| {
        put(to, call.device(device)?.physical().1.facts()?.architecture as c_uint)
    }

    fn nvmlDeviceGetCudaComputeCapability(
        device: nvmlDevice_t, major: *mut c_int, minor: *mut c_int
    ) |call| {
        let capability = call.device(device)?.physical().1.facts()?.capability;
        put(major, capability.0)?;
        put(minor, capability.1)
    }

    fn nvmlDeviceGetNumGpuCores(device: nvmlDevice_t, cores: *mut c_uint) |call| {
        let facts = call.gpu(device)?.1.facts()?;
        put(cores, facts.sms * facts.cores_per_sm)
    }

    fn nvmlDeviceGetMemoryBusWidth(device: nvmlDevice_t, bits: *mut c_uint) |call| {
        put(bits, call.gpu(device)?.1.facts()?.bus_bits)
    }

    fn nvmlDeviceGetBoardId(device: nvmlDevice_t, id: *mut c_uint) |call| {
        put(id, call.gpu(device)?.1.bus << 8)
    }

    fn nvmlDeviceGetBoardPartNumber(device: nvmlDevice_t, to: *mut c_char, length: c_uint) |call| {
        let facts = call.gpu(device)?.1.facts()?;
        put_text(to, length, &format!("900-2{:04X}-0000-000", facts.pci_device >> 16))
    }

    fn nvmlDeviceGetVbiosVersion(device: nvmlDevice_t, to: *mut c_char, length: c_uint) |call| {
        let facts = call.gpu(device)?.1.facts()?;
        put_text(to, length, &format!("{}.00.00.00.01", facts.architecture as u32 + 85))
    }

    fn nvmlDeviceGetAttributes_v2(device: nvmlDevice_t, to: *mut nvmlDeviceAttributes_t) |call| {
        let Device::Mig(_, gpu, instance, part) = call.device(device)? else {
            return Err(Code::NotSupported);
        };
        let profile = gpu.profile(instance.profile_id)?;
        let mut within = compute_profiles(profile).into_iter();
        let within = within.find(|p| p.id == part.profile_id).ok_or(Code::Unknown)?;
        put(to, nvmlDeviceAttributes_t {
            multiprocessorCount: within.sms,
            sharedCopyEngineCount: profile.copiers,
            sharedDecoderCount: profile.decoders,
            sharedEncoderCount: 0,
            sharedJpegCount: profile.jpegs,
            sharedOfaCount: profile.ofas,
            gpuInstanceSliceCount: profile.slices,
            computeInstanceSliceCount: within.slices,
            memorySizeMB: profile.memory_mib,
        })
    }
}

also! {
    fn nvmlDeviceGetCount(count: *mut c_uint) is nvmlDeviceGetCount_v2;
    fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut nvmlDevice_t)
        is nvmlDeviceGetHandleByIndex_v2;
    fn nvmlDeviceGetHandleByPciBusId(bus: *const c_char, device: *mut nvmlDevice_t)
        is nvmlDeviceGetHandleByPciBusId_v2;
    fn nvmlDeviceGetAttributes(device: nvmlDevice_t, to: *mut nvmlDeviceAttributes_t)
        is nvmlDeviceGetAttributes_v2;
}
