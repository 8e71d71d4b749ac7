//! Memory that keeps rising, told from memory that jumped, and when it reaches a limit.

use alloc::collections::VecDeque;

/// Points kept of one window.
const POINTS: u64 = 8;

/// Most points kept at all.
pub(super) const POINTS_MAX: usize = POINTS as usize + 2;

/// The last window of one tenant's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Rise {
    points: VecDeque<Point>,
}

/// What was held at a time; since then, up to the next: the most held, and how far it fell at most from
/// the most of the window.
#[derive(Clone, Copy, Debug)]
struct Point {
    at_ms: u64,
    mib: u64,
    peak_mib: u64,
    fall_mib: u64,
}

/// A rise that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trend {
    /// MiB a minute, by the slower half of the window, rounded up.
    pub(super) mib_per_min: u64,
    /// Time until the limit at that rate, in ms.
    pub(super) reaches_in_ms: u64,
}

impl Rise {
    /// Takes in what is held at a time later than the one before. What falls by more than 1 % of
    /// `limit_mib` was given back, and the window begins anew: seen from minute to minute, a load that
    /// comes and goes would look like a rise. So a leak below larger swings is not seen.
    pub(super) fn feed(&mut self, at_ms: u64, memory_mib: u64, limit_mib: u64, window_ms: u64) {
        let peak_mib = self.points.iter().map(|point| point.peak_mib).max().unwrap_or(0);
        if let Some(last) = self.points.back_mut() {
            last.peak_mib = last.peak_mib.max(memory_mib);
            last.fall_mib = last.fall_mib.max(peak_mib.saturating_sub(memory_mib));
        }
        let last = self.points.back().copied();
        if last.is_some_and(|last| memory_mib.saturating_add(limit_mib / 100) < last.mib) {
            self.points.clear();
        }
        if last.is_none_or(|last| at_ms.saturating_sub(last.at_ms) >= window_ms / POINTS)
            || self.points.is_empty()
        {
            let (mib, peak_mib, fall_mib) = (memory_mib, memory_mib, 0);
            self.points.push_back(Point { at_ms, mib, peak_mib, fall_mib });
        }
        let old = |point: &Point| at_ms.saturating_sub(point.at_ms) >= window_ms;
        while self.points.get(1).is_some_and(old) || self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
    }

    /// The rise at `at_ms`, if memory rose in both halves of a full window, in each by more than it
    /// ever fell below its peak: less is a wobble. Needs a sample in each half: with fewer there is
    /// no telling a rise from a jump.
    pub(super) fn trend(
        &self,
        at_ms: u64,
        memory_mib: u64,
        limit_mib: u64,
        window_ms: u64,
    ) -> Option<Trend> {
        let aged = |age_ms: u64| {
            let of_age = move |point: &&Point| at_ms.saturating_sub(point.at_ms) >= age_ms;
            self.points.iter().rev().find(of_age).map(|point| (point.at_ms, point.mib))
        };
        let fall_mib = self.points.iter().map(|point| point.fall_mib).max()?;
        let (first, middle) = (aged(window_ms)?, aged(window_ms.div_ceil(2))?);
        let halves = [(first, middle), (middle, (at_ms, memory_mib))];
        if halves.iter().any(|(from, to)| to.1.saturating_sub(from.1) <= fall_mib) {
            return None;
        }
        let left_mib = limit_mib.saturating_sub(memory_mib);
        let [one, other] = halves.map(|(from, to)| rate(from, to, left_mib));
        let (one, other) = (one?, other?);
        Some(if one.reaches_in_ms > other.reaches_in_ms { one } else { other })
    }

    /// Points remembered.
    #[cfg(test)]
    pub(super) fn points(&self) -> usize {
        self.points.len()
    }
}

/// The rate between two points, if it is above 0.
fn rate(from: (u64, u64), to: (u64, u64), left_mib: u64) -> Option<Trend> {
    let rise_mib = u128::from(to.1.checked_sub(from.1)?);
    let elapsed_ms = u128::from(to.0.checked_sub(from.0)?);
    let reaches = (u128::from(left_mib) * elapsed_ms).checked_div(rise_mib)?;
    let per_min = (elapsed_ms > 0).then(|| (rise_mib * 60_000).div_ceil(elapsed_ms))?;
    let narrow = |wide: u128| u64::try_from(wide).unwrap_or(u64::MAX);
    Some(Trend { mib_per_min: narrow(per_min), reaches_in_ms: narrow(reaches) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_MS: u64 = 120_000;

    /// The trend after samples every 10 s for 4 min, with 10,000 MiB as the limit.
    fn after(memory_mib: impl Fn(u64) -> u64) -> Option<Trend> {
        let (mut rise, mut trend) = (Rise::default(), None);
        for at_ms in (0..=240_000).step_by(10_000) {
            rise.feed(at_ms, memory_mib(at_ms), 10_000, WINDOW_MS);
            assert!(rise.points() <= POINTS_MAX);
            trend = rise.trend(at_ms, memory_mib(at_ms), 10_000, WINDOW_MS);
        }
        trend
    }

    #[test]
    fn a_steady_rise_is_followed_to_the_limit() {
        let trend = after(|at_ms| 8_000 + at_ms / 1_000);
        assert_eq!(trend, Some(Trend { mib_per_min: 60, reaches_in_ms: 1_760_000 }));
    }

    #[test]
    fn a_jump_a_level_and_a_fall_are_no_trend() {
        assert_eq!(after(|at_ms| if at_ms < 190_000 { 1_000 } else { 9_500 }), None);
        assert_eq!(after(|at_ms| if at_ms < 150_000 { 1_000 } else { 9_500 }), None);
        assert_eq!(after(|_| 9_500), None);
        assert_eq!(after(|at_ms| 9_900 - at_ms / 1_000), None);
    }

    #[test]
    fn a_rise_that_quickens_is_foretold_by_its_slower_half() {
        let trend = after(|at_ms| 5_000 + at_ms / 1_000 + at_ms.saturating_sub(180_000) / 100);
        assert_eq!(trend.map(|trend| trend.mib_per_min), Some(60));
    }

    #[test]
    fn memory_that_is_given_back_begins_anew() {
        // 50 s from low to high, so that from minute to minute it looks higher.
        let saw = |at_ms: u64| 8_000 + at_ms % 50_000 / 50;
        assert_eq!(after(saw), None);
        let little = |at_ms: u64| 8_000 + at_ms / 1_000 - at_ms % 20_000 / 200;
        assert!(after(little).is_some(), "less than 1 % of the limit");
    }

    #[test]
    fn a_wobble_is_no_trend() {
        let steps = [0, 3, 1, 2, 0, 2, 3, 1, 0, 2, 1, 3];
        assert_eq!(after(|at_ms| 9_900 + steps[at_ms as usize / 10_000 % 12]), None);
        assert!(after(|at_ms| 9_900 + at_ms / 60_000).is_some(), "slow and steady");
    }

    #[test]
    fn a_rise_is_never_told_as_none() {
        let trend = rate((0, 10), (70_000, 11), 5);
        assert_eq!(trend, Some(Trend { mib_per_min: 1, reaches_in_ms: 350_000 }));
    }

    #[test]
    fn extremes_do_not_overflow() {
        let (mut rise, step) = (Rise::default(), u64::MAX / 8);
        for at in (0..8).map(|number| number * step) {
            rise.feed(at, at, u64::MAX, 4 * step);
        }
        let last = 7 * step;
        let trend = rise.trend(last, last, u64::MAX, 4 * step);
        let reaches_in_ms = u64::MAX - last;
        assert_eq!(trend, Some(Trend { mib_per_min: 60_000, reaches_in_ms }));
        assert!(rise.points() <= POINTS_MAX);
        rise.feed(1, 1, 0, 0);
        assert_eq!(rise.trend(1, 1, 0, 0), None, "no time has gone by");
    }
}
