//! Grouped bars: the share of each size's workloads that was turned away or left waiting, per run.

use crate::outcome::{Comparison, SizeCount};

use super::canvas::{Frame, HEIGHT, WIDTH};
use super::names::shown;
use super::palette;
use super::scale::{Scale, ticks};
use super::svg::{At, Svg};
use super::tables::{arrived_sizes, share_pct};
use super::units::grouped;

/// Returns the bars, or nothing if no workload was turned away.
pub(super) fn draw(comparison: &Comparison, summary: &str) -> Option<String> {
    let sizes = arrived_sizes(comparison);
    let shares = sizes.iter().flat_map(|(index, _)| {
        comparison.runs.iter().map(|run| share_pct(run.totals.by_size[*index]))
    });
    let highest = shares.fold(0.0, f64::max);
    if highest <= 0.0 {
        return None;
    }
    let step = ticks(0.0, highest, 5, 0.0).step;
    let top = (highest / step).ceil() * step;
    let frame = Frame::with_right_margin(6.0).raised(14.0);
    let y = frame.y((0.0, top));
    let mut svg = Svg::default();
    let view_box = format!("0 0 {WIDTH} {HEIGHT}");
    svg.open(
        "svg",
        &[("class", &"plot"), ("viewBox", &view_box), ("role", &"img"), ("aria-label", &summary)],
    );
    let y_ticks = ticks(0.0, top, 5, step);
    let labels: Vec<(f64, String)> = y_ticks
        .values
        .iter()
        .map(|value| (y.at(*value), grouped(*value, y_ticks.decimals)))
        .collect();
    frame.draw_y_axis(&mut svg, &labels, "rejected, % of the arrived of that size");
    for (place, (index, size)) in sizes.iter().enumerate() {
        let width = (frame.right - frame.left) / sizes.len() as f64;
        let group =
            Group { comparison, index: *index, left: frame.left + place as f64 * width, width };
        group.draw(&mut svg, y);
        let middle = group.left + width / 2.0;
        frame.draw_below(&mut svg, middle, 15.0, size.label());
        frame.draw_below(&mut svg, middle, 28.0, &group.arrived());
    }
    frame.draw_x_title(&mut svg, "size, and how many of it arrived");
    Some(svg.finish())
}

/// The bars of one size.
struct Group<'a> {
    comparison: &'a Comparison,
    index: usize,
    left: f64,
    width: f64,
}

impl Group<'_> {
    fn draw(&self, svg: &mut Svg, y: Scale) {
        const BAR_MAX: f64 = 26.0;
        let runs = &self.comparison.runs;
        let bar = (self.width * 0.8 / runs.len() as f64).min(BAR_MAX);
        let first = self.left + (self.width - bar * runs.len() as f64) / 2.0;
        for (place, run) in runs.iter().enumerate() {
            let count = run.totals.by_size[self.index];
            let top = y.at(share_pct(count));
            svg.open(
                "rect",
                &[
                    ("x", &At(first + place as f64 * bar + bar * 0.06)),
                    ("y", &At(top)),
                    ("width", &At(bar * 0.88)),
                    ("height", &At(y.from - top)),
                    ("fill", &palette::fill(place)),
                    ("stroke", &palette::colour(place)),
                ],
            );
            let SizeCount { arrived, rejected } = count;
            let (name, share) = (shown(&run.policy), share_pct(count));
            svg.text(
                "title",
                &[],
                &format!("{name}: {rejected} of {arrived} rejected ({share:.1} %)"),
            );
            svg.close();
        }
    }

    /// Returns how many arrived, as a range if the runs differ.
    fn arrived(&self) -> String {
        let counts = self.comparison.runs.iter().map(|run| run.totals.by_size[self.index].arrived);
        let (lo, hi) = counts.fold((u64::MAX, 0), |(lo, hi), count| (lo.min(count), hi.max(count)));
        if lo == hi {
            grouped(lo as f64, 0)
        } else {
            format!("{}–{}", grouped(lo as f64, 0), grouped(hi as f64, 0))
        }
    }
}
