//! A card drawn to scale: a lane of memory and a lane of compute, each tenant's part in both.

use simulator::report::draw::{At, Scale, Svg, colour};

use super::fit::{fitted, width};
use super::paints::{FREE, LOST, OVER};

/// Width in user units, as all plots have it.
const WIDTH: f64 = 420.0;
const THICK: f64 = 30.0;
const MEMORY_TOP: f64 = 18.0;
const COMPUTE_TOP: f64 = 92.0;
const HEIGHT: f64 = 142.0;
/// Space before a label, and what stays free behind it.
const MARGIN: (f64, f64) = (4.0, 1.0);

/// A card's drawing.
pub(super) struct Drawing {
    pub(super) tenants: Vec<Tenant>,
    pub(super) memory: Axis,
    pub(super) compute: Axis,
}

/// A tenant's parts.
pub(super) struct Tenant {
    /// All that is told of it.
    pub(super) title: String,
    pub(super) colour: usize,
    pub(super) memory: Segment,
    pub(super) compute: Segment,
}

/// A part of a lane, in the lane's unit.
pub(super) struct Segment {
    /// Held from here.
    pub(super) from: f64,
    /// Held up to here.
    pub(super) to: f64,
    /// Asked up to here: less than what is held, or more.
    pub(super) asked: f64,
    /// What stands on it, as far as there is room.
    pub(super) label: String,
}

/// A lane's measure and words.
pub(super) struct Axis {
    pub(super) title: String,
    pub(super) figure: String,
    /// Where the lane ends.
    pub(super) hi: f64,
    /// Where the card ends; 0 if that is not known.
    pub(super) full: f64,
    pub(super) ticks: Vec<(f64, String)>,
    /// Whether neighbours of one label have it once, with their number: they have no places of their own.
    pub(super) merges: bool,
    /// What another tenant could have.
    pub(super) free: Vec<(f64, f64)>,
    /// What stands on the first free stretch, if there is room.
    pub(super) note: String,
    /// What nobody can have.
    pub(super) lost: Vec<(f64, f64)>,
}

impl Axis {
    fn x(&self) -> Scale {
        Scale { lo: 0.0, hi: self.hi, from: 1.0, to: WIDTH - 1.0 }
    }
}

/// Draws a card; `title` is what a reader who cannot see it is told.
pub(super) fn draw(drawing: &Drawing, title: &str) -> String {
    let mut svg = Svg::default();
    svg.open(
        "svg",
        &[
            ("class", &"plot lanes"),
            ("viewBox", &format_args!("0 0 {WIDTH} {HEIGHT}")),
            ("role", &"img"),
            ("aria-label", &title),
        ],
    );
    let lanes = [(&drawing.memory, MEMORY_TOP), (&drawing.compute, COMPUTE_TOP)];
    for (axis, top) in lanes {
        ground(&mut svg, axis, top);
    }
    for tenant in &drawing.tenants {
        svg.open("g", &[("fill", &colour(tenant.colour)), ("stroke", &colour(tenant.colour))]);
        svg.text("title", &[], &tenant.title);
        part(&mut svg, &drawing.memory, MEMORY_TOP, &tenant.memory);
        part(&mut svg, &drawing.compute, COMPUTE_TOP, &tenant.compute);
        svg.close();
    }
    for (axis, top) in lanes {
        frame(&mut svg, axis, top);
    }
    let memory: Vec<&Segment> = drawing.tenants.iter().map(|tenant| &tenant.memory).collect();
    labels(&mut svg, &drawing.memory, MEMORY_TOP, &memory);
    let compute: Vec<&Segment> = drawing.tenants.iter().map(|tenant| &tenant.compute).collect();
    labels(&mut svg, &drawing.compute, COMPUTE_TOP, &compute);
    svg.finish()
}

fn rect(svg: &mut Svg, class: &str, x: Scale, (from, to): (f64, f64), top: f64) {
    let (left, right) = (x.at(from), x.at(to));
    svg.leaf(
        "rect",
        &[
            ("class", &class),
            ("x", &At(left)),
            ("y", &At(top)),
            ("width", &At((right - left).max(0.0))),
            ("height", &At(THICK)),
        ],
    );
}

/// What is free of the card, and what nobody can have.
fn ground(svg: &mut Svg, axis: &Axis, top: f64) {
    let x = axis.x();
    for free in &axis.free {
        rect(svg, FREE, x, *free, top);
    }
    for lost in &axis.lost {
        rect(svg, LOST, x, *lost, top);
    }
}

/// What a tenant holds, pale; of that what it asks, strong; and a mark where it asks for more than it holds.
fn part(svg: &mut Svg, axis: &Axis, top: f64, segment: &Segment) {
    let x = axis.x();
    let Segment { from, to, asked, .. } = *segment;
    if to <= from {
        return;
    }
    if asked < to {
        rect(svg, "held", x, (from, to), top);
    }
    if asked > from {
        rect(svg, "asked", x, (from, asked.min(to)), top);
    }
    // Rounding of slices is no excess.
    if asked > to * 1.001 {
        let width = (x.at(to) - x.at(from)).min(6.0);
        let left = At(x.at(to) - width);
        svg.leaf(
            "rect",
            &[
                ("class", &OVER),
                ("x", &left),
                ("y", &At(top)),
                ("width", &At(width)),
                ("height", &At(THICK)),
            ],
        );
    }
}

/// The words of a lane, its ticks, its outline, and what is asked beyond the card.
fn frame(svg: &mut Svg, axis: &Axis, top: f64) {
    let x = axis.x();
    let title_y = At(top - 6.0);
    svg.text("text", &[("class", &"name"), ("x", &At(0.0)), ("y", &title_y)], &axis.title);
    svg.text("text", &[("class", &"end"), ("x", &At(WIDTH)), ("y", &title_y)], &axis.figure);
    match axis.full {
        full if full > 0.0 => rect(svg, "card-edge", x, (0.0, full), top),
        _ => rect(svg, "card-edge unknown", x, (0.0, axis.hi), top),
    }
    if axis.full > 0.0 && axis.hi > axis.full {
        rect(svg, OVER, x, (axis.full, axis.hi), top);
    }
    let bottom = top + THICK;
    for (at, label) in &axis.ticks {
        let place = x.at(*at);
        let (mark, from, to) = (At(place), At(bottom), At(bottom + 4.0));
        svg.leaf(
            "line",
            &[("class", &"axis"), ("x1", &mark), ("x2", &mark), ("y1", &from), ("y2", &to)],
        );
        let class = match place {
            place if place < 8.0 => "",
            place if place > WIDTH - 16.0 => "end",
            _ => "middle",
        };
        let text_at = place.clamp(0.0, WIDTH);
        let y = At(bottom + 15.0);
        svg.text("text", &[("class", &class), ("x", &At(text_at)), ("y", &y)], label);
    }
}

/// A label on each part where it fits; where parts have no places of their own, one for each stretch of a label.
fn labels(svg: &mut Svg, axis: &Axis, top: f64, segments: &[&Segment]) {
    let x = axis.x();
    let is_alike = |one: &&Segment, other: &&Segment| axis.merges && one.label == other.label;
    for stretch in segments.chunk_by(is_alike) {
        let [first, ..] = stretch else { continue };
        let from = x.at(first.from);
        let to = stretch.last().map_or(from, |last| x.at(last.to));
        let times = match stretch.len() {
            1 => String::new(),
            count => format!("{count} × "),
        };
        let name = fitted(&first.label, room(from, to) - width(&times));
        if !name.is_empty() {
            inscribe(svg, "label", from, top, &format!("{times}{name}"));
        }
    }
    let Some((from, to)) = axis.free.first().map(|(from, to)| (x.at(*from), x.at(*to))) else {
        return;
    };
    if room(from, to) >= width(&axis.note) {
        inscribe(svg, "label note", from, top, &axis.note);
    }
}

fn room(from: f64, to: f64) -> f64 {
    to - from - MARGIN.0 - MARGIN.1
}

fn inscribe(svg: &mut Svg, class: &str, left: f64, top: f64, text: &str) {
    if !text.is_empty() {
        let (x, y) = (At(left + MARGIN.0), At(top + THICK / 2.0 + 4.0));
        svg.text("text", &[("class", &class), ("x", &x), ("y", &y)], text);
    }
}
