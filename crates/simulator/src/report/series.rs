//! What is drawn over a run: the x axis (demand or time) and the fields of a sample.

use crate::outcome::{Comparison, Outcome, Sample};

use super::units::{Unit, usable};

/// A field of [`Sample`] drawn against the x axis.
pub(super) struct Field {
    /// Its name in the JSON document, by which the page's script finds the values.
    pub key: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Reads it.
    pub of: fn(&Sample) -> f64,
}

/// GPU compute held.
pub(super) const ALLOCATED: Field =
    Field { key: "allocated_pct", unit: Unit::Percent, of: |s| s.allocated_pct };
/// Idle GPU compute that the expected mix cannot use.
pub(super) const FRAGMENTED: Field =
    Field { key: "fragmented_pct", unit: Unit::Percent, of: |s| s.fragmented_pct };
/// GPUs with at least one tenant.
pub(super) const BUSY: Field = Field { key: "busy_pct", unit: Unit::Percent, of: |s| s.busy_pct };
/// Workloads that wait.
pub(super) const WAITING: Field =
    Field { key: "waiting", unit: Unit::Count, of: |s| s.waiting as f64 };
/// Workloads turned away so far.
pub(super) const REJECTED: Field =
    Field { key: "rejected", unit: Unit::Count, of: |s| s.rejected as f64 };

/// The x axis of a comparison, the same for all its plots.
#[derive(Clone, Copy, Debug)]
pub(super) enum Axis {
    /// Demand that has arrived, in percent of the fleet's GPUs.
    Demand,
    /// Time of the trace in ms, from the earliest sample on.
    Time {
        /// The earliest sample.
        start_ms: u64,
    },
}

impl Axis {
    /// Returns the axis that suits the comparison.
    pub(super) fn of(comparison: &Comparison) -> Self {
        if !comparison.timed {
            return Self::Demand;
        }
        let samples = comparison.runs.iter().flat_map(|run| &run.samples);
        Self::Time { start_ms: samples.map(|sample| sample.at_ms).min().unwrap_or(0) }
    }

    /// Returns where a sample lies on the axis: percent, or ms since the start.
    pub(super) fn x(self, sample: &Sample) -> f64 {
        match self {
            Self::Demand => sample.arrived_pct,
            Self::Time { start_ms } => sample.at_ms.saturating_sub(start_ms) as f64,
        }
    }

    /// Returns the range of all samples, or nothing if none can be drawn.
    pub(super) fn domain(self, comparison: &Comparison) -> Option<(f64, f64)> {
        let samples = comparison.runs.iter().flat_map(|run| &run.samples);
        let mut xs = samples.map(|sample| self.x(sample)).filter(|x| usable(*x));
        let first = xs.next()?;
        // Both axes count from the start of the run.
        Some(xs.fold((first.min(0.0), first), |(lo, hi), x| (lo.min(x), hi.max(x))))
    }
}

/// Returns a run's drawable points for a field, in order of the run; a point that cannot be drawn is
/// `None` and breaks the line. Over time a value holds until the next sample: the points make steps.
pub(super) fn points<'a>(
    run: &'a Outcome,
    axis: Axis,
    field: &'a Field,
) -> impl Iterator<Item = Option<(f64, f64)>> + 'a {
    let steps = matches!(axis, Axis::Time { .. });
    let mut held: Option<f64> = None;
    run.samples.iter().flat_map(move |sample| {
        let (x, y) = (axis.x(sample), (field.of)(sample));
        let point = (usable(x) && usable(y)).then_some((x, y));
        let corner = held.filter(|_| steps).zip(point).map(|(held, (x, _))| (x, held));
        held = point.map(|(_, y)| y);
        corner.map(Some).into_iter().chain([point])
    })
}

/// Returns a run's value at `x`, straight between the points around it; beyond them, the outermost.
pub(super) fn value_at(run: &Outcome, axis: Axis, field: &Field, x: f64) -> Option<f64> {
    let mut before: Option<(f64, f64)> = None;
    for (at, value) in points(run, axis, field).flatten() {
        if at > x {
            return Some(before.map_or(value, |(from, start)| {
                start + (value - start) * (x - from) / (at - from)
            }));
        }
        before = Some((at, value));
    }
    before.map(|(_, value)| value)
}

/// Places at which the runs are compared to find where they part.
const PROBES: u32 = 200;

/// Returns the start of the interesting end of an arrivals-only run: where allocation begins to differ
/// between policies, if a notable part of the axis lies before.
pub(super) fn parting(comparison: &Comparison) -> Option<f64> {
    if comparison.timed {
        return None;
    }
    let axis = Axis::of(comparison);
    let (lo, hi) = axis.domain(comparison)?;
    let probe = |index: u32| lo + (hi - lo) * f64::from(index) / f64::from(PROBES);
    let spreads: Vec<f64> =
        (0..=PROBES).map(|index| spread(comparison, axis, probe(index))).collect();
    let widest = spreads.iter().copied().fold(0.0, f64::max);
    let parted = spreads.iter().position(|spread| *spread > 0.15 * widest)?;
    let start = probe(u32::try_from(parted).ok()?.saturating_sub(PROBES / 20));
    (start - lo > 0.25 * (hi - lo)).then_some(start)
}

fn spread(comparison: &Comparison, axis: Axis, x: f64) -> f64 {
    let values = comparison.runs.iter().filter_map(|run| value_at(run, axis, &ALLOCATED, x));
    let (lo, hi) =
        values.fold((f64::MAX, f64::MIN), |(lo, hi), value| (lo.min(value), hi.max(value)));
    (hi - lo).max(0.0)
}
