//! Compute mode, persistence mode, displays.

use fake_machine::Code;
use nvml_wrapper_sys::bindings::{
    nvmlComputeMode_t, nvmlDevice_t, nvmlDriverModel_t, nvmlEnableState_t,
};

use crate::calls::{Call, also, nvml};
use crate::handles::Device;
use crate::pointers::put;

/// Index and mode of a device that has a compute mode: "If MIG is enabled on a GPU, device must be MIG
/// device handle" (nvml.h, of both functions).
fn computing(call: &Call, device: nvmlDevice_t) -> Result<(u32, nvmlComputeMode_t), Code> {
    match call.device(device)? {
        Device::Gpu(_, gpu) if gpu.mig.current => Err(Code::InvalidArgument),
        Device::Gpu(index, gpu) | Device::Mig(index, gpu, ..) => Ok((index, gpu.compute_mode)),
    }
}

nvml! {
    fn nvmlDeviceGetComputeMode(device: nvmlDevice_t, to: *mut nvmlComputeMode_t) |call| {
        put(to, computing(call, device)?.1)
    }

    fn nvmlDeviceSetComputeMode(device: nvmlDevice_t, mode: nvmlComputeMode_t) |call| {
        let (index, _) = computing(call, device)?;
        match mode {
            0 | 2 | 3 => {}
            // Exclusive thread, which has been gone for long.
            1 => return Err(Code::NotSupported),
            _ => return Err(Code::InvalidArgument),
        }
        call.privileged(|state| {
            state.gpu_mut(index)?.compute_mode = mode;
            Ok(())
        })
    }

    fn nvmlDeviceGetPersistenceMode(device: nvmlDevice_t, to: *mut nvmlEnableState_t) |call| {
        put(to, call.gpu(device)?.1.persistence.into())
    }

    fn nvmlDeviceSetPersistenceMode(device: nvmlDevice_t, mode: nvmlEnableState_t) |call| {
        let (index, _) = call.gpu(device)?;
        if mode > 1 {
            return Err(Code::InvalidArgument);
        }
        call.privileged(|state| {
            state.gpu_mut(index)?.persistence = mode == 1;
            Ok(())
        })
    }

    fn nvmlDeviceGetDisplayActive(device: nvmlDevice_t, to: *mut nvmlEnableState_t) |call| {
        call.gpu(device)?;
        put(to, 0)
    }

    fn nvmlDeviceGetDisplayMode(device: nvmlDevice_t, to: *mut nvmlEnableState_t) |call| {
        call.gpu(device)?;
        put(to, 0)
    }

    fn nvmlDeviceGetDriverModel_v2(
        device: nvmlDevice_t, current: *mut nvmlDriverModel_t, pending: *mut nvmlDriverModel_t
    ) |call| {
        // Only Windows has them.
        call.gpu(device)?;
        if current.is_null() || pending.is_null() {
            return Err(Code::InvalidArgument);
        }
        Err(Code::NotSupported)
    }
}

also! {
    fn nvmlDeviceGetDriverModel(
        device: nvmlDevice_t, current: *mut nvmlDriverModel_t, pending: *mut nvmlDriverModel_t
    ) is nvmlDeviceGetDriverModel_v2;
}
