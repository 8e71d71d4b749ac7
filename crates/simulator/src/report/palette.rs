//! How runs are told apart: colour, dash pattern and hatching, by their place in the comparison.
//!
//! Colours live in the page's style sheet as `--s0` to `--s7`, one set per mode. Each has a contrast of at
//! least 3 to its background, and any two differ by at least 15 (CIE76) for normal sight and under
//! simulated protanopia, deuteranopia and tritanopia (Machado 2009). Colours and dashes have no common
//! period: 72 runs differ in one or the other.

use super::svg::Svg;

const COLOURS: usize = 8;
const DASHES: [&str; 9] =
    ["none", "7 3", "2 2.5", "9 3 2 3", "13 4", "4 2", "9 2.5 2 2.5 2 2.5", "13 3 4 3", "5 5"];

/// Returns a CSS colour.
pub fn colour(run: usize) -> String {
    format!("var(--s{})", run % COLOURS)
}

/// Returns an SVG `stroke-dasharray`, in user units.
pub(super) fn dash(run: usize) -> &'static str {
    DASHES[run % DASHES.len()]
}

/// Returns a CSS paint for bars, defined by [`hatches`].
pub(super) fn fill(run: usize) -> String {
    format!("url(#hatch{run})")
}

/// Returns the definitions of the paints of the first `runs` runs.
pub(super) fn hatches(runs: usize) -> String {
    let mut svg = Svg::default();
    svg.open(
        "svg",
        &[("class", &"definitions"), ("width", &0), ("height", &0), ("aria-hidden", &"true")],
    );
    svg.open("defs", &[]);
    for run in 0..runs {
        hatch(&mut svg, run);
    }
    svg.finish()
}

fn hatch(svg: &mut Svg, run: usize) {
    const SIZE: u32 = 6;
    let turn = ["rotate(45)", "rotate(-45)", "rotate(0)", "rotate(90)"][run % 4];
    let colour = colour(run);
    svg.open(
        "pattern",
        &[
            ("id", &format_args!("hatch{run}")),
            ("width", &SIZE),
            ("height", &SIZE),
            ("patternUnits", &"userSpaceOnUse"),
            ("patternTransform", &turn),
        ],
    );
    svg.leaf("rect", &[("width", &SIZE), ("height", &SIZE), ("fill", &colour)]);
    if run > 0 {
        let thickness = if run % 8 < 4 { 1.5 } else { 3.0 };
        svg.leaf(
            "rect",
            &[
                ("width", &SIZE),
                ("height", &thickness),
                ("fill", &"var(--paper)"),
                ("opacity", &0.6),
            ],
        );
    }
    svg.close();
}

/// Returns a short line in a run's colour and dash, for legends.
pub(super) fn line_swatch(run: usize) -> String {
    let mut svg = Svg::default();
    svg.open("svg", &[("class", &"swatch"), ("viewBox", &"0 0 34 10"), ("aria-hidden", &"true")]);
    svg.leaf(
        "path",
        &[
            ("d", &"M1,5 33,5"),
            ("class", &"line"),
            ("stroke", &colour(run)),
            ("stroke-dasharray", &dash(run)),
        ],
    );
    svg.finish()
}

/// Returns a small square in a run's paint, for legends.
pub(super) fn fill_swatch(run: usize) -> String {
    let mut svg = Svg::default();
    svg.open("svg", &[("class", &"swatch"), ("viewBox", &"0 0 34 10"), ("aria-hidden", &"true")]);
    svg.leaf(
        "rect",
        &[("width", &34), ("height", &10), ("fill", &fill(run)), ("stroke", &colour(run))],
    );
    svg.finish()
}
