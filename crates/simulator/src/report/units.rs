//! How figures read: one decimal for shares, thousands apart, times in the unit that fits.

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Percent, 0 to 100 and beyond.
    Percent,
    /// Whole things.
    Count,
    /// A span in ms.
    Span,
    /// Hours of one GPU.
    GpuHours,
    /// An amount of whatever currency.
    Money,
}

/// Shown in place of a figure that is not a number.
pub const ABSENT: &str = "–";

/// Beyond this, a figure is a mistake of its source and is treated as absent.
const LARGEST: f64 = 1e15;

/// Returns whether a figure can be drawn and printed.
pub(super) fn usable(value: f64) -> bool {
    value.is_finite() && value.abs() <= LARGEST
}

impl Unit {
    /// Returns the figure with its unit, for a table.
    pub(super) fn show(self, value: f64) -> String {
        if !usable(value) {
            return ABSENT.to_owned();
        }
        match self {
            Self::Percent => format!("{} %", grouped(value, 1)),
            Self::Count => grouped(value, 0),
            Self::Span => span(value),
            Self::GpuHours => format!("{} h", grouped(value, 1)),
            Self::Money => grouped(value, 2),
        }
    }
}

/// Returns a span given in ms in the largest unit that leaves a figure of at least 1.
pub fn span(ms: f64) -> String {
    const UNITS: [(&str, f64); 4] =
        [("d", 86_400_000.0), ("h", 3_600_000.0), ("min", 60_000.0), ("s", 1_000.0)];
    let fits = UNITS.iter().find(|(name, size)| match *name {
        "d" => ms.abs() >= 2.0 * size,
        _ => ms.abs() >= *size,
    });
    match fits {
        Some((name, size)) => format!("{} {name}", grouped(ms / size, 1)),
        None if ms == 0.0 => "0 s".to_owned(),
        None => format!("{} ms", grouped(ms, 0)),
    }
}

/// Returns a number with `decimals` decimals and a comma between thousands.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, rest) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let mut out = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    let is_zero = !out.contains(|c: char| c.is_ascii_digit() && c != '0');
    if is_zero { out.trim_start_matches('-').to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(Unit::Count.show(1_234_567.0), "1,234,567");
        assert_eq!(Unit::Count.show(999.0), "999");
        assert_eq!(Unit::Percent.show(-0.01), "0.0 %");
        assert_eq!(Unit::Percent.show(f64::NAN), ABSENT);
        assert_eq!(Unit::GpuHours.show(12_345.67), "12,345.7 h");
    }

    #[test]
    fn spans_take_the_unit_that_fits() {
        let shown: Vec<String> =
            [0.0, 850.0, 12_300.0, 90_000.0, 7.1 * 3.6e6, 26.0 * 3.6e6, 76.0 * 3.6e6]
                .map(span)
                .into();
        assert_eq!(shown, ["0 s", "850 ms", "12.3 s", "1.5 min", "7.1 h", "26.0 h", "3.2 d"]);
    }
}
