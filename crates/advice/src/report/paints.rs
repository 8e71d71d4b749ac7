//! The patterns of what nobody has, and small squares of all paints for legends.

use simulator::report::draw::{Svg, colour};

/// Class of what another tenant could have.
pub(super) const FREE: &str = "free";
/// Class of what nobody can have.
pub(super) const LOST: &str = "lost";
/// Class of what is asked beyond what there is.
pub(super) const OVER: &str = "over";

/// The patterns, for the page to hold once; its style sheet paints by them.
pub(super) fn patterns() -> String {
    let mut svg = Svg::default();
    svg.open(
        "svg",
        &[("class", &"definitions"), ("width", &0), ("height", &0), ("aria-hidden", &"true")],
    );
    svg.open("defs", &[]);
    pattern(&mut svg, FREE, 6.0, 45);
    pattern(&mut svg, LOST, 4.0, -45);
    pattern(&mut svg, OVER, 5.0, 45);
    svg.finish()
}

fn pattern(svg: &mut Svg, name: &str, size: f64, turn: i32) {
    svg.open(
        "pattern",
        &[
            ("id", &format_args!("paint-{name}")),
            ("width", &size),
            ("height", &size),
            ("patternUnits", &"userSpaceOnUse"),
            ("patternTransform", &format_args!("rotate({turn})")),
        ],
    );
    svg.leaf(
        "rect",
        &[("class", &format_args!("ground-{name}")), ("width", &size), ("height", &size)],
    );
    let height = size / 4.0;
    svg.leaf(
        "rect",
        &[("class", &format_args!("line-{name}")), ("width", &size), ("height", &height)],
    );
    svg.close();
}

/// A square in a tenant's colour.
pub(super) fn tenant_swatch(place: usize) -> String {
    swatch("asked", Some(&colour(place)))
}

/// A square in one of the paints of this page.
pub(super) fn swatch(class: &str, fill: Option<&str>) -> String {
    let mut svg = Svg::default();
    svg.open("svg", &[("class", &"swatch"), ("viewBox", &"0 0 34 10"), ("aria-hidden", &"true")]);
    if let Some(fill) = fill {
        svg.open("g", &[("fill", &fill), ("stroke", &fill)]);
    }
    svg.leaf(
        "rect",
        &[("class", &class), ("x", &0.5), ("y", &0.5), ("width", &33), ("height", &9)],
    );
    svg.finish()
}
