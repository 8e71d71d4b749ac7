//! The page's tables: every total of every run, and rejections by size.

use crate::outcome::{Comparison, Size, SizeCount};

use super::metrics::{self, Better, Cell, Metric, mark_best};
use super::units::{ABSENT, Unit, grouped};

/// A table row.
pub(super) struct Row {
    /// What it shows.
    pub name: String,
    /// Which way is better, in a word; empty if neither.
    pub way: &'static str,
    /// One cell per run.
    pub cells: Vec<Cell>,
}

/// Returns one row per figure of the totals: those that say something about this comparison, and those
/// that need times where there were none, not judged.
pub(super) fn totals(comparison: &Comparison) -> (Vec<Row>, Vec<Row>) {
    let judged = |metric: &&Metric| comparison.timed || !metric.timed_only;
    let (judged, unjudged): (Vec<_>, Vec<_>) =
        metrics::shown(&comparison.runs).into_iter().partition(judged);
    let unmarked = |metric: &Metric| {
        let mut row = total(metric, comparison);
        row.way = "";
        row.cells.iter_mut().for_each(|cell| cell.best = false);
        row
    };
    let rows = judged.into_iter().map(|metric| total(metric, comparison)).collect();
    (rows, unjudged.into_iter().map(unmarked).collect())
}

fn total(metric: &Metric, comparison: &Comparison) -> Row {
    let way = match metric.better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
        Better::Neither => "",
    };
    Row { name: metric.name.to_owned(), way, cells: metric.cells(&comparison.runs) }
}

/// Returns one row per size that arrived in some run: rejected of arrived, with its share.
pub(super) fn by_size(comparison: &Comparison) -> Vec<Row> {
    let row = |(index, size): (usize, Size)| {
        let counts = counts(comparison, index);
        let cell = |(count, cell): (&SizeCount, Cell)| Cell {
            text: size_text(*count, &cell.text),
            best: cell.best,
        };
        let cells = counts.iter().zip(share_cells(&counts)).map(cell).collect();
        Row { name: size.label().to_owned(), way: "", cells }
    };
    arrived_sizes(comparison).into_iter().map(row).collect()
}

/// Returns one row per size that arrived in some run: the rejected share alone.
pub(super) fn shares_by_size(comparison: &Comparison) -> Vec<Row> {
    let row = |(index, size): (usize, Size)| Row {
        name: size.label().to_owned(),
        way: "",
        cells: share_cells(&counts(comparison, index)),
    };
    arrived_sizes(comparison).into_iter().map(row).collect()
}

/// Returns the sizes of which a workload arrived in some run, with their place in `by_size`.
pub(super) fn arrived_sizes(comparison: &Comparison) -> Vec<(usize, Size)> {
    let arrived = |index| counts(comparison, index).iter().any(|count| count.arrived > 0);
    Size::ALL.into_iter().enumerate().filter(|(index, _)| arrived(*index)).collect()
}

/// Returns the rejected share of the arrived, percent; nothing arrived is nothing rejected.
pub(super) fn share_pct(count: SizeCount) -> f64 {
    100.0 * count.rejected as f64 / count.arrived.max(1) as f64
}

fn counts(comparison: &Comparison, index: usize) -> Vec<SizeCount> {
    comparison.runs.iter().map(|run| run.totals.by_size[index]).collect()
}

fn share_cells(counts: &[SizeCount]) -> Vec<Cell> {
    let share = |count: &SizeCount| match count.arrived {
        0 => f64::NAN,
        _ => share_pct(*count),
    };
    let shares: Vec<f64> = counts.iter().map(share).collect();
    mark_best(&shares, Unit::Percent, Better::Lower)
}

fn size_text(count: SizeCount, share: &str) -> String {
    if count.arrived == 0 {
        return ABSENT.to_owned();
    }
    let [rejected, arrived] = [count.rejected, count.arrived].map(|n| grouped(n as f64, 0));
    format!("{rejected} of {arrived} ({share})")
}
