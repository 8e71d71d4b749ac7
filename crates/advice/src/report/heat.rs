//! Who is slowed down by whom: a map of predicted α, each kind of workload beside each.

use engine::interference::{Basis, Interference, Prediction, ShippedError, Tenant};
use engine::sharing::alpha;
use model::{Profile, SharingKind};
use simulator::report::draw::{At, Svg, shortened, shown};

use super::figures::{counted, percent, two_decimals};
use super::fit::width;
use super::paints;

/// Kinds on the map at most.
pub(super) const KINDS_MAX: usize = 24;
const NAME_MAX: usize = 26;
const CELL: (f64, f64) = (40.0, 34.0);
const TOP: f64 = 38.0;
const SLOWED: &str = "slowed down ↓";
const SLOWS: &str = "by a neighbour of the number →";
/// From these α on, a cell is of the next class.
const STEPS: [f64; 5] = [0.05, 0.15, 0.35, 0.7, 1.2];
/// The surest first.
const BASES: [Basis; 5] =
    [Basis::Pair, Basis::BothKinds, Basis::OneKind, Basis::Profile, Basis::Nothing];
const CLASSES: [&str; 6] = ["heat0", "heat1", "heat2", "heat3", "heat4", "heat5"];

/// A kind of workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind<'a> {
    /// Its name, as predictions know it.
    pub(super) name: &'a str,
    /// What is said of it alone.
    pub(super) profile: Profile,
    pub(super) is_waited_for: bool,
}

/// Predictions for pairs.
pub(super) struct Heat {
    /// The kinds, fit to show.
    names: Vec<String>,
    /// For each victim, in the order of `names`, beside each neighbour in that order.
    cells: Vec<Vec<Prediction>>,
}

/// A sample of a class, with its α in words.
pub(super) struct Step {
    pub(super) swatch: String,
    pub(super) text: String,
}

impl Heat {
    /// Predicts for each kind beside each, where both share a card of the model `gpu` in that mode.
    ///
    /// # Errors
    /// [`ShippedError`] if the shipped measurements cannot be read.
    pub(super) fn of(
        kinds: &[Kind<'_>],
        mode: SharingKind,
        gpu: &str,
    ) -> Result<Self, ShippedError> {
        let model = Interference::shipped()?;
        let beside = |victim: &Kind<'_>, other: &Kind<'_>| {
            let pair = [victim, other];
            let pair = pair.map(|one| Tenant {
                kind: one.name,
                profile: one.profile,
                is_waited_for: one.is_waited_for,
                ..Tenant::default()
            });
            model.predict(mode, gpu, &pair).into_iter().next()
        };
        let row = |victim: &Kind<'_>| kinds.iter().filter_map(|one| beside(victim, one)).collect();
        let name = |kind: &Kind<'_>| shortened(&shown(kind.name), NAME_MAX);
        Ok(Self { names: kinds.iter().map(name).collect(), cells: kinds.iter().map(row).collect() })
    }

    /// Whether anything on the map is a guess.
    pub(super) fn has_guesses(&self) -> bool {
        self.cells.iter().flatten().any(|cell| cell.basis == Basis::Nothing)
    }

    /// What the figures rest on, the surest first: `2 of 4: this pair has been measured`.
    pub(super) fn rests_on(&self) -> Vec<String> {
        let all: Vec<&Prediction> = self.cells.iter().flatten().collect();
        let count = |basis: Basis| all.iter().filter(|cell| cell.basis == basis).count();
        let counts =
            BASES.iter().map(|basis| (count(*basis), *basis)).filter(|(count, _)| *count > 0);
        let figures = counted(all.len() as u64, "figure");
        counts.map(|(count, basis)| format!("{count} of {figures}: {}.", rests_on(basis))).collect()
    }

    pub(super) fn draw(&self, title: &str) -> String {
        let names = self.names.iter().map(|name| 34.0 + width(name));
        let left = names.fold(12.0 + width(SLOWED), f64::max);
        let count = self.names.len() as f64;
        let height = TOP + CELL.1 * count + 2.0;
        let width = left + (CELL.0 * count).max(width(SLOWS)) + 2.0;
        let mut svg = Svg::default();
        svg.open(
            "svg",
            &[
                ("class", &"plot heat"),
                ("viewBox", &format_args!("0 0 {} {}", At(width), At(height))),
                ("width", &At(width)),
                ("height", &At(height)),
                ("role", &"group"),
                ("aria-label", &title),
            ],
        );
        self.heads(&mut svg, left);
        for (row, cells) in self.cells.iter().enumerate() {
            let top = TOP + CELL.1 * row as f64;
            for (column, cell) in cells.iter().enumerate() {
                let at = (left + CELL.0 * column as f64, top);
                draw_cell(&mut svg, at, cell, &self.title(row, column, cell));
            }
        }
        svg.finish()
    }

    /// Names before rows, and the rows' numbers above columns.
    fn heads(&self, svg: &mut Svg, left: f64) {
        let y = At(12.0);
        svg.text("text", &[("class", &"title end"), ("x", &At(left - 8.0)), ("y", &y)], SLOWED);
        svg.text("text", &[("class", &"title"), ("x", &At(left)), ("y", &y)], SLOWS);
        for (place, name) in self.names.iter().enumerate() {
            let number = (place + 1).to_string();
            let y = At(TOP + CELL.1 * (place as f64 + 0.5) + 4.0);
            let label = format!("{name}  {number}");
            svg.text("text", &[("class", &"name end"), ("x", &At(left - 8.0)), ("y", &y)], &label);
            let middle = At(left + CELL.0 * (place as f64 + 0.5));
            let above = At(TOP - 8.0);
            svg.text("text", &[("class", &"name middle"), ("x", &middle), ("y", &above)], &number);
        }
    }

    fn title(&self, row: usize, column: usize, cell: &Prediction) -> String {
        let name = |at: usize| self.names.get(at).map_or("", String::as_str);
        format!(
            "{} beside {}: α {}, {} of its speed alone, give or take {}; {}",
            name(row),
            name(column),
            two_decimals(alpha(cell.speed)),
            percent(cell.speed),
            percent(cell.spread),
            rests_on(cell.basis)
        )
    }
}

fn draw_cell(svg: &mut Svg, (x, y): (f64, f64), cell: &Prediction, title: &str) {
    let slow = alpha(cell.speed);
    let class = STEPS.iter().position(|step| slow < *step).unwrap_or(STEPS.len());
    let is_guess = cell.basis == Basis::Nothing;
    let guess = if is_guess { " guess" } else { "" };
    let class = format!("{}{guess}", CLASSES[class]);
    svg.open("g", &[("class", &class), ("role", &"img")]);
    svg.text("title", &[], title);
    svg.leaf(
        "rect",
        &[("x", &At(x)), ("y", &At(y)), ("width", &At(CELL.0)), ("height", &At(CELL.1))],
    );
    let mark = if is_guess { "?" } else { "" };
    let figure = if slow < 9.995 { two_decimals(slow) } else { format!("{slow:.0}") };
    let spread = format!("±{:.0} %", cell.spread * 100.0);
    let lines = [("middle", 14.0, format!("{figure}{mark}")), ("middle sure", 27.0, spread)];
    let middle = At(x + CELL.0 / 2.0);
    for (class, below, text) in lines {
        svg.text("text", &[("class", &class), ("x", &middle), ("y", &At(y + below))], &text);
    }
    svg.close();
}

fn rests_on(basis: Basis) -> &'static str {
    match basis {
        Basis::Nothing => {
            "neither has been measured beside others in this way of sharing, nor do both say what they compute"
        }
        Basis::Profile => "by what is said of each alone",
        Basis::OneKind => "one of the two kinds has been measured beside others",
        Basis::BothKinds => "both kinds have been measured, but not together",
        Basis::Pair => "this pair has been measured",
    }
}

/// The scale of colours.
pub(super) fn legend() -> Vec<Step> {
    let text = |at: usize| match (at.checked_sub(1).map(|at| STEPS[at]), STEPS.get(at)) {
        (None, Some(to)) => format!("α below {to}"),
        (Some(from), Some(to)) => format!("{from} to {to}"),
        (from, None) => format!("{} and more", from.unwrap_or(0.0)),
    };
    CLASSES
        .iter()
        .enumerate()
        .map(|(at, class)| Step { swatch: paints::swatch(class, None), text: text(at) })
        .collect()
}
