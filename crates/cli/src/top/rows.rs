//! The table of GPUs: one line of figures and one bar for each, in the columns that fit.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::bar::bar;
use super::pot::{Pot, Sharing};

const GIB: f64 = (1_u64 << 30) as f64;
/// Cells of the small meter beside the busy ratio.
const METER: usize = 10;
/// Cells before the bar, so that it stands below the model's name.
const INDENT: usize = 5;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Index,
    Model,
    Mode,
    Busy,
    Meter,
    Memory,
    Free,
    Temperature,
    Power,
    Enforcement,
    Alpha,
}

/// Columns, heads and widths, in order.
const COLUMNS: [(Column, &str, usize); 11] = [
    (Column::Index, "GPU", 3),
    (Column::Model, "model", 16),
    (Column::Mode, "mode", 9),
    (Column::Busy, " busy", 5),
    (Column::Meter, "", METER),
    (Column::Memory, "   memory GiB", 13),
    (Column::Free, "free GiB", 8),
    (Column::Temperature, " °C", 3),
    (Column::Power, "   W", 4),
    (Column::Enforcement, "isolation", 11),
    (Column::Alpha, "   α", 4),
];

/// What is given up first where the screen is narrow.
const DISPENSABLE: [Column; 9] = [
    Column::Meter,
    Column::Enforcement,
    Column::Power,
    Column::Temperature,
    Column::Model,
    Column::Mode,
    Column::Memory,
    Column::Busy,
    Column::Free,
];

/// Cells of a GPU's place at most, where its node is part of it.
const PLACE_MAX: usize = 20;

/// The columns for a width. α only where it is known of any GPU; of a cluster what Slurm could still give, and
/// not what holds caps, which only the node knows.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    chosen: Vec<(Column, &'static str, usize)>,
    width: usize,
    places: bool,
}

impl Columns {
    /// * `places` — GPUs are named with their nodes: they are not in the order of those.
    pub(super) fn fitting(width: usize, pots: &[&Pot], places: bool) -> Self {
        let mut chosen = COLUMNS.to_vec();
        if pots.iter().all(|pot| pot.alpha.is_none()) {
            chosen.retain(|(column, ..)| *column != Column::Alpha);
        }
        let of_cluster = pots.iter().any(|pot| pot.on.is_some());
        let other = if of_cluster { Column::Enforcement } else { Column::Free };
        chosen.retain(|(column, ..)| *column != other);
        if let Some(index) =
            chosen.iter_mut().find(|(column, ..)| *column == Column::Index && places)
        {
            let longest = pots.iter().map(|pot| pot.place().chars().count()).max();
            index.2 = longest.unwrap_or(0).clamp(index.2, PLACE_MAX);
        }
        for column in DISPENSABLE {
            let needed: usize = chosen.iter().map(|(.., wide)| wide + 1).sum();
            if needed < width {
                break;
            }
            chosen.retain(|(other, ..)| *other != column);
        }
        Self { chosen, width, places }
    }

    pub(super) fn head(&self) -> Line<'static> {
        let cells = self.chosen.iter().map(|(_, head, wide)| format!("{head:<wide$}"));
        let text = cells.collect::<Vec<_>>().join(" ");
        Line::styled(format!(" {}", text.trim_end()), Style::new().add_modifier(Modifier::DIM))
    }

    /// Figures and bar of one GPU.
    pub(super) fn rows(&self, pot: &Pot, selected: bool) -> [Line<'static>; 2] {
        let mut spans = vec![Span::raw(if selected { "▸" } else { " " })];
        for (column, _, wide) in &self.chosen {
            let (text, style) = if *column == Column::Index && self.places {
                (fitted(&pot.place(), *wide), Style::new())
            } else {
                cell(*column, pot, *wide)
            };
            spans.push(Span::styled(text, style));
            spans.push(Span::raw(" "));
        }
        let mut line = Line::from(spans);
        if selected {
            line = line.style(Style::new().add_modifier(Modifier::BOLD));
        }
        let mut below = Line::raw(" ".repeat(INDENT.min(self.width)));
        below.extend(match pot.sharing {
            Sharing::Lost => Line::styled("the driver no longer reaches it", RED),
            Sharing::Mig
            | Sharing::Mps
            | Sharing::Exclusive
            | Sharing::MemoryCapped
            | Sharing::TimeSlice
            | Sharing::Shared
            | Sharing::Single
            | Sharing::Idle => bar(pot, self.width.saturating_sub(INDENT + 1)),
        });
        [line, below]
    }
}

const RED: Style = Style::new().fg(Color::Red);

fn cell(column: Column, pot: &Pot, wide: usize) -> (String, Style) {
    let plain = Style::new();
    match column {
        Column::Index => (format!("{:>wide$}", pot.index), plain),
        Column::Model => (fitted(&pot.model, wide), plain),
        Column::Mode if pot.sharing == Sharing::Lost => (fitted("LOST", wide), RED),
        Column::Mode => (fitted(pot.sharing.as_str(), wide), plain),
        Column::Busy => (format!("{:>wide$}", percent(pot.busy_ratio)), plain),
        Column::Meter => (meter(pot.busy_ratio), plain.fg(Color::Blue)),
        Column::Memory => {
            let (used, total) = (gib(pot.memory_used_bytes), gib(pot.memory_total_bytes));
            (format!("{used:>5} / {total:>5}"), plain)
        }
        Column::Free => (format!("{:>wide$}", gib(pot.free_bytes())), plain),
        Column::Temperature => (format!("{:>wide$}", whole(pot.temperature_celsius)), plain),
        Column::Power => (format!("{:>wide$}", whole(pot.power_watts)), plain),
        Column::Enforcement => (fitted(pot.enforcement, wide), plain),
        Column::Alpha => (format!("{:>wide$}", two_digits(pot.alpha)), plain),
    }
}

/// A text in exactly `wide` cells, cut where it is longer.
pub(super) fn fitted(text: &str, wide: usize) -> String {
    let count = text.chars().count();
    if count <= wide {
        return format!("{text:<wide$}");
    }
    let kept: String = text.chars().take(wide.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// A part of 1 in percent; `–` where unknown, as in all of these.
pub(super) fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(unknown, |ratio| format!("{:.0} %", ratio * 100.0))
}

/// GiB with one digit.
pub(super) fn gib(bytes: Option<u64>) -> String {
    bytes.map_or_else(unknown, |bytes| format!("{:.1}", bytes as f64 / GIB))
}

fn whole(value: Option<f64>) -> String {
    value.map_or_else(unknown, |value| format!("{value:.0}"))
}

fn two_digits(value: Option<f64>) -> String {
    value.map_or_else(unknown, |value| format!("{value:.2}"))
}

fn unknown() -> String {
    "–".into()
}

fn meter(ratio: Option<f64>) -> String {
    let Some(ratio) = ratio else { return " ".repeat(METER) };
    let full = ((ratio.clamp(0.0, 1.0) * METER as f64).round() as usize).min(METER);
    "█".repeat(full) + &"░".repeat(METER - full)
}
