//! Rules that NVIDIA's header states in notes: who may ask what of a GPU in MIG mode, what a change of
//! mode leaves, how a lost GPU comes back, how lists grow.
#![allow(unsafe_code, reason = "calls a C library; pointers are good for the call")]

mod loaded;

use std::ffi::c_uint;
use std::ptr::null_mut;
use std::time::{SystemTime, UNIX_EPOCH};

use fake_machine::{Code, Effect, Fault, Process, ProcessKind};
use loaded::{Loaded, alone};
use nvml_wrapper_sys::bindings::*;

/// Turns MIG mode on and makes one MIG device.
fn divide(on: &Loaded) -> nvmlDevice_t {
    on.set(|state| {
        state.gpus[0].set_mig(true).expect("idle");
        let instance = state.create_instance(0, 19, None).expect("room");
        let part = state.create_compute(0, instance, 0, None).expect("room");
        state.gpus[0].add(Process::compute(7, 10).on(instance, part).phantom());
    });
    let mut device = null_mut();
    let code =
        unsafe { on.nvml.nvmlDeviceGetMigDeviceHandleByIndex(on.gpu(0), 0, &raw mut device) };
    assert_eq!(code, 0);
    device
}

fn count(on: &Loaded, device: nvmlDevice_t) -> (u32, c_uint) {
    let mut count = 0;
    let call = &on.nvml;
    let code =
        unsafe { call.nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, null_mut()) };
    (code, count)
}

#[test]
fn in_mig_mode_compute_mode_is_a_mig_devices_and_activation_has_reset_it() {
    let test = "in_mig_mode_compute_mode_is_a_mig_devices_and_activation_has_reset_it";
    let Some(on) = alone(test, "a100-80gb") else { return };
    let (gpu, mut mode) = (on.gpu(0), 9);
    unsafe {
        assert_eq!(on.nvml.nvmlDeviceSetComputeMode(gpu, 3), 0);
        let device = divide(&on);
        assert_eq!(on.nvml.nvmlDeviceGetComputeMode(gpu, &raw mut mode), 2);
        assert_eq!(on.nvml.nvmlDeviceSetComputeMode(gpu, 0), 2);
        assert_eq!(on.nvml.nvmlDeviceGetComputeMode(device, &raw mut mode), 0);
        assert_eq!(mode, 0, "as after a reset");
        assert_eq!(on.nvml.nvmlDeviceSetComputeMode(device, 2), 0);
        assert_eq!(on.nvml.nvmlDeviceGetComputeMode(device, &raw mut mode), 0);
        assert_eq!(mode, 2);
    }
}

#[test]
fn versioned_profiles_need_mig_mode_and_the_first_version_does_not() {
    let test = "versioned_profiles_need_mig_mode_and_the_first_version_does_not";
    let Some(on) = alone(test, "a100-80gb") else { return };
    let gpu = on.gpu(0);
    let versioned = || unsafe {
        let mut info = std::mem::zeroed::<nvmlGpuInstanceProfileInfo_v2_t>();
        info.version = size_of_val(&info) as c_uint | 2 << 24;
        let by_kind = on.nvml.nvmlDeviceGetGpuInstanceProfileInfoV(gpu, 0, &raw mut info);
        let by_id =
            on.nvml.__library.get::<unsafe extern "C" fn(
                nvmlDevice_t,
                c_uint,
                *mut nvmlGpuInstanceProfileInfo_v2_t,
            ) -> u32>(b"nvmlDeviceGetGpuInstanceProfileInfoByIdV\0");
        (by_kind, by_id.unwrap()(gpu, 19, &raw mut info))
    };
    let mut plain = unsafe { std::mem::zeroed::<nvmlGpuInstanceProfileInfo_t>() };
    assert_eq!(versioned(), (3, 3));
    assert_eq!(unsafe { on.nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, 0, &raw mut plain) }, 0);
    on.set(|state| assert_eq!(state.gpus[0].set_mig(true), Ok(None)));
    assert_eq!(versioned(), (0, 0));
}

#[test]
fn in_mig_mode_only_the_privileged_see_all_tenants_at_once() {
    let test = "in_mig_mode_only_the_privileged_see_all_tenants_at_once";
    let Some(on) = alone(test, "a100-80gb") else { return };
    let (gpu, device) = (on.gpu(0), divide(&on));
    let mut memory = unsafe { std::mem::zeroed::<nvmlMemory_t>() };
    assert_eq!(count(&on, gpu), (7, 1));
    on.set(|state| state.unprivileged = true);
    assert_eq!(count(&on, gpu).0, 4);
    assert_eq!(unsafe { on.nvml.nvmlDeviceGetMemoryInfo(gpu, &raw mut memory) }, 4);
    assert_eq!(count(&on, device), (7, 1), "its own device");
    assert_eq!(unsafe { on.nvml.nvmlDeviceGetMemoryInfo(device, &raw mut memory) }, 0);
}

#[test]
fn who_is_not_root_is_refused_where_only_root_may() {
    let test = "who_is_not_root_is_refused_where_only_root_may";
    let Some(on) = alone(test, "a100-80gb") else { return };
    unsafe extern "C" {
        safe fn geteuid() -> u32;
        safe fn seteuid(user: u32) -> i32;
    }
    let gpu = on.gpu(0);
    let set = || unsafe { on.nvml.nvmlDeviceSetPersistenceMode(gpu, 1) };
    assert_eq!(set(), 0);
    on.set(|state| state.root_only = true);
    if geteuid() == 0 {
        assert_eq!(set(), 0);
        assert_eq!(seteuid(65_534), 0);
    }
    assert_eq!(set(), 4);
}

#[test]
fn what_keeps_a_mode_from_activation_is_told_and_ends_with_a_reset() {
    let test = "what_keeps_a_mode_from_activation_is_told_and_ends_with_a_reset";
    let Some(on) = alone(test, "a100-80gb") else { return };
    let gpu = on.gpu(0);
    let set = |mode| {
        let mut status = 99;
        let code = unsafe { on.nvml.nvmlDeviceSetMigMode(gpu, mode, &raw mut status) };
        (code, status)
    };
    let modes = || {
        let mig = on.machine.read().gpus[0].mig;
        (mig.current, mig.pending)
    };
    on.set(|state| state.gpus[0].blocked_by_client = true);
    assert_eq!((set(1), modes()), ((0, 19), (false, true)));
    on.set(|state| assert_eq!(state.gpus[0].reset(), Err(Code::InUse)));
    on.set(|state| state.gpus[0].blocked_by_client = false);
    assert_eq!((set(1), modes()), ((0, 0), (true, true)), "tried again");
    on.set(|state| state.gpus[0].needs_reset = true);
    assert_eq!((set(0), modes()), ((0, 16), (true, false)));
    on.set(|state| assert_eq!(state.gpus[0].reset(), Ok(())));
    assert_eq!(modes(), (false, false));
}

#[test]
fn a_lost_gpu_comes_back_to_who_initialises_anew() {
    let test = "a_lost_gpu_comes_back_to_who_initialises_anew";
    let Some(on) = alone(test, "a100-80gb:2") else { return };
    let (gpu, mut power) = (on.gpu(0), 0);
    let mut ask = || unsafe { on.nvml.nvmlDeviceGetPowerUsage(gpu, &raw mut power) };
    on.set(|state| state.gpus[0].lost = true);
    assert_eq!(ask(), 15);
    on.set(|state| state.gpus[0].lost = false);
    assert_eq!(ask(), 15, "whatever has become of it");
    unsafe {
        assert_eq!(on.nvml.nvmlInit_v2(), 0);
        assert_eq!(on.nvml.nvmlShutdown(), 0);
    }
    assert_eq!(ask(), 15, "somebody in this process still has it open");
    unsafe {
        assert_eq!(on.nvml.nvmlShutdown(), 0);
        assert_eq!(on.nvml.nvmlInit_v2(), 0);
    }
    assert_eq!(ask(), 0);
}

#[test]
fn a_list_can_grow_between_two_calls() {
    let Some(on) = alone("a_list_can_grow_between_two_calls", "a100-80gb") else { return };
    let (kind, call) = (ProcessKind::Mps, "nvmlDeviceGetMPSComputeRunningProcesses_v3");
    on.set(|state| {
        state.gpus[0].add(Process { kind, ..Process::compute(7, 10).phantom() });
        let effect = Effect::Arrive { gpu: 0, pid: 8, kind };
        state.faults.push(Fault { call: call.into(), nth: 2, effect });
    });
    let (gpu, mut count) = (on.gpu(0), 0);
    let mut list: Vec<nvmlProcessInfo_t> = Vec::with_capacity(2);
    unsafe {
        let ask =
            |count, list| on.nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(gpu, count, list);
        assert_eq!(ask(&raw mut count, null_mut()), 7);
        assert_eq!(count, 1);
        assert_eq!(ask(&raw mut count, list.as_mut_ptr()), 7, "one more than there was room for");
        assert_eq!(count, 2);
        assert_eq!(ask(&raw mut count, list.as_mut_ptr()), 0);
    }
}

#[test]
fn use_is_told_of_periods_that_the_caller_has_not_seen() {
    let test = "use_is_told_of_periods_that_the_caller_has_not_seen";
    let Some(on) = alone(test, "a100-80gb") else { return };
    on.set(|state| state.gpus[0].add(Process::compute(7, 10).busy(40).phantom()));
    let gpu = on.gpu(0);
    let ask = |seen_us: u64| unsafe {
        let mut sample = std::mem::zeroed::<nvmlProcessUtilizationSample_t>();
        let mut count = 1;
        let call = &on.nvml;
        let code =
            call.nvmlDeviceGetProcessUtilization(gpu, &raw mut sample, &raw mut count, seen_us);
        (code, sample.timeStamp)
    };
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    let (code, told) = ask(now_us - 1_000_000);
    assert_eq!(code, 0);
    assert!(told.abs_diff(now_us) < 500_000, "in microseconds: {told}");
    assert_eq!(ask(now_us + 500_000).0, 6);
}
