//! What a simulated run is reduced to: samples over its course and totals at its end.

use serde::Serialize;

/// The fleet at one point of a run. Percentages are of the fleet's GPUs, 0 to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Time of the trace.
    pub at_ms: u64,
    /// GPU demand that has arrived so far, granted or not; can pass 100.
    pub arrived_pct: f64,
    /// GPU held by running workloads, by the scarcer of compute and memory.
    pub allocated_pct: f64,
    /// Idle GPU compute that the expected mix cannot use.
    pub fragmented_pct: f64,
    /// GPUs with at least one tenant.
    pub busy_pct: f64,
    /// Workloads that wait.
    pub waiting: u64,
    /// Workloads that run.
    pub running: u64,
    /// Workloads turned away so far.
    pub rejected: u64,
}

/// Workloads of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// Workloads that arrived.
    pub arrived: u64,
    /// Of these, turned away, or still waiting at the end of the run.
    pub rejected: u64,
}

/// Sizes by which rejected workloads are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// No GPU.
    CpuOnly,
    /// Part of one or several GPUs.
    Shared,
    /// One whole GPU.
    OneGpu,
    /// Two or three whole GPUs.
    TwoGpus,
    /// Four to seven whole GPUs.
    FourGpus,
    /// Eight or more whole GPUs, or a gang.
    EightGpus,
}

impl Size {
    /// All sizes, ascending.
    pub const ALL: [Self; 6] =
        [Self::CpuOnly, Self::Shared, Self::OneGpu, Self::TwoGpus, Self::FourGpus, Self::EightGpus];

    /// A short label for tables and plots.
    pub fn label(self) -> &'static str {
        match self {
            Self::CpuOnly => "CPU only",
            Self::Shared => "shared",
            Self::OneGpu => "1 GPU",
            Self::TwoGpus => "2–3 GPUs",
            Self::FourGpus => "4–7 GPUs",
            Self::EightGpus => "8+ GPUs",
        }
    }
}

/// Waiting times from submission to start of the workloads that started, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// Mean.
    pub mean_ms: u64,
    /// Median.
    pub p50_ms: u64,
    /// 95th percentile.
    pub p95_ms: u64,
    /// 99th percentile.
    pub p99_ms: u64,
    /// Longest.
    pub max_ms: u64,
}

/// A run's end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Workloads that arrived.
    pub arrived: u64,
    /// Workloads that were started.
    pub started: u64,
    /// Workloads turned away (in a run without a queue, or because they can never run).
    pub rejected: u64,
    /// Workloads that still waited at the end.
    pub waiting: u64,
    /// GPU compute held at the end, percent.
    pub allocated_pct: f64,
    /// Idle GPU compute that the expected mix cannot use at the end, percent.
    pub fragmented_pct: f64,
    /// Time mean of the held GPU compute from first arrival to last event, percent.
    pub allocated_mean_pct: f64,
    /// From first arrival to last event.
    pub makespan_ms: u64,
    /// GPU time held by workloads, in GPU hours.
    pub gpu_hours_held: f64,
    /// GPUs with a tenant, whole ones however little of them is held, in GPU hours.
    pub gpu_hours_in_use: f64,
    /// What those cost, in whatever currency; 0 and not named where no price is given. See [`Comparison::priced`].
    #[serde(skip_serializing_if = "is_nothing")]
    pub cost: f64,
    /// Times that somebody left because of being asked to; a run without any does not name it.
    #[serde(skip_serializing_if = "is_zero")]
    pub preempted: u64,
    /// GPU time that those had held by then, in GPU hours: work that is done again.
    #[serde(skip_serializing_if = "is_nothing")]
    pub gpu_hours_lost: f64,
    /// Waiting times, to the first start.
    pub waits: Waits,
    /// Arrived and rejected by size, in the order of [`Size::ALL`].
    pub by_size: [SizeCount; 6],
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_nothing(amount: &f64) -> bool {
    *amount == 0.0
}

/// One policy's run over one trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The placement policy's name.
    pub policy: String,
    /// Samples in order of the run, at most a few thousand.
    pub samples: Vec<Sample>,
    /// The end.
    pub totals: Totals,
}

/// Several policies' runs over the same trace and fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the trace.
    pub trace: String,
    /// Nodes of the fleet.
    pub nodes: u64,
    /// GPUs of the fleet.
    pub gpus: u64,
    /// Whether times were honoured (arrivals, departures, a queue) or tasks only arrived.
    pub timed: bool,
    /// What was simulated, in one sentence for the reader.
    pub protocol: String,
    /// Runs, in the order in which the policies were named.
    pub runs: Vec<Outcome>,
}

impl Comparison {
    /// The same with what GPUs in use cost.
    ///
    /// * `price_per_hour` — of one GPU, in whatever currency.
    #[must_use]
    pub fn priced(mut self, price_per_hour: f64) -> Self {
        for run in &mut self.runs {
            run.totals.cost = engine::sharing::money(run.totals.gpu_hours_in_use, price_per_hour);
        }
        self
    }
}
