//! GPU hours held and busy under each way of sharing, what they cost, and what sharing saves against whole cards.

use engine::sharing::money;
use model::SharingKind;
use simulator::report::draw::{ABSENT, grouped};

use super::bars::{self, Bar};
use super::figures::{MONTH_DAYS, hours, percent, two_decimals};
use super::ways::{Line, Panel};
use crate::{Row, Way};

/// The hours' part of the page.
pub(super) struct Money {
    /// What the hours are of.
    pub(super) basis: &'static str,
    pub(super) panels: Vec<Panel>,
    pub(super) head: Vec<&'static str>,
    pub(super) table: Vec<Line>,
    pub(super) has_price: bool,
}

pub(super) fn money_of(rows: &[Row], price: Option<f64>) -> Money {
    let is_day = is_day(rows);
    Money {
        basis: if is_day {
            "No running times are given for all: hours are those of a day in which everybody runs all the time, a month has 30 days."
        } else {
            "Hours are of the simulated course of the list, with the arrivals and running times given, on the cards that there are."
        },
        panels: panels(rows, price),
        head: head(is_day, price.is_some()),
        table: rows.iter().map(|row| line(row, rows, is_day, price)).collect(),
        has_price: price.is_some(),
    }
}

/// Whether hours are those of a day, for want of running times.
pub(super) fn is_day(rows: &[Row]) -> bool {
    rows.iter().all(|row| row.course.is_none())
}

/// What a way saves of the hours of whole cards: hours, and their part of all; `None` where a course has left somebody out, so that the two
/// did not do the same, or where nothing is held.
pub(super) fn saved(row: &Row, rows: &[Row]) -> Option<(f64, f64)> {
    let whole = rows.iter().find(|one| one.way == Way::All(SharingKind::Exclusive))?;
    let is_whole_list = |one: &Row| one.course.is_none_or(|course| course.left == 0);
    let is_alike = is_whole_list(row) && is_whole_list(whole) && row.never == whole.never;
    let saved = whole.hours.held - row.hours.held;
    (is_alike && whole.hours.held > 0.0).then(|| (saved, saved / whole.hours.held))
}

fn panels(rows: &[Row], price: Option<f64>) -> Vec<Panel> {
    let held = |row: &Row| {
        let busy = row.hours.utilisation() * 100.0;
        (row.hours.held, format!("{}, {busy:.0} % busy", hours(row.hours.held)))
    };
    let mut panels = vec![Panel {
        title: "GPU hours held",
        caption: "The strong part is busy, as far as workloads say what they compute.",
        svg: drawn("GPU hours held", rows, held),
    }];
    if let Some(price) = price {
        let cost = |row: &Row| {
            let cost = money(row.hours.held, price);
            (cost, two_decimals(cost))
        };
        panels.push(Panel {
            title: "Cost",
            caption: "Of the hours held. The strong part pays for busy hours.",
            svg: drawn("Cost", rows, cost),
        });
    }
    panels
}

fn drawn(title: &str, rows: &[Row], of: impl Fn(&Row) -> (f64, String)) -> String {
    let bar = |row: &Row| {
        let (value, text) = of(row);
        Bar {
            name: row.way.to_string(),
            value,
            strong: Some(value * row.hours.utilisation()),
            text,
            is_advised: row.way == Way::AsAdvised,
        }
    };
    bars::draw(title, &rows.iter().map(bar).collect::<Vec<_>>(), None)
}

fn head(is_day: bool, has_price: bool) -> Vec<&'static str> {
    let mut head = if is_day {
        vec!["GPU hours a day", "busy", "idle"]
    } else {
        vec!["GPU hours", "busy", "idle"]
    };
    head.push("saved against whole cards");
    if has_price {
        head.push(if is_day { "cost a day" } else { "cost" });
        head.push("saved");
    }
    if has_price && is_day {
        head.extend(["cost a month", "saved a month"]);
    }
    head
}

fn line(row: &Row, rows: &[Row], is_day: bool, price: Option<f64>) -> Line {
    let saved = saved(row, rows);
    let absent = || ABSENT.to_owned();
    let idle = (row.hours.held - row.hours.busy).max(0.0);
    let busy = row.hours.busy.min(row.hours.held);
    let mut cells = vec![grouped(row.hours.held, 1), grouped(busy, 1), grouped(idle, 1)];
    cells.push(saved.map_or_else(absent, |(_, part)| percent(part)));
    if let Some(price) = price {
        let cost = money(row.hours.held, price);
        let saved = saved.map(|(hours, _)| money(hours, price));
        let times: &[f64] = if is_day { &[1.0, MONTH_DAYS] } else { &[1.0] };
        for time in times {
            cells.push(two_decimals(cost * time));
            cells.push(saved.map_or_else(absent, |saved| two_decimals(saved * time)));
        }
    }
    Line { name: row.way.to_string(), is_advised: row.way == Way::AsAdvised, cells }
}
