//! Processes on a device, and how busy each keeps it.

use std::ffi::c_uint;

use fake_machine::{Code, Gpu, Process, ProcessKind};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_v1_t, nvmlProcessInfo_t,
    nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlProcessUtilizationInfo_v1_t,
    nvmlProcessUtilizationSample_t, nvmlProcessesUtilizationInfo_v1_t,
};

use crate::calls::{Call, PERIOD_US, now_us, nvml};
use crate::handles::Device;
use crate::memory::MIB;
use crate::pointers::{check_version, put, put_all, put_list, with};

/// What stands for no instance (`0xFFFFFFFF` in NVML).
const NO_INSTANCE: u32 = u32::MAX;

/// The processes of one kind that a device shows, in order of pid.
fn listed(
    call: &Call,
    device: nvmlDevice_t,
    kind: ProcessKind,
) -> Result<Vec<nvmlProcessInfo_v2_t>, Code> {
    let (gpu, instance) = match call.device(device)? {
        Device::Gpu(_, gpu) => {
            call.may_see_all(gpu)?;
            (gpu, None)
        }
        Device::Mig(_, gpu, instance, part) => (gpu, Some((instance.id, part.id))),
    };
    let on = |process: &&Process| {
        process.kind == kind && (instance.is_none() || process.instance == instance)
    };
    let info = |process: &Process| nvmlProcessInfo_v2_t {
        pid: process.pid,
        usedGpuMemory: process.memory_mib * MIB,
        gpuInstanceId: process.instance.map_or(NO_INSTANCE, |(instance, _)| instance),
        computeInstanceId: process.instance.map_or(NO_INSTANCE, |(_, part)| part),
    };
    let mut infos: Vec<_> = gpu.shown().filter(on).map(info).collect();
    infos.sort_by_key(|info| info.pid);
    Ok(infos)
}

/// The list as its first version wrote it.
fn shortened(infos: Vec<nvmlProcessInfo_v2_t>) -> Vec<nvmlProcessInfo_v1_t> {
    let short = |info: nvmlProcessInfo_v2_t| nvmlProcessInfo_v1_t {
        pid: info.pid,
        usedGpuMemory: info.usedGpuMemory,
    };
    infos.into_iter().map(short).collect()
}

/// The three versions of the list of one kind; the second and third have the same layout.
macro_rules! lists {
    ($($kind:ident: $v1:ident $v2:ident $v3:ident)*) => {nvml! {$(
        fn $v1(device: nvmlDevice_t, count: *mut c_uint, to: *mut nvmlProcessInfo_v1_t) |call| {
            put_list(to, count, shortened(listed(call, device, ProcessKind::$kind)?))
        }
        fn $v2(device: nvmlDevice_t, count: *mut c_uint, to: *mut nvmlProcessInfo_v2_t) |call| {
            put_list(to, count, listed(call, device, ProcessKind::$kind)?)
        }
        fn $v3(device: nvmlDevice_t, count: *mut c_uint, to: *mut nvmlProcessInfo_t) |call| {
            put_list(to.cast(), count, listed(call, device, ProcessKind::$kind)?)
        }
    )*}};
}

lists! {
    Compute: nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetComputeRunningProcesses_v2
        nvmlDeviceGetComputeRunningProcesses_v3
    Graphics: nvmlDeviceGetGraphicsRunningProcesses nvmlDeviceGetGraphicsRunningProcesses_v2
        nvmlDeviceGetGraphicsRunningProcesses_v3
    Mps: nvmlDeviceGetMPSComputeRunningProcesses nvmlDeviceGetMPSComputeRunningProcesses_v2
        nvmlDeviceGetMPSComputeRunningProcesses_v3
}

/// Processes with a use in the last period, and when that ended, in µs since 1970; nobody if the caller
/// has seen that period. MIG mode has none.
fn busy(call: &Call, device: nvmlDevice_t, seen_us: u64) -> Result<(Vec<Process>, u64), Code> {
    let (_, gpu): (_, &Gpu) = call.gpu(device)?;
    if gpu.mig.current {
        return Err(Code::NotSupported);
    }
    let ended_us = now_us() / u64::from(PERIOD_US) * u64::from(PERIOD_US);
    let told = |process: &&Process| process.sm_percent > 0 && ended_us > seen_us;
    Ok((gpu.shown().filter(told).cloned().collect(), ended_us))
}

nvml! {
    fn nvmlDeviceGetRunningProcessDetailList(
        device: nvmlDevice_t, to: *mut nvmlProcessDetailList_v1_t
    ) |call| {
        with(to, |list| {
            check_version::<nvmlProcessDetailList_v1_t>(list.version, 1)?;
            let kind = match list.mode {
                0 => ProcessKind::Compute,
                1 => ProcessKind::Graphics,
                2 => ProcessKind::Mps,
                _ => return Err(Code::InvalidArgument),
            };
            let detail = |info: nvmlProcessInfo_v2_t| nvmlProcessDetail_v1_t {
                pid: info.pid,
                usedGpuMemory: info.usedGpuMemory,
                gpuInstanceId: info.gpuInstanceId,
                computeInstanceId: info.computeInstanceId,
                usedGpuCcProtectedMemory: 0,
            };
            let details = listed(call, device, kind)?.into_iter().map(detail).collect();
            put_list(list.procArray, &raw mut list.numProcArrayEntries, details)
        })
    }

    fn nvmlDeviceGetProcessUtilization(
        device: nvmlDevice_t,
        to: *mut nvmlProcessUtilizationSample_t,
        count: *mut c_uint,
        seen_us: u64,
    ) |call| {
        let memory = call.gpu(device)?.1.load.memory_percent;
        let (processes, ended_us) = busy(call, device, seen_us)?;
        let sample = |process: Process| nvmlProcessUtilizationSample_t {
            pid: process.pid,
            timeStamp: ended_us,
            smUtil: process.sm_percent,
            memUtil: memory,
            encUtil: 0,
            decUtil: 0,
        };
        let samples: Vec<_> = processes.into_iter().map(sample).collect();
        if samples.is_empty() {
            put(count, 0)?;
            return Err(Code::NotFound);
        }
        // A null array asks how many there may be; the answer is "too small" with the count.
        if to.is_null() {
            put(count, samples.len() as c_uint)?;
            return Err(Code::InsufficientSize);
        }
        put_list(to, count, samples)
    }

    fn nvmlDeviceGetProcessesUtilizationInfo(
        device: nvmlDevice_t, to: *mut nvmlProcessesUtilizationInfo_v1_t
    ) |call| {
        let memory = call.gpu(device)?.1.load.memory_percent;
        with(to, |info| {
            check_version::<nvmlProcessesUtilizationInfo_v1_t>(info.version, 1)?;
            let (processes, ended_us) = busy(call, device, info.lastSeenTimeStamp)?;
            let room = info.processSamplesCount as usize;
            info.processSamplesCount = processes.len() as c_uint;
            if processes.is_empty() {
                return Err(Code::NotFound);
            }
            if info.procUtilArray.is_null() || room < processes.len() {
                return Err(Code::InsufficientSize);
            }
            let sample = |process: Process| nvmlProcessUtilizationInfo_v1_t {
                timeStamp: ended_us,
                pid: process.pid,
                smUtil: process.sm_percent,
                memUtil: memory,
                encUtil: 0,
                decUtil: 0,
                jpgUtil: 0,
                ofaUtil: 0,
            };
            put_all(info.procUtilArray, processes.into_iter().map(sample).collect())
        })
    }
}
