//! The comparison as one HTML page that needs nothing else: no network, no other file.

use askama::Template;

use crate::outcome::Comparison;

use super::figures::{Figure, figures};
use super::headlines::{Card, headlines};
use super::metrics::{self, Metric};
use super::names::shown;
use super::tables::{self, Row};
use super::units::grouped;
use super::{json, palette};

/// Characters of a name that a narrow card has room for.
const NAME_IN_CARD: usize = 12;

/// What the template prints. Text is escaped there; what is marked `safe` comes from this crate.
#[derive(Template)]
#[template(path = "report.html.j2")]
struct Page {
    trace: String,
    protocol: String,
    facts: String,
    policies: Vec<String>,
    /// Whether names are too long for cards four abreast.
    names_are_long: bool,
    cards: Vec<Card>,
    figures: Vec<Figure>,
    notes: Vec<String>,
    totals: Vec<Row>,
    unjudged: Vec<Row>,
    by_size: Vec<Row>,
    metrics: Vec<&'static Metric>,
    hatches: String,
    document: String,
    format: &'static str,
}

/// Returns the page: headline figures, plots, tables, what they mean, and the data itself as JSON.
///
/// It opens from disk, on a phone, in a light or a dark room, and is complete without its script, which
/// only adds values under the pointer. Names from the comparison are text, whatever they contain.
///
/// # Panics
/// Never: the page is written to memory, and nothing in it can fail.
pub fn html(comparison: &Comparison) -> String {
    let (figures, notes) = figures(comparison);
    let (totals, unjudged) = tables::totals(comparison);
    let policies: Vec<String> = comparison.runs.iter().map(|run| shown(&run.policy)).collect();
    let page = Page {
        trace: shown(&comparison.trace),
        protocol: match comparison.protocol.as_str() {
            "" => String::new(),
            protocol => shown(protocol),
        },
        facts: facts(comparison),
        names_are_long: policies.iter().any(|name| name.chars().count() > NAME_IN_CARD),
        policies,
        cards: headlines(comparison),
        figures,
        notes,
        totals,
        unjudged,
        by_size: tables::by_size(comparison),
        metrics: metrics::shown(&comparison.runs),
        hatches: palette::hatches(comparison.runs.len()),
        document: json::embedded(comparison),
        format: json::FORMAT,
    };
    page.render().expect("text is written to memory, and nothing in the template can fail")
}

/// Returns the size of what was compared, as a phrase.
pub(super) fn facts(comparison: &Comparison) -> String {
    let counted = |count: u64, one: &str, many: &str| {
        format!("{} {}", grouped(count as f64, 0), if count == 1 { one } else { many })
    };
    [
        counted(comparison.nodes, "node", "nodes"),
        counted(comparison.gpus, "GPU", "GPUs"),
        counted(comparison.runs.len() as u64, "policy", "policies"),
    ]
    .join(", ")
}
