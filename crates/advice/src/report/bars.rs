//! A bar for each way of sharing: one figure, one panel, the advised way marked.

use simulator::report::draw::{At, Scale, Svg};

use super::fit::width_bold;

/// Width in user units, as all plots have it.
const WIDTH: f64 = 420.0;
const LEFT: f64 = 112.0;
/// Room for the figures, one below the other behind the longest bar: at least and at most.
const FIGURE: (f64, f64) = (90.0, 220.0);
const ROW: f64 = 22.0;
const THICK: f64 = 14.0;
const TOP: f64 = 4.0;

/// One way's bar.
pub(super) struct Bar {
    /// The way.
    pub(super) name: String,
    /// Its length.
    pub(super) value: f64,
    /// Of that, the part drawn strong; all of it where nothing is said.
    pub(super) strong: Option<f64>,
    /// Its figure.
    pub(super) text: String,
    /// Whether this is what is advised.
    pub(super) is_advised: bool,
}

/// Draws bars from zero.
///
/// * `full` — where a whole lies, such as 1 for parts; marked by a line.
pub(super) fn draw(title: &str, bars: &[Bar], full: Option<f64>) -> String {
    let values = bars.iter().map(|bar| bar.value).filter(|value| value.is_finite());
    let longest = values.fold(full.unwrap_or(0.0), f64::max);
    let hi = if longest > 0.0 { longest } else { 1.0 };
    let figure = bars.iter().map(|bar| 8.0 + width_bold(&bar.text)).fold(FIGURE.0, f64::max);
    let x = Scale { lo: 0.0, hi, from: LEFT, to: WIDTH - figure.min(FIGURE.1) };
    let bottom = TOP + ROW * bars.len() as f64;
    let mut svg = Svg::default();
    let told: Vec<String> = bars.iter().map(|bar| format!("{} {}", bar.name, bar.text)).collect();
    let label = format!("{title}: {}.", told.join(", "));
    let view_box = format!("0 0 {WIDTH} {}", At(bottom + 2.0));
    svg.open(
        "svg",
        &[("class", &"plot"), ("viewBox", &view_box), ("role", &"img"), ("aria-label", &label)],
    );
    for (place, bar) in bars.iter().enumerate() {
        row(&mut svg, x, TOP + ROW * place as f64, bar);
    }
    if let Some(full) = full {
        upright(&mut svg, "full", x.at(full), bottom);
    }
    upright(&mut svg, "axis", LEFT, bottom);
    svg.finish()
}

fn upright(svg: &mut Svg, class: &str, x: f64, bottom: f64) {
    let (x, top, bottom) = (At(x), At(TOP - 2.0), At(bottom));
    svg.leaf("line", &[("class", &class), ("x1", &x), ("x2", &x), ("y1", &top), ("y2", &bottom)]);
}

fn row(svg: &mut Svg, x: Scale, top: f64, bar: &Bar) {
    let baseline = At(top + THICK - 2.0);
    let class = if bar.is_advised { "bar advised" } else { "bar" };
    svg.open("g", &[("class", &class)]);
    svg.text("text", &[("class", &"end"), ("x", &At(LEFT - 8.0)), ("y", &baseline)], &bar.name);
    let end = if bar.value.is_finite() { x.at(bar.value.max(0.0)) } else { x.from };
    if bar.strong.is_some() {
        rect(svg, "weak", x, end, top);
    }
    let strong = bar.strong.map_or(end, |strong| x.at(strong.max(0.0)).min(end));
    rect(svg, "strong", x, strong, top);
    svg.text("text", &[("x", &At(x.to + 8.0)), ("y", &baseline)], &bar.text);
    svg.close();
}

fn rect(svg: &mut Svg, class: &str, x: Scale, end: f64, top: f64) {
    let (left, width) = (At(x.from), At((end - x.from).max(0.0)));
    svg.leaf(
        "rect",
        &[
            ("class", &class),
            ("x", &left),
            ("y", &At(top)),
            ("width", &width),
            ("height", &At(THICK)),
        ],
    );
}
