//! A line plot of one field of the samples, one line per run.

use crate::outcome::Comparison;

use super::canvas::{Frame, HEIGHT, WIDTH};
use super::labels::{self, End};
use super::names::shown;
use super::palette;
use super::scale::{Scale, Ticks, ticks, time_ticks, time_unit, widened};
use super::series::{Axis, Field, points, value_at};
use super::svg::{At, Svg};
use super::units::{Unit, grouped};

/// A plot to be drawn.
pub(super) struct Plot<'a> {
    /// The runs.
    pub comparison: &'a Comparison,
    /// What is drawn.
    pub field: &'a Field,
    /// Title of the y axis with its unit.
    pub y_title: &'a str,
    /// What a reader who cannot see it is told.
    pub summary: &'a str,
    /// Start of the x axis; the earliest sample if absent. With it the y axis need not start at zero.
    pub from: Option<f64>,
}

type Points = Vec<Option<(f64, f64)>>;

impl Plot<'_> {
    /// Returns the plot, or nothing if no sample can be drawn.
    pub(super) fn draw(&self) -> Option<String> {
        let axis = Axis::of(self.comparison);
        let (lo, hi) = axis.domain(self.comparison)?;
        let x_domain = widened((self.from.unwrap_or(lo), hi));
        let runs: Vec<Points> =
            self.comparison.runs.iter().map(|run| self.points(run, axis)).collect();
        let (y_domain, y_ticks) = self.y_domain(&runs)?;

        let names: Vec<String> =
            self.comparison.runs.iter().map(|run| shown(&run.policy)).collect();
        let label_margin = labels::margin(&names);
        let frame = Frame::with_right_margin(label_margin.unwrap_or(12.0));
        let (x, y) = (frame.x(x_domain), frame.y(y_domain));
        let mut svg = Svg::default();
        self.open(&mut svg, frame, x);
        self.draw_axes(&mut svg, frame, (x, y), &y_ticks);
        let ends = draw_lines(&mut svg, (x, y), &runs, &names);
        if label_margin.is_some() {
            labels::draw(&mut svg, frame, &ends);
        }
        let (top, bottom) = (At(frame.top), At(frame.bottom));
        svg.leaf("line", &[("class", &"cross"), ("y1", &top), ("y2", &bottom)]);
        Some(svg.finish())
    }

    fn points(&self, run: &crate::outcome::Outcome, axis: Axis) -> Points {
        let Some(from) = self.from else {
            return points(run, axis, self.field).collect();
        };
        let at_edge = value_at(run, axis, self.field, from).map(|y| (from, y));
        let inside = points(run, axis, self.field).filter(|p| p.is_none_or(|(x, _)| x > from));
        std::iter::once(at_edge).chain(inside).collect()
    }

    /// Returns the range of the y axis, widened to whole ticks, and the ticks.
    fn y_domain(&self, runs: &[Points]) -> Option<((f64, f64), Ticks)> {
        let mut ys = runs.iter().flatten().flatten().map(|point| point.1);
        let first = ys.next()?;
        let (min, max) = ys.fold((first, first), |(lo, hi), y| (lo.min(y), hi.max(y)));
        let lo = if self.from.is_some() { min } else { min.min(0.0) };
        let (lo, hi) = widened((lo, max));
        let step_min = if self.field.unit == Unit::Count { 1.0 } else { 0.0 };
        let step = ticks(lo, hi, 5, step_min).step;
        let (lo, hi) = ((lo / step).floor() * step, (hi / step).ceil() * step);
        Some(((lo, hi), ticks(lo, hi, 5, step.max(step_min))))
    }

    /// Opens the drawing and leaves on it what the page's script needs to find values.
    fn open(&self, svg: &mut Svg, frame: Frame, x: Scale) {
        let (x_unit, x_name) = match Axis::of(self.comparison) {
            Axis::Demand => (1.0, "% of demand"),
            Axis::Time { .. } => {
                let unit = time_unit(x.hi - x.lo);
                (unit.ms, unit.name)
            }
        };
        svg.open(
            "svg",
            &[
                ("class", &"plot"),
                ("viewBox", &format_args!("0 0 {WIDTH} {HEIGHT}")),
                ("role", &"img"),
                ("aria-label", &self.summary),
                ("tabindex", &0),
                ("data-key", &self.field.key),
                ("data-lo", &x.lo),
                ("data-hi", &x.hi),
                ("data-left", &At(frame.left)),
                ("data-right", &At(frame.right)),
                ("data-x-unit", &x_unit),
                ("data-x-name", &x_name),
                ("data-unit", &if self.field.unit == Unit::Percent { " %" } else { "" }),
            ],
        );
    }

    fn draw_axes(&self, svg: &mut Svg, frame: Frame, (x, y): (Scale, Scale), y_ticks: &Ticks) {
        frame.draw_y_axis(svg, &labelled(y_ticks, y, 1.0), self.y_title);
        match Axis::of(self.comparison) {
            Axis::Demand => {
                let ticks = ticks(x.lo, x.hi, 7, 0.0);
                frame.draw_x_axis(svg, &labelled(&ticks, x, 1.0), DEMAND_TITLE);
            }
            Axis::Time { .. } => {
                let unit = time_unit(x.hi - x.lo);
                let ticks = time_ticks(x.lo / unit.ms, x.hi / unit.ms, 5, unit);
                let title = format!("time since the first sample, {}", unit.name);
                frame.draw_x_axis(svg, &labelled(&ticks, x, unit.ms), &title);
            }
        }
    }
}

const DEMAND_TITLE: &str = "arrived demand, % of the fleet’s GPUs";

/// Returns where each tick lies and how it reads; a tick is a multiple of `unit` on the scale.
fn labelled(ticks: &Ticks, scale: Scale, unit: f64) -> Vec<(f64, String)> {
    let label = |value: &f64| (scale.at(value * unit), grouped(*value, ticks.decimals));
    ticks.values.iter().map(label).collect()
}

fn draw_lines(
    svg: &mut Svg,
    (x, y): (Scale, Scale),
    runs: &[Points],
    names: &[String],
) -> Vec<End> {
    let mut ends = Vec::new();
    for (run, (points, name)) in runs.iter().zip(names).enumerate() {
        let placed = points.iter().map(|point| point.map(|point| (x.at(point.0), y.at(point.1))));
        let placed: Points = placed.collect();
        let Some((end_x, end_y)) = placed.iter().rev().copied().flatten().next() else {
            continue;
        };
        let colour = palette::colour(run);
        svg.leaf(
            "path",
            &[
                ("class", &"line"),
                ("data-run", &run),
                ("stroke", &colour),
                ("stroke-dasharray", &palette::dash(run)),
                ("d", &path(&placed)),
            ],
        );
        let (cx, cy) = (At(end_x), At(end_y));
        svg.leaf("circle", &[("cx", &cx), ("cy", &cy), ("r", &2.4), ("fill", &colour)]);
        ends.push(End { run, name: name.clone(), x: end_x, y: end_y });
    }
    ends
}

/// Returns the path through the points, broken where one is absent.
fn path(points: &[Option<(f64, f64)>]) -> String {
    let mut path = String::new();
    for stretch in points.split(Option::is_none) {
        let stretch: Vec<(f64, f64)> = stretch.iter().copied().flatten().collect();
        for (index, (x, y)) in thinned(&stretch).into_iter().enumerate() {
            path.push_str(if index == 0 { "M" } else { " " });
            path.push_str(&format!("{},{}", At(x), At(y)));
        }
    }
    path
}

/// Returns the points that shape the line on paper: of those within one unit of x, the first, the
/// lowest, the highest and the last, in order.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept = Vec::new();
    for column in points.chunk_by(|a, b| (a.0.floor() - b.0.floor()).abs() < 0.5) {
        let by_y = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
        let lowest = (0..column.len()).min_by(by_y).unwrap_or(0);
        let highest = (0..column.len()).max_by(by_y).unwrap_or(0);
        let mut chosen = [0, lowest, highest, column.len() - 1];
        chosen.sort_unstable();
        kept.extend(chosen.into_iter().map(|index| column[index]));
        kept.dedup();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_peaks_and_ends() {
        let points: Vec<(f64, f64)> =
            (0..1000).map(|i| (f64::from(i) / 100.0, if i == 555 { 9.0 } else { 1.0 })).collect();
        let thin = thinned(&points);
        assert!(thin.len() < 50);
        assert!(thin.contains(&(5.55, 9.0)));
        assert_eq!((thin.first(), thin.last()), (points.first(), points.last()));
    }

    #[test]
    fn an_absent_point_breaks_the_line() {
        let points = [Some((0.0, 0.0)), None, Some((2.0, 1.0)), Some((4.0, 1.5))];
        assert_eq!(path(&points), "M0,0M2,1 4,1.5");
    }
}
