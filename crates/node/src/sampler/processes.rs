//! Processes on one GPU: who they are, what memory they hold, their part of SM time.

use std::collections::BTreeMap;
use std::time::Duration;

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};

use super::answers::{Answers, Ask};
use super::ratio;
use crate::sample::ProcessSample;
use crate::tenant::Tenants;

/// SM use is looked at over this much at least, so that two rounds in quick succession agree.
const WINDOW: Duration = Duration::from_secs(1);

/// What is remembered of a GPU's processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Youngest record of SM use seen, in µs since 1970.
    seen_us: u64,
}

impl Processes {
    /// The processes that are there, by pid and instance.
    pub(super) fn sample(
        &mut self,
        device: &Device<'_>,
        answers: &mut Answers,
        tenants: &Tenants,
        at: Duration,
    ) -> Vec<ProcessSample> {
        let there = list(device, answers);
        // Nobody there: nothing to ask about.
        let used = if there.is_empty() { None } else { self.sm_use(device, answers, at) };
        let sample = |((pid, gpu_instance), memory_bytes)| ProcessSample {
            pid,
            gpu_instance,
            memory_bytes,
            // The driver lists who used SMs at all; who is not listed did not.
            sm_ratio: used.as_ref().map(|used| used.get(&pid).copied().unwrap_or(0.0)),
            tenant: tenants.of(pid),
        };
        there.into_iter().map(sample).collect()
    }

    /// Mean SM use since the last round by pid; `None` if the driver does not tell.
    fn sm_use(
        &mut self,
        device: &Device<'_>,
        answers: &mut Answers,
        at: Duration,
    ) -> Option<BTreeMap<u32, f64>> {
        let latest_us = u64::try_from(at.saturating_sub(WINDOW).as_micros()).unwrap_or(u64::MAX);
        // A clock that was set back leaves `seen_us` in the future.
        let since_us = self.seen_us.min(latest_us);
        let records = answers.ask(Ask::ProcessUse, || {
            match device.process_utilization_stats(since_us) {
                // No process used the GPU in that time.
                Err(NvmlError::NotFound) => Ok(Vec::new()),
                other => other,
            }
        })?;
        self.seen_us = records.iter().map(|record| record.timestamp).max().unwrap_or(since_us);
        Some(means(&records))
    }
}

fn means(records: &[ProcessUtilizationSample]) -> BTreeMap<u32, f64> {
    let mut sums: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for record in records {
        let (sum, count) = sums.entry(record.pid).or_default();
        *sum = sum.saturating_add(record.sm_util);
        *count += 1;
    }
    let mean = |(pid, (sum, count)): (u32, (u32, u32))| (pid, ratio(sum) / f64::from(count));
    sums.into_iter().map(mean).collect()
}

/// Compute, graphics and MPS processes; one that is in several lists counts once.
fn list(device: &Device<'_>, answers: &mut Answers) -> BTreeMap<(u32, Option<u32>), Option<u64>> {
    let lists = [
        answers.ask(Ask::Compute, || device.running_compute_processes()),
        answers.ask(Ask::Graphics, || device.running_graphics_processes()),
        answers.ask(Ask::Mps, || device.mps_running_compute_processes()),
    ];
    let mut there = BTreeMap::new();
    for process in lists.into_iter().flatten().flatten() {
        let memory = there.entry((process.pid, process.gpu_instance_id)).or_insert(None);
        *memory = (*memory).max(held(&process));
    }
    there
}

fn held(process: &ProcessInfo) -> Option<u64> {
    match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_one_process_are_averaged() {
        let record = |pid, sm_util| ProcessUtilizationSample {
            pid,
            timestamp: 1,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        };
        let means = means(&[record(7, 20), record(8, 5), record(7, 40)]);
        assert_eq!(
            means.into_iter().map(|(pid, mean)| (pid, (mean * 1e6).round())).collect::<Vec<_>>(),
            [(7, 3e5), (8, 5e4)]
        );
    }
}
