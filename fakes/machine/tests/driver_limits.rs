//! Memory limits on cgroups and finer counters, over the C interface.
#![allow(unsafe_code, reason = "calls a C library; pointers are good for the call")]

mod loaded;

use std::ffi::{CString, c_char, c_uint};
use std::fs;
use std::time::Duration;

use fake_machine::Process;
use loaded::{Loaded, alone};
use nvml_wrapper_sys::bindings::*;

/// `nvmlSetMemoryLimits_v1_t` and the start of `nvmlGetMemoryLimits_v1_t`, as the header has them.
#[repr(C)]
struct Limits {
    name_space: *const c_char,
    soft: u64,
    hard: u64,
    used: u64,
}

type Call = unsafe extern "C" fn(nvmlDevice_t, *mut Limits) -> nvmlReturn_t;

/// The two functions, which the bindings lack: set and get.
fn functions(on: &Loaded) -> (Call, Call) {
    let named = |name: &[u8]| {
        let found = unsafe { on.nvml.__library.get::<Call>(name) };
        *found.expect("the fake has what the newest header has")
    };
    (named(b"nvmlDeviceSetMemoryLimits_v1\0"), named(b"nvmlDeviceGetMemoryLimits_v1\0"))
}

#[test]
fn a_limit_holds_for_its_cgroup_until_it_is_lifted_or_the_cgroup_goes() {
    let test = "a_limit_holds_for_its_cgroup_until_it_is_lifted_or_the_cgroup_goes";
    let Some(on) = alone(test, "h100-80gb:2") else { return };
    let (set, get) = functions(&on);
    let cgroup = on.machine.folder().join("cgroup/tenant");
    fs::create_dir_all(cgroup.join("below")).unwrap();
    fs::write(cgroup.join("below/cgroup.procs"), "41\n42\n").unwrap();
    for pid in [41, 43] {
        let process = Process::compute(pid, 100).phantom();
        on.set(|state| state.gpus[0].add(process));
    }
    std::thread::sleep(Duration::from_millis(2));
    let name = CString::new(cgroup.to_str().unwrap()).unwrap();
    let limits = |soft, hard| Limits { name_space: name.as_ptr(), soft, hard, used: 0 };
    let (gpu, other) = (on.gpu(0), on.gpu(1));
    let mut read = limits(9, 9);
    unsafe {
        assert_eq!(get(gpu, &raw mut read), 6, "none yet");
        assert_eq!(set(gpu, &mut limits(2, 1)), 2, "soft above hard");
        assert_eq!(set(gpu, &mut limits(0, 1 << 40)), 2, "more than there is");
        assert_eq!(set(gpu, &mut limits(1 << 20, 4 << 30)), 0);
        assert_eq!(get(gpu, &raw mut read), 0);
        assert_eq!((read.soft, read.hard, read.used), (1 << 20, 4 << 30, 100 << 20));
        assert_eq!(get(other, &raw mut read), 6, "the other GPU has none");
        assert_eq!(set(gpu, &mut limits(0, u64::MAX)), 0, "lifted");
        assert_eq!(get(gpu, &raw mut read), 6);
        assert_eq!(set(gpu, &mut limits(0, 4 << 30)), 0);
        fs::remove_dir_all(&cgroup).unwrap();
        assert_eq!(get(gpu, &raw mut read), 17, "no such cgroup");
        fs::create_dir(&cgroup).unwrap();
        on.set(|_| {});
        fs::remove_dir_all(&cgroup).unwrap();
        on.set(|_| {});
    }
    assert!(on.machine.read().gpus[0].memory_limits.is_empty(), "gone with its cgroup");
}

#[test]
fn limits_need_privilege_a_new_driver_and_a_physical_gpu() {
    let test = "limits_need_privilege_a_new_driver_and_a_physical_gpu";
    let Some(on) = alone(test, "a100-80gb") else { return };
    let (set, _) = functions(&on);
    let folder = CString::new(on.machine.folder().to_str().unwrap()).unwrap();
    let mut limits = Limits { name_space: folder.as_ptr(), soft: 0, hard: 1 << 30, used: 0 };
    let limits = &raw mut limits;
    let gpu = on.gpu(0);
    let made = on.machine.edit(|state| {
        state.gpu_mut(0)?.set_mig(true)?;
        let instance = state.create_instance(0, 19, None)?;
        state.create_compute(0, instance, 0, None)
    });
    made.unwrap();
    std::thread::sleep(Duration::from_millis(2));
    let mut device = std::ptr::null_mut();
    unsafe {
        assert_eq!(on.nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, &raw mut device), 0);
        assert_eq!(set(device, limits), 3, "a MIG device");
        assert_eq!(set(gpu, std::ptr::null_mut()), 2);
        on.set(|state| state.unprivileged = true);
        assert_eq!(set(gpu, limits), 4);
        on.set(|state| state.memory_limits = false);
        assert_eq!(set(gpu, limits), 3, "an old driver");
    }
}

#[test]
fn finer_counters_are_averages_of_two_samples_and_follow_the_instance() {
    let test = "finer_counters_are_averages_of_two_samples_and_follow_the_instance";
    let Some(on) = alone(test, "h100-80gb,a100-80gb") else { return };
    let gpu = on.gpu(0);
    let instance = on.machine.edit(|state| {
        state.gpu_mut(0)?.set_mig(true)?;
        let instance = state.create_instance(0, 19, None)?;
        let part = state.create_compute(0, instance, 0, None)?;
        let gpu = state.gpu_mut(0)?;
        gpu.add(Process::compute(1, 10).busy(20).on(instance, part).phantom());
        gpu.load.sm_percent = Some(70);
        Ok(instance)
    });
    let instance = instance.unwrap();
    std::thread::sleep(Duration::from_millis(2));
    let mut samples: [nvmlGpmSample_t; 4] = [std::ptr::null_mut(); 4];
    for sample in &mut samples {
        assert_eq!(unsafe { on.nvml.nvmlGpmSampleAlloc(sample) }, 0);
    }
    let [one, two, three, four] = samples;
    let take = |whole, part| unsafe {
        assert_eq!(on.nvml.nvmlGpmSampleGet(gpu, whole), 0);
        assert_eq!(on.nvml.nvmlGpmMigSampleGet(gpu, instance, part), 0);
    };
    take(one, three);
    on.set(|state| state.gpus[0].load.sm_percent = Some(90));
    take(two, four);
    let get = |first, second, number: c_uint| unsafe {
        let mut asked = std::mem::zeroed::<nvmlGpmMetricsGet_t>();
        (asked.version, asked.numMetrics) = (1, 1);
        (asked.sample1, asked.sample2) = (first, second);
        asked.metrics[0].metricId = number;
        let code = on.nvml.nvmlGpmMetricsGet(&raw mut asked);
        (code, asked.metrics[0].nvmlReturn, asked.metrics[0].value)
    };
    assert_eq!(get(one, two, 2).0, 2, "too soon after one another");
    std::thread::sleep(Duration::from_millis(100));
    take(two, four);
    assert_eq!(get(one, two, 2), (0, 0, 80.0));
    assert_eq!(get(three, four, 2), (0, 0, 20.0));
    assert_eq!(get(one, two, 999), (0, 3, 0.0), "no such metric");
    assert_eq!(get(two, one, 2).0, 2, "in the wrong order");
    unsafe {
        assert_eq!(on.nvml.nvmlGpmSampleGet(on.gpu(1), one), 3, "Ampere has none");
        assert_eq!(on.nvml.nvmlGpmMigSampleGet(gpu, 6, one), 6, "no such instance");
        assert_eq!(on.nvml.nvmlGpmSampleFree(one), 0);
        assert_eq!(on.nvml.nvmlGpmSampleGet(gpu, one), 2, "freed");
    }
}
