//! NVML shows what processes hold and run on the GPUs.
#![allow(clippy::unwrap_used, reason = "a part of tests")]
#![allow(unsafe_code, reason = "functions of a C library")]

#[path = "../../machine/tests/loaded/mod.rs"]
mod loaded;

use std::time::Duration;

use fake_gpu::{Gpus, MemoryKind, Place, Work};
use fake_machine::{GpuSpec, Machine, Process};
use loaded::{Loaded, alone};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlMemory_t, nvmlProcessInfo_v2_t, nvmlProcessUtilizationSample_t,
    nvmlUtilization_t,
};

const MIB: u64 = 1 << 20;
/// Longer than a copy in the driver may be old, in ms.
const STALE: Duration = Duration::from_millis(15);

fn gpu(index: u32) -> Place {
    Place { gpu: index, instance: None }
}

/// Memory in use in MiB, less what the driver keeps.
fn used_mib(driver: &Loaded, device: nvmlDevice_t) -> u64 {
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: the pointer is good for the call.
    assert_eq!(unsafe { driver.nvml.nvmlDeviceGetMemoryInfo(device, &raw mut memory) }, 0);
    let reserved = driver.machine.read().gpus[0].facts().unwrap().memory_mib().1;
    memory.used / MIB - reserved
}

/// Compute processes, with MiB and GPU instance.
fn processes(driver: &Loaded, device: nvmlDevice_t) -> Vec<(u32, u64, u32)> {
    let mut count = 8;
    let mut list: [nvmlProcessInfo_v2_t; 8] = unsafe_zeros();
    let to = list.as_mut_ptr();
    // SAFETY: the pointers are good for the call.
    let code = unsafe {
        driver.nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, to.cast())
    };
    assert_eq!(code, 0);
    let shown = list.iter().take(count as usize);
    shown.map(|info| (info.pid, info.usedGpuMemory / MIB, info.gpuInstanceId)).collect()
}

fn unsafe_zeros<T>() -> T {
    // SAFETY: used for structs of plain numbers.
    unsafe { std::mem::zeroed() }
}

#[test]
fn memory_that_processes_hold_is_shown_beside_the_states_own() {
    let Some(driver) = alone("memory_that_processes_hold_is_shown_beside_the_states_own", "t4:2")
    else {
        return;
    };
    let device = driver.gpu(0);
    driver.set(|state| state.gpu_mut(0).unwrap().add(Process::compute(7, 100).phantom()));
    assert_eq!(used_mib(&driver, device), 100);
    assert!(!driver.machine.folder().join("gpus").exists(), "looking makes no file");
    let gpus = Gpus::open(&driver.machine).unwrap();
    let claim = gpus.take(gpu(0), MemoryKind::Context, 300 * MIB).unwrap();
    gpus.take(gpu(0), MemoryKind::Plain, 1).unwrap();
    std::thread::sleep(STALE);
    let (me, none) = (std::process::id(), u32::MAX);
    assert_eq!(used_mib(&driver, device), 401, "part of a MiB counts as one");
    assert_eq!(used_mib(&driver, driver.gpu(1)), 0);
    assert_eq!(processes(&driver, device), [(7, 100, none), (me, 301, none)]);
    driver.set(|state| state.gpu_mut(0).unwrap().add(Process::compute(me, 50)));
    assert_eq!(processes(&driver, device), [(7, 100, none), (me, 351, none)]);
    gpus.give(claim);
    std::thread::sleep(STALE);
    assert_eq!(processes(&driver, device), [(7, 100, none), (me, 51, none)]);
    assert_eq!(driver.machine.read().gpus[0].processes.len(), 2, "the state does not keep them");
    Machine::create(driver.machine.folder(), &GpuSpec::list("t4").unwrap()).unwrap();
    std::thread::sleep(STALE);
    assert_eq!(processes(&driver, driver.gpu(0)), [], "another machine");
}

#[test]
fn an_instance_in_use_is_shown_and_not_destroyed() {
    let test = "an_instance_in_use_is_shown_and_not_destroyed";
    let Some(driver) = alone(test, "a100-80gb") else { return };
    let mut id = 0;
    driver.set(|state| {
        state.gpu_mut(0).unwrap().set_mig(true).unwrap();
        id = state.create_instance(0, 19, None).unwrap();
        state.create_compute(0, id, 0, None).unwrap();
    });
    let gpus = Gpus::open(&driver.machine).unwrap();
    let place = Place { gpu: 0, instance: Some((id, 0)) };
    let claim = gpus.take(place, MemoryKind::Plain, 10 * MIB).unwrap();
    std::thread::sleep(STALE);
    assert_eq!(processes(&driver, driver.gpu(0)), [(std::process::id(), 10, id)]);
    let mut instance = std::ptr::null_mut();
    let mut part = std::ptr::null_mut();
    // SAFETY: the pointers are good for the calls.
    unsafe {
        let nvml = &driver.nvml;
        let device = driver.gpu(0);
        assert_eq!(nvml.nvmlDeviceGetGpuInstanceById(device, id, &raw mut instance), 0);
        assert_eq!(nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0, &raw mut part), 0);
        assert_eq!(nvml.nvmlComputeInstanceDestroy(part), 19, "in use");
        gpus.give(claim);
        assert_eq!(nvml.nvmlComputeInstanceDestroy(part), 0);
    }
    assert!(driver.machine.read().gpus[0].processes.is_empty());
}

#[test]
fn gpu_time_is_shown_as_use() {
    let Some(driver) = alone("gpu_time_is_shown_as_use", "t4") else { return };
    let gpus = Gpus::open(&driver.machine).unwrap();
    gpus.set_virtual_ns(Some(0));
    let device = driver.gpu(0);
    gpus.take(gpu(0), MemoryKind::Plain, MIB).unwrap();
    let queue = gpus.queue(gpu(0)).unwrap();
    let percent = || {
        std::thread::sleep(STALE);
        let mut shown = nvmlUtilization_t { gpu: 0, memory: 0 };
        // SAFETY: the pointer is good for the call.
        assert_eq!(unsafe { driver.nvml.nvmlDeviceGetUtilizationRates(device, &raw mut shown) }, 0);
        shown.gpu
    };
    assert_eq!(percent(), 0);
    gpus.submit(queue, Work { ns: 60_000_000, sms: 1 }).unwrap();
    gpus.advance_ns(200_000_000);
    assert_eq!(percent(), 30);
    let (mut count, mut samples) = (4, [unsafe_zeros::<nvmlProcessUtilizationSample_t>(); 4]);
    // SAFETY: the pointers are good for the call.
    let code = unsafe {
        let to = samples.as_mut_ptr();
        driver.nvml.nvmlDeviceGetProcessUtilization(device, to, &raw mut count, 0)
    };
    assert_eq!((code, count), (0, 1));
    assert_eq!((samples[0].pid, samples[0].smUtil), (std::process::id(), 30));
    gpus.advance_ns(200_000_000);
    assert_eq!(percent(), 0);
}
