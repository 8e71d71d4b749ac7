//! Which plots the page shows, with their captions and legends, and what is left out.

use crate::outcome::{Comparison, Outcome};

use super::names::shown;
use super::plot::Plot;
use super::series::{self, Field};
use super::units::{ABSENT, grouped};
use super::{bars, palette};

/// A plot with its words.
pub(super) struct Figure {
    /// What it shows.
    pub title: &'static str,
    /// How to read it, in a sentence.
    pub caption: String,
    /// The drawing.
    pub svg: String,
    /// One entry per run.
    pub legend: Vec<Entry>,
    /// What the legend's figures are until a reader points at the plot.
    pub legend_title: &'static str,
}

/// A run in a legend.
pub(super) struct Entry {
    /// A sample of its line or bar.
    pub swatch: String,
    /// Its name.
    pub name: String,
    /// Its figure.
    pub value: String,
}

struct Subject {
    field: &'static Field,
    title: &'static str,
    caption: &'static str,
    y_title: &'static str,
}

const FLEET: &str = "% of the fleet’s GPUs";
const SUBJECTS: [Subject; 5] = [
    Subject {
        field: &series::ALLOCATED,
        title: "Allocation",
        caption: "GPU compute held by running workloads.",
        y_title: FLEET,
    },
    Subject {
        field: &series::FRAGMENTED,
        title: "Fragmentation",
        caption: "Idle GPU compute that the expected mix of workloads cannot use.",
        y_title: FLEET,
    },
    Subject {
        field: &series::BUSY,
        title: "Busy GPUs",
        caption: "GPUs with at least one tenant; the rest could be switched off.",
        y_title: FLEET,
    },
    Subject {
        field: &series::WAITING,
        title: "Waiting workloads",
        caption: "Workloads in the queue.",
        y_title: "workloads",
    },
    Subject {
        field: &series::REJECTED,
        title: "Rejected workloads",
        caption: "Workloads turned away so far.",
        y_title: "workloads",
    },
];

/// Returns the figures, and a note on each that would be empty.
pub(super) fn figures(comparison: &Comparison) -> (Vec<Figure>, Vec<String>) {
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    for subject in &SUBJECTS {
        if is_zero(comparison, subject.field) {
            notes.push(format!("{}: zero throughout, in every run.", subject.title));
            continue;
        }
        match lines(comparison, subject, None) {
            Some(figure) => figures.push(figure),
            None => notes.push(format!("{}: no sample can be drawn.", subject.title)),
        }
        if subject.field.key == series::ALLOCATED.key {
            figures.extend(close_up(comparison, subject));
        }
    }
    match by_size(comparison) {
        Some(figure) => figures.push(figure),
        None => notes.push("Rejected by size: no workload was rejected.".to_owned()),
    }
    (figures, notes)
}

fn is_zero(comparison: &Comparison, field: &Field) -> bool {
    let mut samples = comparison.runs.iter().flat_map(|run| &run.samples).peekable();
    samples.peek().is_some() && samples.all(|sample| (field.of)(sample) == 0.0)
}

/// Returns the part of the allocation plot where the runs part, if only a small part is.
fn close_up(comparison: &Comparison, subject: &Subject) -> Option<Figure> {
    let from = series::parting(comparison)?;
    let figure = lines(comparison, subject, Some(from))?;
    let caption = "The same where the runs part. Neither axis starts at zero.".to_owned();
    Some(Figure { title: "Allocation, close up", caption, ..figure })
}

fn lines(comparison: &Comparison, subject: &Subject, from: Option<f64>) -> Option<Figure> {
    let legend: Vec<Entry> = comparison
        .runs
        .iter()
        .enumerate()
        .map(|(run, outcome)| Entry {
            swatch: palette::line_swatch(run),
            name: shown(&outcome.policy),
            value: last_value(outcome, subject.field),
        })
        .collect();
    let summary = summary(subject.title, "at the end", &legend);
    let (field, y_title) = (subject.field, subject.y_title);
    let svg = Plot { comparison, field, y_title, summary: &summary, from }.draw()?;
    let caption = subject.caption.to_owned();
    Some(Figure { title: subject.title, caption, svg, legend, legend_title: "at the end" })
}

fn last_value(run: &Outcome, field: &Field) -> String {
    run.samples.last().map_or_else(|| ABSENT.to_owned(), |last| field.unit.show((field.of)(last)))
}

fn by_size(comparison: &Comparison) -> Option<Figure> {
    let entry = |(run, outcome): (usize, &Outcome)| {
        let sizes = &outcome.totals.by_size;
        let rejected: u64 = sizes.iter().map(|count| count.rejected).fold(0, u64::saturating_add);
        let arrived: u64 = sizes.iter().map(|count| count.arrived).fold(0, u64::saturating_add);
        Entry {
            swatch: palette::fill_swatch(run),
            name: shown(&outcome.policy),
            value: format!("{} of {}", grouped(rejected as f64, 0), grouped(arrived as f64, 0)),
        }
    };
    let legend: Vec<Entry> = comparison.runs.iter().enumerate().map(entry).collect();
    let title = "Rejected by size";
    let svg = bars::draw(comparison, &summary(title, "rejected of arrived", &legend))?;
    let caption = "Of the workloads of each size that arrived, those turned away or still waiting at the end. \
                   Bars stand in the order of the legend."
        .to_owned();
    Some(Figure { title, caption, svg, legend, legend_title: "all sizes" })
}

fn summary(title: &str, what: &str, legend: &[Entry]) -> String {
    let runs: Vec<String> =
        legend.iter().map(|entry| format!("{} {}", entry.name, entry.value)).collect();
    format!("{title}, {what}: {}.", runs.join(", "))
}
