//! Limits of device memory on a cgroup; newer than the bindings, so the structs stand here.

use std::ffi::c_char;
use std::fs;

use fake_machine::{Code, Gpu, MemoryLimit};
use nvml_wrapper_sys::bindings::nvmlDevice_t;

use crate::calls::{Call, nvml};
use crate::memory::MIB;
use crate::pointers::{get_text, with};

/// What a limit is set to.
#[repr(C)]
pub(crate) struct nvmlSetMemoryLimits_v1_t {
    pub(crate) nameSpace: *const c_char,
    pub(crate) softLimit: u64,
    pub(crate) hardLimit: u64,
}

/// What a limit is.
#[repr(C)]
pub(crate) struct nvmlGetMemoryLimits_v1_t {
    pub(crate) nameSpace: *const c_char,
    pub(crate) softLimit: u64,
    pub(crate) hardLimit: u64,
    pub(crate) currentUsed: u64,
}

/// The cgroup's folder, which must be there.
fn cgroup(name: *const c_char) -> Result<String, Code> {
    let folder = get_text(name)?;
    let is_folder = fs::metadata(&folder).is_ok_and(|found| found.is_dir());
    if is_folder { Ok(folder) } else { Err(Code::OperatingSystem) }
}

fn supported(call: &Call, device: nvmlDevice_t) -> Result<(u32, &Gpu), Code> {
    let found = call.gpu(device)?;
    if call.state.memory_limits { Ok(found) } else { Err(Code::NotSupported) }
}

fn check(gpu: &Gpu, soft: u64, hard: u64) -> Result<(), Code> {
    let total = gpu.facts()?.memory_mib().0 * MIB;
    let too_large = |limit| limit > total && limit != MemoryLimit::NONE;
    if soft > hard || too_large(soft) || too_large(hard) {
        return Err(Code::InvalidArgument);
    }
    Ok(())
}

nvml! {
    fn nvmlDeviceSetMemoryLimits_v1(
        device: nvmlDevice_t, limits: *mut nvmlSetMemoryLimits_v1_t
    ) |call| {
        let (index, gpu) = supported(call, device)?;
        with(limits, |limits| {
            call.needs_privilege()?;
            let cgroup = cgroup(limits.nameSpace)?;
            check(gpu, limits.softLimit, limits.hardLimit)?;
            let limit = MemoryLimit {
                cgroup,
                soft_bytes: limits.softLimit,
                hard_bytes: limits.hardLimit,
            };
            call.edit(|state| {
                let limits = &mut state.gpu_mut(index)?.memory_limits;
                limits.retain(|other| other.cgroup != limit.cgroup);
                if limit.soft_bytes > 0 || limit.hard_bytes != MemoryLimit::NONE {
                    limits.push(limit);
                }
                Ok(())
            })?;
            // The limit holds for every allocation after this call.
            call.wait_until_seen();
            Ok(())
        })
    }

    fn nvmlDeviceGetMemoryLimits_v1(
        device: nvmlDevice_t, limits: *mut nvmlGetMemoryLimits_v1_t
    ) |call| {
        let (_, gpu) = supported(call, device)?;
        with(limits, |limits| {
            let cgroup = cgroup(limits.nameSpace)?;
            let mut all = gpu.memory_limits.iter();
            let limit = all.find(|limit| limit.cgroup == cgroup).ok_or(Code::NotFound)?;
            limits.softLimit = limit.soft_bytes;
            limits.hardLimit = limit.hard_bytes;
            limits.currentUsed = gpu.used_mib_by(&limit.pids()) * MIB;
            Ok(())
        })
    }
}
