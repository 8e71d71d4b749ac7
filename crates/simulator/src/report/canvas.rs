//! A plot's frame: its measures, grid, ticks and axis titles.
//!
//! Every plot is drawn on the same small canvas, so that on a phone its text keeps a readable size
//! and on a desk two stand side by side.

use super::scale::Scale;
use super::svg::{At, Svg};

/// Width of every plot in user units.
pub(super) const WIDTH: f64 = 420.0;
/// Height of every plot in user units.
pub(super) const HEIGHT: f64 = 264.0;
/// Width of a character of a label, on the broad side; for room, not for layout.
pub(super) const CHARACTER: f64 = 6.5;

const LEFT: f64 = 44.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = HEIGHT - 40.0;

/// The rectangle in which figures are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Left edge.
    pub left: f64,
    /// Right edge.
    pub right: f64,
    /// Upper edge.
    pub top: f64,
    /// Lower edge.
    pub bottom: f64,
}

impl Frame {
    /// Returns the frame that leaves `margin` units at its right.
    pub(super) fn with_right_margin(margin: f64) -> Self {
        Self { left: LEFT, right: WIDTH - margin, top: TOP, bottom: BOTTOM }
    }

    /// Returns the frame with its lower edge raised by `by` units, for a second line of labels.
    pub(super) fn raised(self, by: f64) -> Self {
        Self { bottom: self.bottom - by, ..self }
    }

    /// Returns the scale along the x axis.
    pub(super) fn x(self, (lo, hi): (f64, f64)) -> Scale {
        Scale { lo, hi, from: self.left, to: self.right }
    }

    /// Returns the scale along the y axis, which grows upwards.
    pub(super) fn y(self, (lo, hi): (f64, f64)) -> Scale {
        Scale { lo, hi, from: self.bottom, to: self.top }
    }

    /// Draws horizontal grid lines with their labels, and the axis title above them.
    pub(super) fn draw_y_axis(self, svg: &mut Svg, ticks: &[(f64, String)], title: &str) {
        let title_at: (f64, f64) = (0.0, self.top - 14.0);
        svg.text(
            "text",
            &[("class", &"title"), ("x", &At(title_at.0)), ("y", &At(title_at.1))],
            title,
        );
        for (y, label) in ticks {
            let class = if (*y - self.bottom).abs() < 0.1 { "axis" } else { "grid" };
            svg.leaf(
                "line",
                &[
                    ("class", &class),
                    ("x1", &At(self.left)),
                    ("x2", &At(self.right)),
                    ("y1", &At(*y)),
                    ("y2", &At(*y)),
                ],
            );
            let right_edge = At(self.left - 6.0);
            svg.text("text", &[("class", &"end"), ("x", &right_edge), ("y", &At(y + 4.0))], label);
        }
    }

    /// Draws tick marks below the frame with their labels, and the axis title under them.
    pub(super) fn draw_x_axis(self, svg: &mut Svg, ticks: &[(f64, String)], title: &str) {
        for (x, label) in ticks {
            svg.leaf(
                "line",
                &[
                    ("class", &"axis"),
                    ("x1", &At(*x)),
                    ("x2", &At(*x)),
                    ("y1", &At(self.bottom)),
                    ("y2", &At(self.bottom + 4.0)),
                ],
            );
            self.draw_below(svg, *x, 16.0, label);
        }
        self.draw_x_title(svg, title);
    }

    /// Draws the title of the x axis alone.
    pub(super) fn draw_x_title(self, svg: &mut Svg, title: &str) {
        let middle = At(f64::midpoint(self.left, self.right));
        let y = At(HEIGHT - 4.0);
        svg.text("text", &[("class", &"title middle"), ("x", &middle), ("y", &y)], title);
    }

    /// Draws a text centred at `x`, its baseline `below` units under the frame.
    pub(super) fn draw_below(self, svg: &mut Svg, x: f64, below: f64, text: &str) {
        let y = At(self.bottom + below);
        svg.text("text", &[("class", &"middle"), ("x", &At(x)), ("y", &y)], text);
    }
}
