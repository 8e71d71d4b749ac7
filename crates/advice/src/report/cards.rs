//! The cards as advised, each different one drawn once.

use std::cmp::Reverse;

use model::SharingKind;

use super::figures::counted;
use super::lanes;
use super::paints::tenant_swatch;
use super::tenants::{Colours, Part, parts};
use super::{shares, slices};
use crate::groups;
use crate::{Advice, Card, Question};

/// Different cards drawn.
const CARDS_MAX: usize = 64;
/// Lines of a card's list.
const LINES_MAX: usize = 8;

/// A card with its words.
pub(super) struct Drawn {
    /// How many there are, and how they are shared.
    pub(super) title: String,
    pub(super) caption: String,
    /// The drawing.
    pub(super) svg: String,
    pub(super) entries: Vec<Entry>,
    /// What the list leaves out; empty if nothing.
    pub(super) more: String,
}

/// A kind of tenant in a card's list.
pub(super) struct Entry {
    pub(super) swatch: String,
    pub(super) name: String,
    pub(super) told: String,
}

/// The cards drawn, those of which there are most first, and what is left out of them; empty if nothing.
pub(super) fn drawn(question: &Question<'_>, advice: &Advice) -> (Vec<Drawn>, String) {
    let mut all = groups::cards(question.trace, &advice.cards);
    all.sort_by_key(|(count, _)| Reverse(*count));
    let colours = Colours::of(question.trace);
    let shown = all.iter().take(CARDS_MAX);
    let drawn = shown.map(|(count, card)| draw(question, &colours, *count, card)).collect();
    let rest = all.get(CARDS_MAX..).unwrap_or_default();
    let cards: usize = rest.iter().map(|(count, _)| count).sum();
    let left_out = match rest.len() {
        0 => String::new(),
        kinds => format!(
            "{} of {} that differ are not drawn; hotpot advise --output json lists all.",
            counted(cards as u64, "more card"),
            counted(kinds as u64, "kind")
        ),
    };
    (drawn, left_out)
}

fn draw(question: &Question<'_>, colours: &Colours<'_>, count: usize, card: &Card) -> Drawn {
    let model = question.model;
    let parts = parts(question, colours, card);
    let instances = match card.mode {
        SharingKind::Mig => slices::drawing(model, &parts),
        SharingKind::Exclusive
        | SharingKind::TimeSlice
        | SharingKind::Mps
        | SharingKind::MemoryCapped => None,
    };
    let drawing = instances.unwrap_or_else(|| shares::drawing(model, card.mode, &parts));
    let title = format!("{count} × {}", card.mode);
    let entries = entries(&parts);
    let kinds = entries.len();
    let told =
        format!("{title}. Memory: {}. Compute: {}.", drawing.memory.figure, drawing.compute.figure);
    Drawn {
        svg: lanes::draw(&drawing, &told),
        caption: caption(card),
        title,
        entries: entries.into_iter().take(LINES_MAX).collect(),
        more: match kinds.saturating_sub(LINES_MAX) {
            0 => String::new(),
            more => format!("and {}", counted(more as u64, "more kind")),
        },
    }
}

fn caption(card: &Card) -> String {
    let tenants = counted(card.held.len() as u64, "tenant");
    let fault = match card.mode {
        SharingKind::Mps if card.held.len() > 1 => "; a fault of one ends all",
        SharingKind::Exclusive
        | SharingKind::Mps
        | SharingKind::Mig
        | SharingKind::TimeSlice
        | SharingKind::MemoryCapped => "",
    };
    format!("{tenants}, isolation: {}{fault}", card.mode.isolation())
}

/// Tenants of which the same is told, on one line each.
fn entries(parts: &[Part<'_>]) -> Vec<Entry> {
    let mut lines: Vec<(usize, &Part<'_>, String)> = Vec::new();
    for part in parts {
        let told = part.told();
        let known = lines.iter_mut().find(|(_, one, said)| one.name == part.name && *said == told);
        match known {
            Some((count, ..)) => *count += 1,
            None => lines.push((1, part, told)),
        }
    }
    let entry = |(count, part, told): (usize, &Part<'_>, String)| Entry {
        swatch: tenant_swatch(part.colour),
        name: match count {
            1 => part.name.clone(),
            count => format!("{count} × {}", part.name),
        },
        told,
    };
    lines.into_iter().map(entry).collect()
}
