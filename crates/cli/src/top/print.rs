//! One picture as text, for pipes and `--once`: a table for people, JSON for programs.

use std::fmt::Write;

use ratatui::text::Line;
use serde::Serialize;

use super::draw::summary;
use super::pot::Pot;
use super::rows::Columns;
use super::{Picture, lines};

/// The table, the bars and below each its tenants, without colour.
pub(super) fn table(picture: &Picture, width: usize) -> String {
    let mut text = summary(picture) + "\n";
    if picture.pots.is_empty() {
        return text;
    }
    let columns = Columns::fitting(width, &picture.pots);
    let mut add = |line: &Line<'_>| {
        let _ = writeln!(text, "{}", line.to_string().trim_end());
    };
    add(&columns.head());
    for pot in &picture.pots {
        columns.rows(pot, false).iter().for_each(&mut add);
        lines::of(pot, width).into_iter().map(Line::raw).for_each(|line| add(&line));
    }
    text
}

#[derive(Serialize)]
struct Named<'a> {
    format: &'static str,
    at_ms: u64,
    simulated: bool,
    driver: &'a node::inventory::DriverFacts,
    gpus: &'a [Pot],
}

/// What was measured, with names; what is unknown is `null`.
pub(super) fn json(picture: &Picture) -> String {
    let Picture { at_ms, simulated, driver, pots } = picture;
    let format = "hotpot-top/1";
    crate::words::to_json(&Named {
        format,
        at_ms: *at_ms,
        simulated: *simulated,
        driver,
        gpus: pots,
    })
}
