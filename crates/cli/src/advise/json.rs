//! Advice for programs.

use advice::scheme::Scheme;
use advice::{Advice, Card, Row};
use engine::sharing::money;
use serde::Serialize;

use super::Asked;

#[derive(Serialize)]
struct Printed<'a> {
    format: &'static str,
    gpu: &'a str,
    gpus: u32,
    workloads: Vec<One<'a>>,
    cards: &'a [Card],
    ways: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct One<'a> {
    name: &'a str,
    #[serde(flatten)]
    scheme: &'a Scheme,
    text: String,
    warning_texts: Vec<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    name: String,
    #[serde(flatten)]
    row: &'a Row,
    gpu_hours_held: f64,
    gpu_hours_busy: f64,
    money: Option<f64>,
}

pub(super) fn text(asked: &Asked<'_>, advice: &Advice) -> String {
    let arrivals = asked.question.trace.arrivals.iter().zip(&advice.each);
    let workloads = arrivals.map(|(arrival, scheme)| One {
        name: &arrival.workload.name,
        scheme,
        text: scheme.because.to_string(),
        warning_texts: scheme.warnings.iter().map(ToString::to_string).collect(),
    });
    let ways = advice.rows.iter().map(|row| Line {
        name: row.way.to_string(),
        row,
        gpu_hours_held: row.hours.held,
        gpu_hours_busy: row.hours.busy,
        money: asked.price.map(|price| money(row.hours.held, price)),
    });
    crate::words::to_json(&Printed {
        format: "hotpot-advice/1",
        gpu: &asked.question.model.name,
        gpus: asked.question.cards,
        workloads: workloads.collect(),
        cards: &advice.cards,
        ways: ways.collect(),
    })
}
