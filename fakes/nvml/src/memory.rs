//! Memory of GPUs and of MIG devices.

use fake_machine::Code;
use nvml_wrapper_sys::bindings::{nvmlBAR1Memory_t, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t};

use crate::calls::{Call, nvml};
use crate::handles::Device;
use crate::pointers::{check_version, put, with};

/// Bytes of a MiB.
pub(crate) const MIB: u64 = 1 << 20;

/// All memory of a device, what the driver keeps of it, and what processes use, in bytes.
fn memory(call: &Call, device: nvmlDevice_t) -> Result<(u64, u64, u64), Code> {
    let (total, reserved, used) = match call.device(device)? {
        Device::Gpu(_, gpu) => {
            call.may_see_all(gpu)?;
            let (total, reserved) = gpu.facts()?.memory_mib();
            (total, reserved, gpu.used_mib(None))
        }
        Device::Mig(_, gpu, instance, _) => {
            let total = gpu.profile(instance.profile_id)?.memory_mib;
            (total, 0, gpu.used_mib(Some(instance.id)))
        }
    };
    Ok((total * MIB, reserved * MIB, used.min(total - reserved) * MIB))
}

nvml! {
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, to: *mut nvmlMemory_t) |call| {
        let (total, reserved, used) = memory(call, device)?;
        // This version counts what the driver keeps as used.
        let used = used + reserved;
        put(to, nvmlMemory_t { total, free: total - used, used })
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, to: *mut nvmlMemory_v2_t) |call| {
        let (total, reserved, used) = memory(call, device)?;
        with(to, |info| {
            check_version::<nvmlMemory_v2_t>(info.version, 2)?;
            (info.total, info.reserved, info.used) = (total, reserved, used);
            info.free = total - reserved - used;
            Ok(())
        })
    }

    fn nvmlDeviceGetBAR1MemoryInfo(device: nvmlDevice_t, to: *mut nvmlBAR1Memory_t) |call| {
        let (total, ..) = memory(call, device)?;
        let total = total.next_power_of_two();
        put(to, nvmlBAR1Memory_t { bar1Total: total, bar1Free: total - MIB, bar1Used: MIB })
    }
}
