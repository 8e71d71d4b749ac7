//! The ways of sharing side by side: panels of bars, and a table with every figure.

use simulator::report::draw::{ABSENT, grouped, span};

use super::bars::{self, Bar};
use super::figures::{counted, memory, percent, two_decimals};
use crate::{Course, Row, Way};

/// A panel of bars with its words.
pub(super) struct Panel {
    /// What it shows.
    pub(super) title: &'static str,
    /// How to read it.
    pub(super) caption: &'static str,
    /// The drawing.
    pub(super) svg: String,
}

/// A table row.
pub(super) struct Line {
    /// The way.
    pub(super) name: String,
    pub(super) is_advised: bool,
    /// In the order of the table's head.
    pub(super) cells: Vec<String>,
}

/// A figure that each way has.
struct Figure {
    title: &'static str,
    caption: &'static str,
    value: fn(&Row) -> f64,
    text: fn(&Row) -> String,
    full: Option<f64>,
}

const FIGURES: [Figure; 6] = [
    Figure {
        title: "Cards",
        caption: "Needed for all at once. Fewer is cheaper.",
        value: |row| row.gpus as f64,
        text: cards,
        full: None,
    },
    Figure {
        title: "Stranded memory",
        caption: "On cards in use, held by nobody.",
        value: |row| row.stranded_mib as f64,
        text: |row| memory(row.stranded_mib),
        full: None,
    },
    Figure {
        title: "Memory booked",
        caption: "Of the cards in use.",
        value: |row| row.memory_use,
        text: |row| percent(row.memory_use),
        full: Some(1.0),
    },
    Figure {
        title: "Compute asked",
        caption: "Of the cards in use; beyond the line more is asked than there is.",
        value: |row| row.compute_use,
        text: |row| percent(row.compute_use),
        full: Some(1.0),
    },
    Figure {
        title: "Efficiency η",
        caption: "What tenants get done beside each other, of what the cards could do.",
        value: |row| row.efficiency,
        text: |row| percent(row.efficiency),
        full: Some(1.0),
    },
    Figure {
        title: "Worst α",
        caption: "Time that the slowest is predicted to lose beside others: 0 none, 1 as much again.",
        value: |row| row.worst_alpha,
        text: |row| two_decimals(row.worst_alpha),
        full: None,
    },
];

fn cards(row: &Row) -> String {
    let text = grouped(row.gpus as f64, 0);
    match row.alone {
        0 => text,
        alone => format!("{text}, {} alone", grouped(alone as f64, 0)),
    }
}

pub(super) fn panels(rows: &[Row]) -> Vec<Panel> {
    let panel = |figure: &Figure| {
        let bars: Vec<Bar> = rows.iter().map(|row| bar(row, figure)).collect();
        let svg = bars::draw(figure.title, &bars, figure.full);
        Panel { title: figure.title, caption: figure.caption, svg }
    };
    FIGURES.iter().map(panel).collect()
}

fn bar(row: &Row, figure: &Figure) -> Bar {
    Bar {
        name: row.way.to_string(),
        value: (figure.value)(row),
        strong: None,
        text: (figure.text)(row),
        is_advised: row.way == Way::AsAdvised,
    }
}

/// The table's head; the last column only where courses are known.
pub(super) fn head(rows: &[Row]) -> Vec<&'static str> {
    let mut head = vec![
        "cards",
        "alone",
        "left out",
        "memory",
        "compute",
        "stranded",
        "efficiency η",
        "worst α",
        "latency",
        "isolation",
        "one fault ends",
    ];
    head.extend(rows.iter().any(|row| row.course.is_some()).then_some("takes"));
    head
}

pub(super) fn table(rows: &[Row]) -> Vec<Line> {
    let has_course = rows.iter().any(|row| row.course.is_some());
    rows.iter().map(|row| line(row, has_course)).collect()
}

fn line(row: &Row, has_course: bool) -> Line {
    let count = |count: u64| grouped(count as f64, 0);
    let mut cells = vec![
        count(row.gpus),
        count(row.alone),
        count(row.never),
        percent(row.memory_use),
        percent(row.compute_use),
        memory(row.stranded_mib),
        percent(row.efficiency),
        two_decimals(row.worst_alpha),
        row.worst_latency.map_or_else(|| ABSENT.to_owned(), |factor| format!("× {factor:.2}")),
        row.isolation.to_string(),
        counted(row.fault_domain, "workload"),
    ];
    if has_course {
        cells.push(row.course.map_or_else(|| ABSENT.to_owned(), takes));
    }
    Line { name: row.way.to_string(), is_advised: row.way == Way::AsAdvised, cells }
}

fn takes(course: Course) -> String {
    match course.left {
        0 => span(course.total_ms as f64),
        left => format!("{} never start", grouped(left as f64, 0)),
    }
}
