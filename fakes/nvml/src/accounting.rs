//! Accounting: what processes have used, those that have ended included.

use std::ffi::c_uint;

use fake_machine::{AccountingRecord, Code, Gpu};
use nvml_wrapper_sys::bindings::{nvmlAccountingStats_t, nvmlDevice_t, nvmlEnableState_t};

use crate::calls::{now_us, nvml};
use crate::memory::MIB;
use crate::pointers::{put, put_list};

/// The records of a GPU in accounting mode, running processes last.
fn records(gpu: &Gpu) -> Result<Vec<(AccountingRecord, bool)>, Code> {
    if !gpu.accounting {
        return Err(Code::NotSupported);
    }
    let ended = gpu.accounted.iter().cloned().map(|record| (record, false));
    let now_ms = now_us() / 1000;
    // A process that has ended since the state was written counts as ended.
    let present = gpu.processes.iter().map(|process| {
        let runs = process.is_shown();
        let record = AccountingRecord {
            pid: process.pid,
            sm_percent: process.sm_percent,
            memory_mib: process.memory_mib,
            since_ms: process.since_ms,
            ran_ms: if runs { 0 } else { now_ms.saturating_sub(process.since_ms) },
        };
        (record, runs)
    });
    Ok(ended.chain(present).collect())
}

nvml! {
    fn nvmlDeviceGetAccountingMode(device: nvmlDevice_t, to: *mut nvmlEnableState_t) |call| {
        put(to, call.gpu(device)?.1.accounting.into())
    }

    fn nvmlDeviceSetAccountingMode(device: nvmlDevice_t, mode: nvmlEnableState_t) |call| {
        let (index, _) = call.gpu(device)?;
        if mode > 1 {
            return Err(Code::InvalidArgument);
        }
        call.privileged(|state| {
            let gpu = state.gpu_mut(index)?;
            gpu.accounting = mode == 1;
            gpu.accounted.clear();
            Ok(())
        })
    }

    fn nvmlDeviceGetAccountingPids(
        device: nvmlDevice_t, count: *mut c_uint, to: *mut c_uint
    ) |call| {
        let records = records(call.gpu(device)?.1)?;
        put_list(to, count, records.into_iter().map(|(record, _)| record.pid).collect())
    }

    fn nvmlDeviceGetAccountingStats(
        device: nvmlDevice_t, pid: c_uint, to: *mut nvmlAccountingStats_t
    ) |call| {
        let records = records(call.gpu(device)?.1)?;
        let mut newest_first = records.into_iter().rev();
        let found = newest_first.find(|(record, _)| record.pid == pid);
        let (record, runs) = found.ok_or(Code::NotFound)?;
        put(to, nvmlAccountingStats_t {
            gpuUtilization: record.sm_percent,
            memoryUtilization: 0,
            maxMemoryUsage: record.memory_mib * MIB,
            time: record.ran_ms,
            startTime: record.since_ms * 1000,
            isRunning: runs.into(),
            reserved: [0; 5],
        })
    }

    fn nvmlDeviceGetAccountingBufferSize(device: nvmlDevice_t, to: *mut c_uint) |call| {
        call.gpu(device)?;
        put(to, 4000)
    }
}
