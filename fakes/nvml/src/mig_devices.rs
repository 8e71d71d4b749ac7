//! MIG mode and MIG devices.

use std::ffi::c_uint;

use fake_machine::Code;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use crate::calls::nvml;
use crate::handles::{self, Device};
use crate::pointers::put;

nvml! {
    fn nvmlDeviceGetMigMode(
        device: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        if gpu.facts()?.mig_devices_max == 0 {
            return Err(Code::NotSupported);
        }
        put(current, gpu.mig.current.into())?;
        put(pending, gpu.mig.pending.into())
    }

    fn nvmlDeviceSetMigMode(
        device: nvmlDevice_t, mode: c_uint, activation: *mut nvmlReturn_t
    ) |call| {
        let (index, _) = call.gpu(device)?;
        if mode > 1 || activation.is_null() {
            return Err(Code::InvalidArgument);
        }
        let obstacle = call.privileged(|state| state.gpu_mut(index)?.set_mig(mode == 1))?;
        put(activation, obstacle.map_or(0, |code| code as nvmlReturn_t))
    }

    fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint) |call| {
        put(count, call.gpu(device)?.1.facts()?.mig_devices_max)
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(
        device: nvmlDevice_t, at: c_uint, mig_device: *mut nvmlDevice_t
    ) |call| {
        let (index, gpu) = call.gpu(device)?;
        match gpu.facts()?.mig_devices_max {
            0 => return Err(Code::NotSupported),
            most if at >= most => return Err(Code::InvalidArgument),
            _ => {}
        }
        let devices = gpu.mig_devices();
        let (_, part) = devices.get(at as usize).ok_or(Code::NotFound)?;
        put(mig_device, handles::of_mig_device(index, part))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
        mig_device: nvmlDevice_t, device: *mut nvmlDevice_t
    ) |call| {
        match call.device(mig_device)? {
            Device::Mig(index, ..) => put(device, handles::of_gpu(index)),
            Device::Gpu(..) => Err(Code::InvalidArgument),
        }
    }

    fn nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, is_mig: *mut c_uint) |call| {
        put(is_mig, matches!(call.device(device)?, Device::Mig(..)).into())
    }

    fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint) |call| {
        match call.device(device)? {
            Device::Mig(_, _, instance, _) => put(id, instance.id),
            Device::Gpu(..) => Err(Code::NotSupported),
        }
    }

    fn nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, id: *mut c_uint) |call| {
        match call.device(device)? {
            Device::Mig(.., part) => put(id, part.id),
            Device::Gpu(..) => Err(Code::NotSupported),
        }
    }
}
