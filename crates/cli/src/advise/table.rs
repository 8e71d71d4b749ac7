//! Advice for people: each kind of workload, the cards, and the ways of sharing side by side.

use std::collections::BTreeMap;
use std::fmt::Write;

use advice::groups::{alike, cards, stem_of};
use advice::{Advice, Card, Row};
use engine::sharing::money;
use node::amounts::mib;

use super::Asked;

/// Kinds of workloads and of cards shown.
const LINES_MAX: usize = 30;

pub(super) fn text(asked: &Asked<'_>, advice: &Advice) -> String {
    let mut text = String::new();
    workloads(&mut text, asked, advice);
    layout(&mut text, asked, &advice.cards);
    ways(&mut text, asked, &advice.rows);
    text
}

fn workloads(text: &mut String, asked: &Asked<'_>, advice: &Advice) {
    let all = alike(asked.question.trace, asked.question.model, &advice.each);
    for one in all.iter().take(LINES_MAX) {
        let profile = one.scheme.profile.iter().map(|name| format!(" {name}")).collect::<String>();
        let _ = writeln!(text, "{}: {}{profile}", one.name(), one.scheme.kind);
        let _ = writeln!(text, "    {}", one.scheme.because);
        for warning in &one.scheme.warnings {
            let _ = writeln!(text, "    warning: {warning}");
        }
    }
    more(text, all.len(), "kinds of workloads");
}

fn more(text: &mut String, all: usize, what: &str) {
    if all > LINES_MAX {
        let _ = writeln!(text, "… and {} more {what}; --output json has all", all - LINES_MAX);
    }
}

fn layout(text: &mut String, asked: &Asked<'_>, all: &[Card]) {
    let groups = cards(asked.question.trace, all);
    let _ = writeln!(text, "\n{} as advised:", counted(all.len(), "card"));
    for (count, card) in groups.iter().take(LINES_MAX) {
        let _ = writeln!(text, "{count:>6} × {}: {}", card.mode, tenants(asked, card));
    }
    more(text, groups.len(), "kinds of cards");
}

/// `2 × embed 2.0 GiB, llm 38 GiB`.
fn tenants(asked: &Asked<'_>, card: &Card) -> String {
    let mut held: BTreeMap<(String, u64, u32), usize> = BTreeMap::new();
    for one in &card.held {
        let name = stem_of(asked.question.trace, one).to_owned();
        *held.entry((name, one.memory_mib, one.compute_milli)).or_default() += 1;
    }
    let one = |((name, memory_mib, compute_milli), count): (&(String, u64, u32), &usize)| {
        let times = if *count > 1 { format!("{count} × ") } else { String::new() };
        let compute = match compute_milli {
            0 => String::new(),
            milli => format!(", {milli}/1000"),
        };
        format!("{times}{name} ({}{compute})", mib(*memory_mib))
    };
    held.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn ways(text: &mut String, asked: &Asked<'_>, rows: &[Row]) {
    let has_course = rows.iter().any(|row| row.course.is_some());
    let mut head = vec![
        "way of sharing",
        "cards",
        "alone",
        "memory",
        "compute",
        "stranded",
        "efficiency",
        "worst α",
        "latency",
        "isolation",
        "one fault ends",
    ];
    head.push(if has_course { "GPU hours held" } else { "GPU hours a day" });
    head.push("busy");
    if has_course {
        head.push("takes");
    }
    if asked.price.is_some() {
        head.push("money");
    }
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(asked, row, has_course)).collect();
    let width = |at: usize| {
        let longest = cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        longest.max(head[at].chars().count())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let head: Vec<String> = head.iter().map(|word| (*word).to_owned()).collect();
    text.push('\n');
    for row in std::iter::once(&head).chain(&cells) {
        let line = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(text, "{}", line.collect::<Vec<_>>().join("  "));
    }
    notes(text, asked, rows, has_course);
}

fn cells(asked: &Asked<'_>, row: &Row, has_course: bool) -> Vec<String> {
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let mut cells = vec![
        row.way.to_string(),
        row.gpus.to_string(),
        row.alone.to_string(),
        percent(row.memory_use),
        percent(row.compute_use),
        mib(row.stranded_mib),
        percent(row.efficiency),
        format!("{:.2}", row.worst_alpha),
        row.worst_latency.map_or_else(|| "–".to_owned(), |factor| format!("× {factor:.2}")),
        row.isolation.to_string(),
        row.fault_domain.to_string(),
        format!("{:.1}", row.hours.held),
        percent(row.hours.utilisation()),
    ];
    if has_course {
        let takes = row.course.map(|course| match course.left {
            0 => crate::words::span(course.total_ms),
            left => format!("{left} never start"),
        });
        cells.push(takes.unwrap_or_default());
    }
    cells.extend(asked.price.map(|price| format!("{:.2}", money(row.hours.held, price))));
    cells
}

fn notes(text: &mut String, asked: &Asked<'_>, rows: &[Row], has_course: bool) {
    let cards = u64::from(asked.question.cards);
    let _ = writeln!(text);
    if let Some(row) = rows.last().filter(|row| row.gpus > cards) {
        let _ = writeln!(text, "There are {cards} cards; all at once need {}.", row.gpus);
    }
    if let Some(never) = rows.iter().map(|row| row.never).max().filter(|never| *never > 0) {
        let who = counted(usize::try_from(never).unwrap_or(usize::MAX), "workload");
        let _ = writeln!(text, "Left out: {who}, for which no card of this model will do.");
    }
    let _ = writeln!(
        text,
        "alone: cannot share in this way and have whole cards. compute, busy: as far as workloads say what they compute."
    );
    let _ = writeln!(
        text,
        "worst α: predicted time lost beside others, 1 is half speed; who does not say what it computes is taken to want all of the card. latency: how \
         many times longer answers take at most, where somebody waits for them."
    );
    if has_course {
        let _ = writeln!(
            text,
            "GPU hours, takes: by simulation on {cards} cards of the arrivals and running times given."
        );
    }
}
