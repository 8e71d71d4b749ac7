//! The figures of a run's end: name, unit, meaning, and which way is better.

use crate::outcome::{Outcome, Totals};

use super::units::{Unit, usable};

/// Which way a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    /// The larger.
    Higher,
    /// The smaller.
    Lower,
    /// Neither: it describes the run.
    Neither,
}

/// One figure of [`Totals`].
pub(super) struct Metric {
    /// What it is called.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// Whether it says something only if times were honoured.
    pub timed_only: bool,
    /// Left out where it is zero in every run.
    pub if_any: bool,
    /// What it means, in one or two sentences.
    pub meaning: &'static str,
    /// Reads it.
    pub of: fn(&Totals) -> f64,
}

/// One figure of one run, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// With unit.
    pub text: String,
    /// Whether no run is better; false for all where all are alike.
    pub best: bool,
}

impl Metric {
    /// Returns the figure of each run, in order, the best marked.
    ///
    /// Runs whose figures read alike are alike: a difference below what is shown decides nothing.
    pub(super) fn cells(&self, runs: &[Outcome]) -> Vec<Cell> {
        let values: Vec<f64> = runs.iter().map(|run| (self.of)(&run.totals)).collect();
        mark_best(&values, self.unit, self.better)
    }

    /// Returns whether any run has something other than zero to show.
    pub(super) fn says_something(&self, runs: &[Outcome]) -> bool {
        runs.iter().map(|run| (self.of)(&run.totals)).any(|value| usable(value) && value != 0.0)
    }
}

/// Returns the values as cells, the best marked if there is a choice.
pub(super) fn mark_best(values: &[f64], unit: Unit, better: Better) -> Vec<Cell> {
    let usable = values.iter().copied().filter(|value| usable(*value));
    let best = match better {
        Better::Higher => usable.clone().reduce(f64::max),
        Better::Lower => usable.clone().reduce(f64::min),
        Better::Neither => None,
    };
    let best = best.map(|value| unit.show(value));
    let is_best = |text: &String| Some(text) == best.as_ref();
    let alike = usable.map(|value| unit.show(value)).all(|text| is_best(&text));
    let cell = |text: String| Cell { best: !alike && is_best(&text), text };
    values.iter().map(|value| cell(unit.show(*value))).collect()
}

const fn metric(name: &'static str, unit: Unit, better: Better, of: fn(&Totals) -> f64) -> Metric {
    Metric { name, unit, better, timed_only: false, if_any: false, meaning: "", of }
}

impl Metric {
    const fn means(mut self, meaning: &'static str) -> Self {
        self.meaning = meaning;
        self
    }

    const fn if_any(mut self) -> Self {
        self.if_any = true;
        self
    }

    const fn timed(mut self) -> Self {
        self.timed_only = true;
        self
    }
}

/// The figures to show of these runs, in the order of the table.
pub(super) fn shown(runs: &[Outcome]) -> Vec<&'static Metric> {
    let counts = |metric: &&Metric| !metric.if_any || metric.says_something(runs);
    ALL.into_iter().filter(counts).collect()
}

/// A mean over the run's time; absent if no time passed.
fn of_time(totals: &Totals, mean: f64) -> f64 {
    if totals.makespan_ms == 0 { f64::NAN } else { mean }
}

/// A figure of the waits; absent if nobody started, who would otherwise seem not to have waited.
fn of_waits(totals: &Totals, wait_ms: u64) -> f64 {
    if totals.started == 0 { f64::NAN } else { wait_ms as f64 }
}

/// GPU compute held at the end.
pub(super) const ALLOCATED: Metric =
    metric("Allocated at the end", Unit::Percent, Better::Higher, |t| t.allocated_pct).means(
        "GPU compute held by running workloads when the run ends, of all GPUs of the fleet.",
    );
/// Time mean of the held GPU compute.
pub(super) const ALLOCATED_MEAN: Metric =
    metric("Allocated, time mean", Unit::Percent, Better::Neither, |t| {
        of_time(t, t.allocated_mean_pct)
    })
    .means("GPU compute held, averaged over the time from the first arrival to the last event.")
    .timed();
/// Idle compute that the expected mix cannot use.
pub(super) const FRAGMENTED: Metric =
    metric("Fragmented at the end", Unit::Percent, Better::Lower, |t| t.fragmented_pct).means(
        "Idle GPU compute that the expected mix of workloads cannot use, of all GPUs of the fleet: \
         the rest of a GPU is too small, or its node is short of CPU or memory.",
    );
/// Workloads that arrived.
pub(super) const ARRIVED: Metric =
    metric("Arrived", Unit::Count, Better::Neither, |t| t.arrived as f64)
        .means("Workloads that asked to run.");
/// Workloads that were started.
pub(super) const STARTED: Metric =
    metric("Started", Unit::Count, Better::Higher, |t| t.started as f64)
        .means("Workloads that were given a place.");
/// Workloads turned away.
pub(super) const REJECTED: Metric =
    metric("Rejected", Unit::Count, Better::Lower, |t| t.rejected as f64).means(
        "Workloads turned away: in a run without a queue because nothing fitted when they arrived, \
         with a queue because they can never run on this fleet.",
    );
/// Workloads that wait at the end.
pub(super) const WAITING: Metric =
    metric("Waiting at the end", Unit::Count, Better::Lower, |t| t.waiting as f64)
        .means("Workloads still in the queue when the run ends.");
/// From first arrival to last event.
pub(super) const MAKESPAN: Metric =
    metric("Makespan", Unit::Span, Better::Lower, |t| t.makespan_ms as f64)
        .means("Time from the first arrival to the last event.")
        .timed();
/// GPU time held.
pub(super) const GPU_HOURS: Metric =
    metric("GPU hours held", Unit::GpuHours, Better::Neither, |t| t.gpu_hours_held)
        .means("Hours of one whole GPU held by workloads; half a GPU for two hours is one.")
        .timed();
/// GPU time of GPUs with a tenant.
pub(super) const GPU_HOURS_IN_USE: Metric =
    metric("GPU hours in use", Unit::GpuHours, Better::Neither, |t| t.gpu_hours_in_use)
        .means(
            "GPUs with a tenant, times hours: whole ones, however little of them is held. The rest could be given back.",
        )
        .timed();
/// What GPUs in use cost.
pub(super) const COST: Metric = metric("Cost", Unit::Money, Better::Neither, |t| t.cost)
    .means(
        "GPU hours in use at the price given. Compare it only where the runs have started the same workloads.",
    )
    .timed()
    .if_any();
/// Times that somebody was asked to leave and did.
pub(super) const PREEMPTED: Metric =
    metric("Preempted", Unit::Count, Better::Lower, |t| t.preempted as f64)
        .means("Times that a workload left because it was asked to, for one of higher priority.")
        .timed()
        .if_any();
/// GPU time whose work is done again.
pub(super) const GPU_HOURS_LOST: Metric =
    metric("GPU hours lost", Unit::GpuHours, Better::Lower, |t| t.gpu_hours_lost)
        .means(
            "Hours of one whole GPU that preempted workloads had held: their work is done again.",
        )
        .timed()
        .if_any();
/// Mean wait.
pub(super) const WAIT_MEAN: Metric =
    metric("Wait, mean", Unit::Span, Better::Lower, |t| of_waits(t, t.waits.mean_ms))
        .means(
            "Time from submission to start, over the workloads that started. One that never starts \
             is not in it: read it beside those rejected and waiting.",
        )
        .timed();
/// Median wait.
pub(super) const WAIT_P50: Metric =
    metric("Wait, median", Unit::Span, Better::Lower, |t| of_waits(t, t.waits.p50_ms))
        .means("Half of the started workloads waited at most this long.")
        .timed();
/// 95th percentile of the waits.
pub(super) const WAIT_P95: Metric =
    metric("Wait, 95th percentile", Unit::Span, Better::Lower, |t| of_waits(t, t.waits.p95_ms))
        .means("One started workload in 20 waited longer.")
        .timed();
/// 99th percentile of the waits.
pub(super) const WAIT_P99: Metric =
    metric("Wait, 99th percentile", Unit::Span, Better::Lower, |t| of_waits(t, t.waits.p99_ms))
        .means("One started workload in 100 waited longer.")
        .timed();
/// Longest wait.
pub(super) const WAIT_MAX: Metric =
    metric("Wait, longest", Unit::Span, Better::Lower, |t| of_waits(t, t.waits.max_ms))
        .means("The longest wait of a workload that started.")
        .timed();

/// Every figure of [`Totals`] but the counts by size, in the order of the table.
const ALL: [&Metric; 18] = [
    &ALLOCATED,
    &ALLOCATED_MEAN,
    &FRAGMENTED,
    &ARRIVED,
    &STARTED,
    &REJECTED,
    &WAITING,
    &WAIT_MEAN,
    &WAIT_P50,
    &WAIT_P95,
    &WAIT_P99,
    &WAIT_MAX,
    &MAKESPAN,
    &GPU_HOURS,
    &GPU_HOURS_IN_USE,
    &COST,
    &PREEMPTED,
    &GPU_HOURS_LOST,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn best(values: &[f64], better: Better) -> Vec<bool> {
        mark_best(values, Unit::Percent, better).into_iter().map(|cell| cell.best).collect()
    }

    #[test]
    fn the_best_is_marked_unless_all_are_alike() {
        assert_eq!(best(&[1.0, 3.0, 2.0], Better::Higher), [false, true, false]);
        assert_eq!(best(&[1.0, 3.0, 1.04], Better::Lower), [true, false, true]);
        assert_eq!(best(&[2.0, 2.0], Better::Lower), [false, false]);
        assert_eq!(best(&[2.0], Better::Higher), [false]);
        assert_eq!(best(&[f64::NAN, 2.0], Better::Higher), [false, false]);
        assert_eq!(best(&[f64::NAN, 2.0, 1.0], Better::Higher), [false, true, false]);
        assert_eq!(best(&[1.0, 2.0], Better::Neither), [false, false]);
        assert!(best(&[], Better::Higher).is_empty());
    }

    #[test]
    fn every_metric_is_explained() {
        assert!(ALL.iter().all(|metric| !metric.meaning.is_empty()));
    }
}
