//! Planned faults of the fake driver: errors, lost GPUs, kills, slow calls, symbols that are not there.
#![allow(unsafe_code, reason = "calls a C library; pointers are good for the call")]

mod loaded;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use fake_machine::{Code, Effect, Fault, GpuSpec, MACHINE_VARIABLE, Machine, without_symbols};
use loaded::{Loaded, alone, library};
use nvml_wrapper_sys::bindings::NvmlLib;

fn temperature(on: &Loaded) -> u32 {
    let mut value = 0;
    unsafe { on.nvml.nvmlDeviceGetTemperature(on.gpu(0), 0, &raw mut value) }
}

#[test]
fn a_fault_fires_at_the_call_that_it_names() {
    let Some(on) = alone("a_fault_fires_at_the_call_that_it_names", "t4:2") else { return };
    on.set(|state| {
        state.fail("nvmlDeviceGetTemperature", 3, Code::Timeout);
        state.fail("nvmlDeviceGetPowerUsage", 0, Code::Unknown);
    });
    let codes: Vec<u32> = (0..5).map(|_| temperature(&on)).collect();
    assert_eq!(codes, [0, 0, 10, 0, 0]);
    let mut power = 0;
    for _ in 0..3 {
        assert_eq!(unsafe { on.nvml.nvmlDeviceGetPowerUsage(on.gpu(1), &raw mut power) }, 999);
    }
}

#[test]
fn a_fault_of_any_call_counts_all_calls() {
    let Some(on) = alone("a_fault_of_any_call_counts_all_calls", "t4") else { return };
    let gpu = on.gpu(0);
    let mut value = 0;
    // Initialisation and the handle were two calls.
    on.set(|state| state.fail("*", 4, Code::InsufficientResources));
    unsafe {
        assert_eq!(on.nvml.nvmlDeviceGetPowerUsage(gpu, &raw mut value), 0);
        assert_eq!(on.nvml.nvmlDeviceGetTemperature(gpu, 0, &raw mut value), 23);
        assert_eq!(on.nvml.nvmlDeviceGetTemperature(gpu, 0, &raw mut value), 0);
    }
}

#[test]
fn a_lost_gpu_is_lost_to_every_call_and_the_others_are_not() {
    let test = "a_lost_gpu_is_lost_to_every_call_and_the_others_are_not";
    let Some(on) = alone(test, "a100-80gb:2") else { return };
    let (lost, other) = (on.gpu(0), on.gpu(1));
    on.set(|state| state.gpus[0].lost = true);
    let (mut value, mut count, mut handle) = (0, 0, std::ptr::null_mut());
    unsafe {
        assert_eq!(on.nvml.nvmlDeviceGetPowerUsage(lost, &raw mut value), 15);
        assert_eq!(on.nvml.nvmlDeviceGetHandleByIndex_v2(0, &raw mut handle), 15);
        assert_eq!(on.nvml.nvmlDeviceGetPowerUsage(other, &raw mut value), 0);
        assert_eq!(on.nvml.nvmlDeviceGetCount_v2(&raw mut count), 0);
    }
    assert_eq!(count, 2);
}

#[test]
fn a_slow_call_is_slow_and_then_done() {
    let Some(on) = alone("a_slow_call_is_slow_and_then_done", "t4") else { return };
    on.set(|state| {
        let call = "nvmlDeviceGetTemperature".to_string();
        state.faults.push(Fault { call, nth: 1, effect: Effect::SleepMs(60) });
    });
    let started = Instant::now();
    assert_eq!(temperature(&on), 0);
    assert!(started.elapsed() >= Duration::from_millis(60));
    assert_eq!(temperature(&on), 0);
    assert!(started.elapsed() < Duration::from_millis(115));
}

/// Sets compute mode by the third call of its process; run by the test below.
#[test]
#[ignore = "a part of the other tests"]
fn killed_process() {
    let Some(folder) = std::env::var_os(MACHINE_VARIABLE) else { return };
    let on = Loaded::open(folder.as_ref());
    let code = unsafe { on.nvml.nvmlDeviceSetComputeMode(on.gpu(0), 3) };
    panic!("not killed; the call gave {code}");
}

#[test]
fn a_process_is_killed_just_before_or_just_after_its_nth_call() {
    let folder = std::env::temp_dir().join(format!("killed-{}", std::process::id()));
    for (variable, number, mode) in [
        ("HOTPOT_FAKE_KILL_BEFORE", "3", 0),
        ("HOTPOT_FAKE_KILL_AFTER", "2", 0),
        ("HOTPOT_FAKE_KILL_AFTER", "3", 3),
    ] {
        let machine = Machine::create(&folder, &GpuSpec::list("t4").unwrap()).unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_process", "--ignored"])
            .env(MACHINE_VARIABLE, &folder)
            .env(variable, number)
            .output()
            .unwrap();
        assert_eq!(ended.status.signal(), Some(9), "{variable}={number}");
        assert_eq!(machine.read().gpus[0].compute_mode, mode, "{variable}={number}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_missing_function_says_so_and_a_library_without_it_lacks_the_symbol() {
    let test = "a_missing_function_says_so_and_a_library_without_it_lacks_the_symbol";
    let Some(on) = alone(test, "a100-80gb") else { return };
    on.set(|state| state.missing.push("nvmlDeviceGetTemperature".into()));
    assert_eq!(temperature(&on), 13);

    let old = on.machine.folder().join("libnvidia-ml.so.1");
    let gone = ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetGpuInstanceProfileInfoV"];
    without_symbols(&library(), &old, &gone).unwrap();
    let old = unsafe { NvmlLib::new(&old) }.unwrap();
    assert!(old.nvmlDeviceGetMemoryInfo_v2.is_err());
    assert!(old.nvmlDeviceGetGpuInstanceProfileInfoV.is_err());
    assert!(old.nvmlDeviceGetMemoryInfo.is_ok());
    assert_eq!(unsafe { old.nvmlInit_v2() }, 0, "the rest works");
    let unknown = without_symbols(&library(), &on.machine.folder().join("x"), &["nvmlNothing"]);
    assert!(unknown.unwrap_err().to_string().contains("nvmlNothing"));
}
