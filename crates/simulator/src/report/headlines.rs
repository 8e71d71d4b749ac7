//! The few figures at the top of the page, one card each.

use crate::outcome::Comparison;

use super::metrics::{self, Better, Cell, Metric};
use super::names::shown;

/// Cards at most: a row on a desk.
const CARDS_MAX: usize = 4;

/// One headline figure of all runs.
pub(super) struct Card {
    /// What it is.
    pub name: &'static str,
    /// The best figure, or the one that all share.
    pub figure: String,
    /// Which way is better, and whose figure it is.
    pub verdict: String,
    /// Each run's name and figure.
    pub runs: Vec<(String, Cell)>,
}

/// Returns the cards that say something about this comparison, the most telling first.
pub(super) fn headlines(comparison: &Comparison) -> Vec<Card> {
    let candidates: &[&Metric] = if comparison.timed {
        &[
            &metrics::ALLOCATED_MEAN,
            &metrics::WAIT_MEAN,
            &metrics::WAIT_P95,
            &metrics::REJECTED,
            &metrics::WAITING,
            &metrics::MAKESPAN,
        ]
    } else {
        &[&metrics::ALLOCATED, &metrics::FRAGMENTED, &metrics::REJECTED, &metrics::STARTED]
    };
    let telling = candidates.iter().filter(|metric| metric.says_something(&comparison.runs));
    telling.take(CARDS_MAX).map(|metric| card(metric, comparison)).collect()
}

fn card(metric: &Metric, comparison: &Comparison) -> Card {
    let cells = metric.cells(&comparison.runs);
    let names = comparison.runs.iter().map(|run| shown(&run.policy));
    let runs: Vec<(String, Cell)> = names.zip(cells).collect();
    let best: Vec<&(String, Cell)> = runs.iter().filter(|(_, cell)| cell.best).collect();
    let figure = best.first().copied().or(runs.first()).map(|(_, cell)| cell.text.clone());
    let way = match metric.better {
        Better::Higher => "highest",
        Better::Lower => "lowest",
        Better::Neither => "shown",
    };
    let verdict = match best.as_slice() {
        [] if runs.len() > 1 => "alike in all runs".to_owned(),
        [] => String::new(),
        [(name, _)] => format!("{way}: {name}"),
        several => format!("{way}, shared by {} runs", several.len()),
    };
    Card { name: metric.name, figure: figure.unwrap_or_default(), verdict, runs }
}
