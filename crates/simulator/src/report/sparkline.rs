//! A line of eight-level blocks for the terminal.

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns one block per value on the scale `lo..=hi`; a blank where there is none.
pub(super) fn sparkline(values: &[Option<f64>], lo: f64, hi: f64) -> String {
    let level = |value: f64| {
        let share = if hi > lo { (value - lo) / (hi - lo) } else { 1.0 };
        LEVELS[((share * 8.0) as usize).min(LEVELS.len() - 1)]
    };
    values.iter().map(|value| value.map_or(' ', level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_is_low_and_high_is_high() {
        let values = [Some(0.0), None, Some(50.0), Some(100.0), Some(200.0)];
        assert_eq!(sparkline(&values, 0.0, 100.0), "▁ ▅██");
        assert_eq!(sparkline(&[Some(1.0)], 1.0, 1.0), "█");
    }
}
