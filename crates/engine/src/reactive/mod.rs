//! Rules that react to what was measured of one GPU: advice to share it finer or to isolate a
//! tenant, and findings of starvation and of memory that will run out.
//!
//! [`Watch`] is what is remembered of one GPU, [`Watch::observe`] the one door: a [`Sample`] in,
//! [`Finding`]s out. Time comes with the samples; the same samples give the same findings. Nothing
//! here acts. One rule a file: `underuse`, `contention`, `starvation`, `shortage`.

mod contention;
mod finding;
mod mean;
mod neighbour;
mod rise;
mod shortage;
mod starvation;
mod thresholds;
mod underuse;
mod watch;

pub use finding::{Finding, LatencyLimit};
pub use thresholds::Thresholds;
pub use watch::{TENANTS_MAX, Waits, Watch};

use alloc::vec::Vec;

use model::WorkloadId;

/// What was measured of one GPU since the sample before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When it was taken, in ms of a clock that goes forward.
    pub at_ms: u64,
    /// Part of the time since the sample before in which a kernel ran, in thousandths; more than
    /// 1000 counts as 1000, and less than its busiest tenant as much as that.
    pub busy_milli: u32,
    /// Its device memory. 0 is not known: then memory is taken to be left.
    pub memory_total_mib: u64,
    /// Who was on it. Of a workload that is listed twice, the first entry counts.
    pub tenants: Vec<TenantSample>,
}

/// What was measured of one tenant since the sample before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSample {
    /// Whose figures these are.
    pub workload: WorkloadId,
    /// Its priority; higher goes first.
    pub priority: i32,
    /// Part of the time in which its kernels ran, in thousandths; at most 1000 counts.
    pub busy_milli: u32,
    /// Part of the time in which it had work and was held back, by its cap or for its turn, in
    /// thousandths; at most 1000 counts.
    pub throttled_milli: u32,
    /// Device memory that it holds.
    pub memory_mib: u64,
    /// Most device memory that it may hold; without a cap of its own, the GPU's. 0 is not known:
    /// then it is not warned of.
    pub memory_cap_mib: u64,
    /// 99th percentile of its latency in µs, if it is known. 0 is not known; more than 71 min
    /// counts as 71 min.
    pub latency_p99_us: Option<u64>,
    /// Latency that it must keep, in µs, if it has a target; 0 is none.
    pub latency_target_us: Option<u64>,
    /// Whether it has asked for a GPU of its own, so that nobody else may come.
    pub exclusive: bool,
}

impl TenantSample {
    /// Its p99 in µs, where that is known.
    fn p99_us(&self) -> Option<u64> {
        self.latency_p99_us.filter(|us| *us > 0)
    }
}
