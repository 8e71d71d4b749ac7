//! What the fake driver answers over its C interface: arguments, sizes, versions, privilege, events,
//! memory limits, speed.
#![allow(unsafe_code, reason = "calls a C library; pointers are good for the call")]

mod loaded;

use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use fake_machine::{Ecc, Process};
use loaded::alone;
use nvml_wrapper_sys::bindings::*;

#[test]
fn bad_arguments_get_the_codes_that_nvml_gives() {
    let Some(on) = alone("bad_arguments_get_the_codes_that_nvml_gives", "a100-80gb:2") else {
        return;
    };
    let (nvml, gpu) = (&on.nvml, on.gpu(0));
    let mut handle = null_mut();
    let mut name = [0; 4];
    let mut memory = nvmlMemory_v2_t { version: 2, total: 0, reserved: 0, free: 0, used: 0 };
    unsafe {
        assert_eq!(nvml.nvmlDeviceGetCount_v2(null_mut()), 2, "null");
        assert_eq!(nvml.nvmlDeviceGetHandleByIndex_v2(2, &raw mut handle), 2, "no such index");
        assert_eq!(nvml.nvmlDeviceGetHandleByUUID(c"GPU-x".as_ptr(), &raw mut handle), 6);
        assert_eq!(nvml.nvmlDeviceGetIndex(null_mut(), null_mut()), 2, "null handle");
        assert_eq!(nvml.nvmlDeviceGetIndex(0x1234 as nvmlDevice_t, null_mut()), 2, "any number");
        assert_eq!(nvml.nvmlDeviceGetName(gpu, name.as_mut_ptr(), 4), 7, "too small");
        assert_eq!(nvml.nvmlDeviceGetMemoryInfo_v2(gpu, &raw mut memory), 25, "version");
        memory.version = size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24;
        assert_eq!(nvml.nvmlDeviceGetMemoryInfo_v2(gpu, &raw mut memory), 0);
    }
    assert_eq!(memory.total, 81_920 << 20);
    assert_eq!(memory.total, memory.free + memory.reserved + memory.used);
}

#[test]
fn nothing_works_before_initialisation_nor_after_the_last_shutdown() {
    let test = "nothing_works_before_initialisation_nor_after_the_last_shutdown";
    let Some(on) = alone(test, "t4") else { return };
    let mut count = 0;
    unsafe {
        assert_eq!(on.nvml.nvmlInit_v2(), 0);
        assert_eq!(on.nvml.nvmlShutdown(), 0);
        assert_eq!(on.nvml.nvmlDeviceGetCount_v2(&raw mut count), 0, "one user is left");
        assert_eq!(on.nvml.nvmlShutdown(), 0);
        assert_eq!(on.nvml.nvmlDeviceGetCount_v2(&raw mut count), 1);
        assert_eq!(on.nvml.nvmlShutdown(), 1);
        assert_eq!(on.nvml.nvmlInit_v2(), 0);
        assert_eq!(on.nvml.nvmlDeviceGetCount_v2(&raw mut count), 0);
    }
}

#[test]
fn a_list_that_does_not_fit_is_told_with_its_length() {
    let Some(on) = alone("a_list_that_does_not_fit_is_told_with_its_length", "a100-80gb") else {
        return;
    };
    on.set(|state| {
        for pid in [30, 10, 20] {
            state.gpus[0].add(Process::compute(pid, 7).phantom());
        }
    });
    let (gpu, mut count) = (on.gpu(0), 0);
    let mut list: Vec<nvmlProcessInfo_t> = Vec::with_capacity(3);
    unsafe {
        let call = |count, list| on.nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu, count, list);
        assert_eq!(call(&raw mut count, null_mut()), 7);
        assert_eq!(count, 3);
        count = 2;
        assert_eq!(call(&raw mut count, list.as_mut_ptr()), 7);
        assert_eq!(call(&raw mut count, list.as_mut_ptr()), 0);
        list.set_len(3);
    }
    let pids: Vec<u32> = list.iter().map(|process| process.pid).collect();
    assert_eq!((pids, list[0].gpuInstanceId), (vec![10, 20, 30], u32::MAX));
}

#[test]
fn an_unprivileged_caller_reads_but_changes_nothing() {
    let test = "an_unprivileged_caller_reads_but_changes_nothing";
    let Some(on) = alone(test, "a100-80gb") else { return };
    on.set(|state| state.unprivileged = true);
    let (gpu, mut mode, mut status) = (on.gpu(0), 9, 0);
    unsafe {
        assert_eq!(on.nvml.nvmlDeviceSetMigMode(gpu, 1, &raw mut status), 4);
        assert_eq!(on.nvml.nvmlDeviceSetComputeMode(gpu, 3), 4);
        assert_eq!(on.nvml.nvmlDeviceGetComputeMode(gpu, &raw mut mode), 0);
    }
    assert_eq!((mode, on.machine.read().gpus[0].mig.current), (0, false));
}

#[test]
fn a_critical_error_ends_a_wait_once_and_only_where_asked_for() {
    let test = "a_critical_error_ends_a_wait_once_and_only_where_asked_for";
    let Some(on) = alone(test, "a100-80gb:2") else { return };
    let (mut set, mut event) = (null_mut(), unsafe { std::mem::zeroed::<nvmlEventData_t>() });
    on.set(|state| state.report_xid(1, 31));
    unsafe {
        assert_eq!(on.nvml.nvmlEventSetCreate(&raw mut set), 0);
        assert_eq!(on.nvml.nvmlDeviceRegisterEvents(on.gpu(1), 8, set), 0);
        assert_eq!(on.nvml.nvmlEventSetWait_v2(set, &raw mut event, 20), 10, "before the set");
    }
    let waiting = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            on.set(|state| {
                state.report_xid(0, 13);
                state.report_xid(1, 79);
            });
        });
        let since = Instant::now();
        assert_eq!(unsafe { on.nvml.nvmlEventSetWait_v2(set, &raw mut event, 5000) }, 0);
        since.elapsed()
    });
    assert!(waiting >= Duration::from_millis(45) && waiting < Duration::from_secs(2));
    assert_eq!((event.device, event.eventType, event.eventData), (on.gpu(1), 8, 79));
    unsafe {
        assert_eq!(on.nvml.nvmlEventSetWait_v2(set, &raw mut event, 20), 10, "only once");
        on.set(|state| state.gpus[1].lost = true);
        assert_eq!(on.nvml.nvmlEventSetWait_v2(set, &raw mut event, 1000), 15, "lost");
        assert_eq!(on.nvml.nvmlEventSetFree(set), 0);
        assert_eq!(on.nvml.nvmlEventSetFree(set), 2, "freed twice");
    }
}

#[test]
fn accounting_keeps_what_has_ended() {
    let Some(on) = alone("accounting_keeps_what_has_ended", "a100-80gb") else { return };
    let gpu = on.gpu(0);
    let mut stats = unsafe { std::mem::zeroed::<nvmlAccountingStats_t>() };
    // Its own output, so that nobody waits for it should this test fail.
    let mut child = Command::new("sleep")
        .arg("60")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    unsafe {
        assert_eq!(on.nvml.nvmlDeviceGetAccountingStats(gpu, pid, &raw mut stats), 3, "off");
        assert_eq!(on.nvml.nvmlDeviceSetAccountingMode(gpu, 1), 0);
        let process = Process::compute(pid, 500).busy(30);
        on.set(|state| state.gpus[0].add(process));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(on.nvml.nvmlDeviceGetAccountingStats(gpu, pid, &raw mut stats), 0);
        assert_eq!((stats.isRunning, stats.maxMemoryUsage), (1, 500 << 20));
        child.kill().unwrap();
        child.wait().unwrap();
        on.set(|_| {});
        assert_eq!(on.nvml.nvmlDeviceGetAccountingStats(gpu, pid, &raw mut stats), 0);
    }
    assert_eq!((stats.isRunning, stats.gpuUtilization), (0, 30));
    assert!(stats.time >= 20 && stats.time < 20_000, "{} ms", stats.time);
    assert!(on.machine.read().gpus[0].processes.is_empty());
}

#[test]
fn injected_errors_are_read_back() {
    let Some(on) = alone("injected_errors_are_read_back", "a100-80gb,t4") else { return };
    let ecc = Ecc { corrected: 5, uncorrected: 2, remapped_uncorrected: 1, ..Ecc::default() };
    on.set(|state| state.gpus[0].ecc = ecc.clone());
    let mut found = [0; 2];
    let mut rows = [9; 4];
    let [a, b, c, d] = &mut rows;
    unsafe {
        for (kind, count) in (0..).zip(&mut found) {
            assert_eq!(on.nvml.nvmlDeviceGetTotalEccErrors(on.gpu(0), kind, 0, count), 0);
        }
        assert_eq!(on.nvml.nvmlDeviceGetRemappedRows(on.gpu(0), a, b, c, d), 0);
        assert_eq!(on.nvml.nvmlDeviceGetRemappedRows(on.gpu(1), a, b, c, d), 3, "Turing");
    }
    assert_eq!((found, rows), ([5, 2], [0, 1, 0, 0]));
}

#[test]
fn a_read_costs_microseconds() {
    let Some(on) = alone("a_read_costs_microseconds", "a100-80gb:8") else { return };
    let (gpu, mut power) = (on.gpu(7), 0);
    let started = Instant::now();
    for _ in 0..10_000 {
        assert_eq!(unsafe { on.nvml.nvmlDeviceGetPowerUsage(gpu, &raw mut power) }, 0);
    }
    let each = started.elapsed() / 10_000;
    eprintln!("{each:?} a read");
    assert!(each < Duration::from_micros(100), "{each:?} a read");
    assert_eq!(power, 80_000);
}
