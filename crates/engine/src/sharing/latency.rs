//! What a lower speed does to answers that somebody waits for.

/// How many times longer answers take at a lower speed, at every percentile: `(1 − busy) / (speed − busy)`, infinite where the
/// speed does not keep up with what comes.
///
/// A queue with random arrivals and random service times (M/M/1) answers in a time that is exponentially distributed with rate
/// `μ − λ` (Kleinrock, Queueing Systems I, 3.2), so that mean, median and p99 all grow by the same factor when μ falls.
///
/// * `speed` — relative to alone, 0 to 1.
/// * `busy` — part of the time in which it computes alone, 0 to 1.
pub fn latency_factor(speed: f64, busy: f64) -> f64 {
    let (speed, busy) = (speed.clamp(0.0, 1.0), busy.clamp(0.0, 1.0));
    if speed >= 1.0 {
        1.0
    } else if speed > busy {
        (1.0 - busy) / (speed - busy)
    } else {
        f64::INFINITY
    }
}

/// The least speed at which answers take at most `factor` times as long: `busy + (1 − busy) / factor`; 1 for a factor below 1.
pub fn speed_for_latency(factor: f64, busy: f64) -> f64 {
    let busy = busy.clamp(0.0, 1.0);
    busy + (1.0 - busy) / factor.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_hardly_computes_is_slowed_down_by_the_speed_alone() {
        assert!((latency_factor(0.5, 0.0) - 2.0).abs() < 1e-9);
        assert!((latency_factor(0.5, 0.25) - 3.0).abs() < 1e-9, "others queue behind it");
        assert!(latency_factor(0.3, 0.3).is_infinite());
        assert!((latency_factor(1.0, 1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_least_speed_keeps_the_factor() {
        for (factor, busy) in [(1.0, 0.5), (2.0, 0.0), (3.0, 0.25), (1.2, 0.9)] {
            let speed = speed_for_latency(factor, busy);
            assert!((latency_factor(speed, busy) - factor).abs() < 1e-6, "{factor} {busy}");
        }
        assert!((speed_for_latency(0.5, 0.1) - 1.0).abs() < 1e-9);
    }
}
