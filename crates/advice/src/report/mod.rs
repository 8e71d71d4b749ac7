//! The advice as one HTML page that needs nothing else: no network, no script, no other file.
//!
//! `ways` puts the ways of sharing side by side, `cards` draws each card as advised to scale (`shares`, `slices` say what is on it, `lanes` draws, `fit` cuts names to their room),
//! `neighbours` shows who slows down whom by a `heat` map, `money` what it costs. Nothing here computes advice.
//!
//! **Invariant:** every name from a list passes `shown` and is escaped before a reader sees it.

mod bars;
mod cards;
mod figures;
mod fit;
mod headlines;
mod heat;
mod lanes;
mod money;
mod neighbours;
mod paints;
mod shares;
mod slices;
mod tenants;
mod ways;

use askama::Template;
use simulator::report::draw::{STYLE, shown};

use crate::{Advice, Question};
use cards::Drawn;
use figures::counted;
use headlines::Headline;
use money::Money;
use neighbours::Neighbours;
use ways::{Line, Panel};

/// What the template prints. Text is escaped there; what is marked `safe` comes from this crate and from the simulator's.
#[derive(Template)]
#[template(path = "advice.html.j2")]
struct Page {
    title: String,
    facts: String,
    notes: Vec<String>,
    headlines: Vec<Headline>,
    panels: Vec<Panel>,
    head: Vec<&'static str>,
    table: Vec<Line>,
    cards: Vec<Drawn>,
    cards_left_out: String,
    paints: [(String, &'static str); 5],
    neighbours: Neighbours,
    money: Money,
    patterns: String,
    style: &'static str,
}

/// Returns the page: ways of sharing compared, cards to scale, slow-down by neighbours, hours and money.
///
/// It opens from disk, on a phone, in a light or a dark room, and prints. Names are text, whatever they contain.
///
/// * `price` — what a GPU costs an hour, in whatever currency.
///
/// # Panics
/// Never: the page is written to memory, and nothing in it can fail.
pub fn html(question: &Question<'_>, advice: &Advice, price: Option<f64>) -> String {
    let (cards, cards_left_out) = cards::drawn(question, advice);
    let page = Page {
        title: title(question),
        facts: facts(question, advice),
        notes: notes(question, advice),
        headlines: headlines::headlines(&advice.rows, price),
        panels: ways::panels(&advice.rows),
        head: ways::head(&advice.rows),
        table: ways::table(&advice.rows),
        cards,
        cards_left_out,
        paints: legend(),
        neighbours: neighbours::neighbours(question, advice),
        money: money::money_of(&advice.rows, price),
        patterns: paints::patterns(),
        style: STYLE,
    };
    page.render().expect("text is written to memory, and nothing in the template can fail")
}

fn title(question: &Question<'_>) -> String {
    let count = question.trace.arrivals.len() as u64;
    let model = shown(&question.model.name);
    let verb = if count == 1 { "shares" } else { "share" };
    format!("How {} {verb} {model}", counted(count, "workload"))
}

fn facts(question: &Question<'_>, advice: &Advice) -> String {
    let needed = advice.rows.last().map_or(0, |row| row.gpus);
    format!(
        "{} needed for all at once as advised; {} {} there",
        counted(needed, "card"),
        counted(u64::from(question.cards), "card"),
        if question.cards == 1 { "is" } else { "are" }
    )
}

fn notes(question: &Question<'_>, advice: &Advice) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(never) = advice.rows.iter().map(|row| row.never).max().filter(|never| *never > 0) {
        let who = counted(never, "workload");
        notes.push(format!("Left out: {who}, for which no card of this model will do."));
    }
    if question.model.memory_mib == 0 {
        notes.push(
            "How much memory a card of this model has is not known: memory is not booked, and nobody who asks for memory is given a place."
                .to_owned(),
        );
    }
    notes
}

fn legend() -> [(String, &'static str); 5] {
    let ink = Some("var(--ink)");
    [
        (paints::swatch("asked", ink), "asked by a tenant"),
        (paints::swatch("held", ink), "held along with it, not asked for"),
        (paints::swatch(paints::FREE, None), "free"),
        (paints::swatch(paints::LOST, None), "lost: no instance can have it"),
        (paints::swatch(paints::OVER, None), "asked beyond what there is"),
    ]
}
