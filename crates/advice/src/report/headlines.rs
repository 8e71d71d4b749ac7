//! The few figures at the top of the page: what sharing as advised makes of whole cards.

use engine::sharing::money;
use model::SharingKind;
use simulator::report::draw::grouped;

use super::figures::{counted, hours, percent, two_decimals};
use super::money::{is_day, saved};
use crate::{Row, Way};

/// A figure with what it means.
pub(super) struct Headline {
    pub(super) name: &'static str,
    pub(super) figure: String,
    pub(super) verdict: String,
}

/// Empty only if there are no rows.
pub(super) fn headlines(rows: &[Row], price: Option<f64>) -> Vec<Headline> {
    let whole = rows.iter().find(|row| row.way == Way::All(SharingKind::Exclusive));
    let Some((advised, whole)) = rows.last().zip(whole) else { return Vec::new() };
    let mut all = vec![
        Headline {
            name: "Cards, all at once",
            figure: grouped(advised.gpus as f64, 0),
            verdict: format!("instead of {}", counted(whole.gpus, "whole card")),
        },
        gpu_hours(advised, rows),
    ];
    all.push(match price {
        Some(price) => cost(advised, rows, price),
        None => use_of_cards(advised, whole),
    });
    all.push(Headline {
        name: "Worst α",
        figure: two_decimals(advised.worst_alpha),
        verdict: format!(
            "the slowest at {} of its speed alone",
            percent(1.0 / (1.0 + advised.worst_alpha))
        ),
    });
    all
}

/// Efficiency, or memory booked where nobody says what it computes.
fn use_of_cards(advised: &Row, whole: &Row) -> Headline {
    let (name, of): (_, fn(&Row) -> f64) = match advised.compute_use > 0.0 {
        true => ("Efficiency η", |row| row.efficiency),
        false => ("Memory booked", |row| row.memory_use),
    };
    let verdict = format!("with whole cards {}", percent(of(whole)));
    Headline { name, figure: percent(of(advised)), verdict }
}

fn gpu_hours(advised: &Row, rows: &[Row]) -> Headline {
    let name = if is_day(rows) { "GPU hours a day" } else { "GPU hours" };
    let verdict = compared(saved(advised, rows).map(|(_, part)| part), percent);
    Headline { name, figure: hours(advised.hours.held), verdict }
}

fn cost(advised: &Row, rows: &[Row], price: f64) -> Headline {
    let name = if is_day(rows) { "Cost a day" } else { "Cost" };
    let saved = saved(advised, rows).map(|(hours, _)| money(hours, price));
    let verdict = compared(saved, two_decimals);
    Headline { name, figure: two_decimals(money(advised.hours.held, price)), verdict }
}

/// What is saved, in words.
fn compared(saved: Option<f64>, show: fn(f64) -> String) -> String {
    match saved {
        Some(saved) if show(saved) == show(0.0) => "as with whole cards".to_owned(),
        Some(saved) if saved < 0.0 => format!("{} more than with whole cards", show(-saved)),
        Some(saved) => format!("{} less than with whole cards", show(saved)),
        None => "not comparable with whole cards".to_owned(),
    }
}
