//! Processes on one GPU: who they are, what memory they hold, their part of SM time.

use std::collections::BTreeMap;
use std::time::Duration;

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};

use super::answers::{Answers, Ask};
use super::{instances, ratio};
use crate::sample::ProcessSample;
use crate::tenant::Tenants;

/// SM use is looked at over this much at least, so that two rounds in quick succession agree.
const WINDOW: Duration = Duration::from_secs(1);

/// How often a list is asked for that has grown since its length was told.
const TRIES: u32 = 4;

/// What is remembered of a GPU's processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Youngest record of SM use seen, in µs since 1970.
    seen_us: u64,
}

/// A process by pid and GPU instance.
type Place = (u32, Option<u32>);

/// What lists tell of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    memory_bytes: Option<u64>,
    mps_client: bool,
}

impl Processes {
    /// The processes that are there, by pid and instance; `None` if the driver does not tell.
    ///
    /// * `divided` — MIG mode is on.
    pub(super) fn sample(
        &mut self,
        device: &Device<'_>,
        answers: &mut Answers,
        (tenants, at): (&Tenants, Duration),
        divided: bool,
    ) -> Option<Vec<ProcessSample>> {
        let there = match whole(device, answers) {
            Some(there) => there,
            // Those of all tenants at once are told to the privileged only.
            None if divided && answers.refused(Ask::Compute) => of_parts(device),
            None => return None,
        };
        // Nobody there: nothing to ask about.
        let used = if there.is_empty() { None } else { self.sm_use(device, answers, at) };
        let sample = |((pid, gpu_instance), listed): (Place, Listed)| ProcessSample {
            pid,
            gpu_instance,
            memory_bytes: listed.memory_bytes,
            sm_ratio: used.as_ref().and_then(|used| listed.sm_ratio(used.get(&pid).copied())),
            tenant: tenants.of(pid),
        };
        Some(there.into_iter().map(sample).collect())
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

impl Listed {
    /// The driver names whoever had "some non-zero utilization" (nvml.h); what an MPS client does may
    /// be booked to its server.
    fn sm_ratio(self, used: Option<f64>) -> Option<f64> {
        used.or((!self.mps_client).then_some(0.0))
    }
}

fn means(records: &[ProcessUtilizationSample]) -> BTreeMap<u32, f64> {
    let mut sums: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for record in records {
        let (sum, count) = sums.entry(record.pid).or_default();
        // Drivers have been seen to tell more than all there is.
        *sum = sum.saturating_add(record.sm_util.min(100));
        *count += 1;
    }
    let mean = |(pid, (sum, count)): (u32, (u32, u32))| (pid, ratio(sum) / f64::from(count));
    sums.into_iter().map(mean).collect()
}

/// Compute, graphics and MPS processes of a GPU; `None` if a list that it has could not be read.
fn whole(device: &Device<'_>, answers: &mut Answers) -> Option<BTreeMap<Place, Listed>> {
    let compute = answers.ask(Ask::Compute, || patiently(|| device.running_compute_processes()))?;
    let graphics = answers.ask(Ask::Graphics, || patiently(|| device.running_graphics_processes()));
    let mps = answers.ask(Ask::Mps, || patiently(|| device.mps_running_compute_processes()));
    let read = |list: Option<&Vec<_>>, what| list.is_some() || answers.refused(what);
    if !read(graphics.as_ref(), Ask::Graphics) || !read(mps.as_ref(), Ask::Mps) {
        return None;
    }
    let mut there = BTreeMap::new();
    add(&mut there, compute, false);
    add(&mut there, graphics.unwrap_or_default(), false);
    add(&mut there, mps.unwrap_or_default(), true);
    Some(there)
}

/// Processes as MIG devices list them, each its own. One that does not answer, because it is taken down,
/// has none.
fn of_parts(gpu: &Device<'_>) -> BTreeMap<Place, Listed> {
    let mut there = BTreeMap::new();
    for part in instances::devices(gpu) {
        let compute = patiently(|| part.running_compute_processes());
        add(&mut there, compute.unwrap_or_default(), false);
        let mps = patiently(|| part.mps_running_compute_processes());
        add(&mut there, mps.unwrap_or_default(), true);
    }
    there
}

/// A process that is in several lists counts once.
fn add(there: &mut BTreeMap<Place, Listed>, list: Vec<ProcessInfo>, mps: bool) {
    for process in list {
        let listed = there.entry((process.pid, process.gpu_instance_id)).or_default();
        listed.memory_bytes = listed.memory_bytes.max(held(&process));
        listed.mps_client |= mps;
    }
}

/// Reads a list again if it has grown between the question for its length and that for its items.
fn patiently<T>(read: impl Fn() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
    let grown = |answer: &Result<T, _>| matches!(answer, Err(NvmlError::InsufficientSize(_)));
    let mut answer = read();
    for _ in 1..TRIES {
        if !grown(&answer) {
            break;
        }
        answer = read();
    }
    answer
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
    fn records_of_one_process_are_averaged_and_none_is_above_all_there_is() {
        let record = |pid, sm_util| ProcessUtilizationSample {
            pid,
            timestamp: 1,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        };
        let means = means(&[record(7, 20), record(8, 5), record(7, 40), record(9, 4_000_000_000)]);
        assert_eq!(
            means.into_iter().map(|(pid, mean)| (pid, (mean * 1e6).round())).collect::<Vec<_>>(),
            [(7, 3e5), (8, 5e4), (9, 1e6)]
        );
    }

    #[test]
    fn who_is_not_named_used_nothing_unless_a_server_works_for_it() {
        let (plain, client) = (Listed::default(), Listed { mps_client: true, ..Listed::default() });
        assert_eq!((plain.sm_ratio(None), plain.sm_ratio(Some(0.3))), (Some(0.0), Some(0.3)));
        assert_eq!((client.sm_ratio(None), client.sm_ratio(Some(0.3))), (None, Some(0.3)));
    }
}
