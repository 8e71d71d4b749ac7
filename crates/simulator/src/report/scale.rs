//! From figures to places on an axis, and the round figures that label it.

/// A straight map from a range of figures to a range of coordinates.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Smallest figure; its coordinate is `from`.
    pub lo: f64,
    /// Largest figure; its coordinate is `to`.
    pub hi: f64,
    /// Coordinate of `lo`.
    pub from: f64,
    /// Coordinate of `hi`.
    pub to: f64,
}

impl Scale {
    /// Returns the coordinate of a figure.
    pub fn at(self, value: f64) -> f64 {
        self.from + (value - self.lo) / (self.hi - self.lo) * (self.to - self.from)
    }
}

/// Returns the range widened to have a length, for a run of one sample.
pub(super) fn widened((lo, hi): (f64, f64)) -> (f64, f64) {
    if hi - lo > f64::EPSILON * hi.abs().max(1.0) { (lo, hi) } else { (lo, lo + 1.0) }
}

/// Round figures along an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticks {
    /// The figures, ascending.
    pub values: Vec<f64>,
    /// Decimals that tell them apart.
    pub decimals: usize,
    /// Distance between them.
    pub step: f64,
}

/// Returns round figures within `lo..=hi`, about `wanted` of them, in steps of 1, 2 or 5 times a power
/// of ten and no smaller than `step_min`.
pub fn ticks(lo: f64, hi: f64, wanted: u32, step_min: f64) -> Ticks {
    let raw = ((hi - lo) / f64::from(wanted)).max(step_min);
    let power = raw.log10().floor();
    let magnitude = 10_f64.powf(power);
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * magnitude >= raw * 0.999);
    let step = factor.unwrap_or(10.0) * magnitude;
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    Ticks { values: multiples(lo, hi, step), decimals, step }
}

/// A unit of time for an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TimeUnit {
    /// Plural name.
    pub name: &'static str,
    /// Its length.
    pub ms: f64,
    steps: &'static [f64],
}

const TIME_UNITS: [TimeUnit; 4] = [
    TimeUnit { name: "days", ms: 86_400_000.0, steps: &[1.0, 2.0, 5.0, 7.0, 10.0, 14.0, 30.0] },
    TimeUnit { name: "hours", ms: 3_600_000.0, steps: &[1.0, 2.0, 3.0, 6.0, 12.0, 24.0] },
    TimeUnit { name: "minutes", ms: 60_000.0, steps: &[1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0] },
    TimeUnit { name: "seconds", ms: 1_000.0, steps: &[1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0] },
];

/// Returns the largest unit of which the span holds at least three, or seconds.
pub(super) fn time_unit(span_ms: f64) -> TimeUnit {
    let [.., seconds] = TIME_UNITS;
    TIME_UNITS.into_iter().find(|unit| span_ms >= 3.0 * unit.ms).unwrap_or(seconds)
}

/// Returns ticks in `unit`s over a span of time, at steps that clocks and calendars use.
pub(super) fn time_ticks(lo: f64, hi: f64, wanted: u32, unit: TimeUnit) -> Ticks {
    let raw = (hi - lo) / f64::from(wanted);
    match unit.steps.iter().find(|step| **step >= raw * 0.999 && raw > 0.5) {
        Some(step) => Ticks { values: multiples(lo, hi, *step), decimals: 0, step: *step },
        None => ticks(lo, hi, wanted, 0.0),
    }
}

/// Ticks on one axis at most, whatever the range.
const TICKS_MAX: u32 = 50;

fn multiples(lo: f64, hi: f64, step: f64) -> Vec<f64> {
    let first = (lo / step - 1e-6).ceil();
    (0..TICKS_MAX)
        .map(|index| (first + f64::from(index)) * step)
        .take_while(|value| *value <= hi + step * 1e-6)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 130.0, 5, 0.0).values, [0.0, 50.0, 100.0]);
        assert_eq!(ticks(84.0, 96.0, 4, 0.0).values, [85.0, 90.0, 95.0]);
        assert_eq!(ticks(0.0, 3.0, 5, 1.0).values, [0.0, 1.0, 2.0, 3.0]);
        let fine = ticks(0.0, 0.5, 5, 0.0);
        assert_eq!((fine.values.len(), fine.decimals), (6, 1));
    }

    #[test]
    fn time_ticks_follow_clocks() {
        let day = time_unit(24.0 * 3.6e6);
        assert_eq!(day.name, "hours");
        assert_eq!(time_ticks(0.0, 24.0, 5, day).values, [0.0, 6.0, 12.0, 18.0, 24.0]);
        assert_eq!(time_unit(30.0 * 86.4e6).name, "days");
        assert_eq!(time_unit(1.0).name, "seconds");
    }

    #[test]
    fn a_point_has_a_range() {
        assert_eq!(widened((5.0, 5.0)), (5.0, 6.0));
        assert!(ticks(1e14, 1e14 + 1.0, 5, 0.0).values.len() <= 50);
    }
}
