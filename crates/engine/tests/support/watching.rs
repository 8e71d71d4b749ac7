//! Loads over time for the rules that react: a sample every 10 s, and what was found when.

use engine::reactive::{Finding, Sample, TenantSample, Watch};
use model::WorkloadId;

/// Time between samples.
pub(crate) const STEP_MS: u64 = 10_000;

/// A minute in ms.
pub(crate) const MINUTE_MS: u64 = 60_000;

/// A tenant that computes for `busy_milli` and asks for nothing else.
pub(crate) fn tenant(number: u64, busy_milli: u32) -> TenantSample {
    TenantSample {
        workload: WorkloadId(number),
        priority: 0,
        busy_milli,
        throttled_milli: 0,
        memory_mib: 1_000,
        memory_cap_mib: 40_000,
        latency_p99_us: None,
        latency_target_us: None,
        exclusive: false,
    }
}

/// What is found, and when, from the start to `until_ms`.
pub(crate) fn found(
    watch: &mut Watch,
    until_ms: u64,
    load: impl Fn(u64) -> Sample,
) -> Vec<(u64, Finding)> {
    let times = (0..=until_ms).step_by(STEP_MS as usize);
    times
        .flat_map(|at_ms| watch.observe(&load(at_ms)).into_iter().map(move |f| (at_ms, f)))
        .collect()
}

/// When the GPU was to be shared finer (`'f'`) and when to isolate (`'i'`), in minutes.
pub(crate) fn advice(found: &[(u64, Finding)]) -> Vec<(u64, char)> {
    let letter = |finding: &Finding| match finding {
        Finding::ShareFiner { .. } => Some('f'),
        Finding::Isolate { .. } => Some('i'),
        Finding::Starved { .. } | Finding::MemoryRunsOut { .. } => None,
    };
    found.iter().filter_map(|(at, finding)| Some((at / MINUTE_MS, letter(finding)?))).collect()
}
