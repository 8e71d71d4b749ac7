//! Errors of memory and of the PCIe link, and what has slowed a GPU down.

use std::ffi::c_uint;

use fake_machine::{Architecture, Code};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEccCounterType_t, nvmlEnableState_t, nvmlMemoryErrorType_t,
    nvmlMemoryLocation_t, nvmlPageRetirementCause_t, nvmlPerfPolicyType_t, nvmlViolationTime_t,
};

use crate::calls::{Call, now_us, nvml};
use crate::pointers::{put, put_list};

/// Errors of a kind: 0 corrected, 1 not corrected.
fn errors(call: &Call, device: nvmlDevice_t, kind: nvmlMemoryErrorType_t) -> Result<u64, Code> {
    let (_, gpu) = call.gpu(device)?;
    match kind {
        0 => Ok(gpu.ecc.corrected),
        1 => Ok(gpu.ecc.uncorrected),
        _ => Err(Code::InvalidArgument),
    }
}

nvml! {
    fn nvmlDeviceGetEccMode(
        device: nvmlDevice_t, current: *mut nvmlEnableState_t, pending: *mut nvmlEnableState_t
    ) |call| {
        call.gpu(device)?;
        put(current, 1)?;
        put(pending, 1)
    }

    fn nvmlDeviceGetTotalEccErrors(
        device: nvmlDevice_t,
        kind: nvmlMemoryErrorType_t,
        counter: nvmlEccCounterType_t,
        to: *mut u64,
    ) |call| {
        if counter > 1 {
            return Err(Code::InvalidArgument);
        }
        put(to, errors(call, device, kind)?)
    }

    fn nvmlDeviceGetMemoryErrorCounter(
        device: nvmlDevice_t,
        kind: nvmlMemoryErrorType_t,
        counter: nvmlEccCounterType_t,
        location: nvmlMemoryLocation_t,
        to: *mut u64,
    ) |call| {
        let found = errors(call, device, kind)?;
        match (counter, location) {
            // All errors are in device memory.
            (0 | 1, 2) => put(to, found),
            (0 | 1, 0 | 1 | 3..=7) => put(to, 0),
            _ => Err(Code::InvalidArgument),
        }
    }

    fn nvmlDeviceGetRetiredPages_v2(
        device: nvmlDevice_t,
        cause: nvmlPageRetirementCause_t,
        count: *mut c_uint,
        addresses: *mut u64,
        _timestamps: *mut u64,
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        // Ampere and newer remap rows instead.
        if gpu.facts()?.architecture >= Architecture::Ampere {
            return Err(Code::NotSupported);
        }
        if cause > 1 {
            return Err(Code::InvalidArgument);
        }
        put_list(addresses, count, Vec::new())
    }

    fn nvmlDeviceGetRemappedRows(
        device: nvmlDevice_t,
        corrected: *mut c_uint,
        uncorrected: *mut c_uint,
        pending: *mut c_uint,
        failed: *mut c_uint,
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        if gpu.facts()?.architecture < Architecture::Ampere {
            return Err(Code::NotSupported);
        }
        put(corrected, gpu.ecc.remapped_corrected)?;
        put(uncorrected, gpu.ecc.remapped_uncorrected)?;
        put(pending, gpu.ecc.remap_pending.into())?;
        put(failed, gpu.ecc.remap_failed.into())
    }

    fn nvmlDeviceGetPcieReplayCounter(device: nvmlDevice_t, to: *mut c_uint) |call| {
        put(to, call.gpu(device)?.1.pcie_replays)
    }

    fn nvmlDeviceGetViolationStatus(
        device: nvmlDevice_t, policy: nvmlPerfPolicyType_t, to: *mut nvmlViolationTime_t
    ) |call| {
        call.gpu(device)?;
        if !matches!(policy, 0..=5 | 10 | 11) {
            return Err(Code::InvalidArgument);
        }
        put(to, nvmlViolationTime_t { referenceTime: now_us(), violationTime: 0 })
    }
}
