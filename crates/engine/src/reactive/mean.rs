//! A mean that follows, and a condition that must hold for long: the two memories of the rules.

/// Parts of a unit in which a mean is kept, so that short steps are not lost in rounding.
const FINE: u64 = 1_000_000;

/// A mean over time in which older values count ever less; integers, so that it replays anywhere.
#[derive(Clone, Debug, Default)]
pub(super) struct Mean {
    fine: Option<u64>,
}

impl Mean {
    /// Takes in a value that held for the last `elapsed_ms`, with a time constant in ms. The first
    /// value is the mean. Values above 32 bits count as the largest of 32 bits.
    pub(super) fn feed(&mut self, value: u64, elapsed_ms: u64, constant_ms: u64) {
        let value = value.min(u64::from(u32::MAX)) * FINE;
        let (old, new) = (u128::from(constant_ms), u128::from(elapsed_ms));
        let mean = self.fine.unwrap_or(value);
        let weighed = u128::from(mean) * old + u128::from(value) * new;
        let next = weighed.checked_div(old + new).and_then(|next| u64::try_from(next).ok());
        self.fine = Some(next.unwrap_or(value));
    }

    /// The mean, rounded; `None` before the first value.
    pub(super) fn value(&self) -> Option<u64> {
        self.fine.map(|fine| (fine + FINE / 2) / FINE)
    }

    /// The mean of thousandths, 0 to 1000; 0 before the first value.
    pub(super) fn milli(&self) -> u32 {
        self.value().map_or(0, |value| value.min(1000) as u32)
    }
}

/// A condition with a threshold to begin and one to end, and how long it has held.
///
/// Time beyond the first threshold counts for it, time between the two half against it: one moment
/// beyond the first and long just short of it is no long time beyond.
#[derive(Clone, Debug, Default)]
pub(super) struct Dwell {
    began: bool,
    beyond: bool,
    held_ms: u64,
}

impl Dwell {
    /// Takes in whether the value is beyond the first threshold and whether it is short of the second.
    /// Time counts from the sample at which the condition began. It ends short of the second, whatever
    /// else is said.
    pub(super) fn feed(&mut self, elapsed_ms: u64, begins: bool, ends: bool) {
        if ends {
            *self = Self::default();
            return;
        }
        if !begins {
            self.held_ms = self.held_ms.saturating_sub(elapsed_ms.div_ceil(2));
        } else if self.began {
            self.held_ms = self.held_ms.saturating_add(elapsed_ms);
        }
        (self.began, self.beyond) = (self.began || begins, begins);
    }

    /// Whether it is beyond its first threshold now.
    pub(super) fn is_beyond(&self) -> bool {
        self.beyond
    }

    /// For how long it has held, if that is `for_ms` or more and it is beyond its first threshold now.
    pub(super) fn held_for(&self, for_ms: u64) -> Option<u64> {
        (self.beyond && self.held_ms >= for_ms).then_some(self.held_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_follows_a_step_by_its_time_constant() {
        let mut mean = Mean::default();
        assert_eq!(mean.value(), None);
        mean.feed(0, 0, 30_000);
        for _ in 0..300 {
            mean.feed(1000, 100, 30_000);
        }
        assert!((625..=640).contains(&mean.milli()), "1 - 1/e after 30 s: {}", mean.milli());
    }

    #[test]
    fn a_mean_arrives_at_a_steady_value_also_in_short_steps() {
        let mut mean = Mean::default();
        mean.feed(0, 0, 30_000);
        for _ in 0..600_000 {
            mean.feed(777, 1, 30_000);
        }
        assert_eq!(mean.milli(), 777);
    }

    #[test]
    fn a_mean_of_extremes_does_not_overflow() {
        let mut mean = Mean::default();
        mean.feed(u64::MAX, u64::MAX, u64::MAX);
        mean.feed(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(mean.value(), Some(u64::from(u32::MAX)));
        mean.feed(5, 0, 0);
        assert_eq!(mean.value(), Some(5), "without a time constant the last value counts");
    }

    #[test]
    fn a_condition_between_its_thresholds_loses_half_of_the_time_and_is_not_told() {
        let mut dwell = Dwell::default();
        dwell.feed(10, false, false);
        assert!(!dwell.is_beyond());
        for held_for in [0, 10, 20] {
            dwell.feed(10, true, false);
            assert_eq!(dwell.held_for(0), Some(held_for));
        }
        dwell.feed(10, false, false);
        assert_eq!(dwell.held_for(0), None);
        dwell.feed(5, true, false);
        assert_eq!((dwell.held_for(20), dwell.held_for(21)), (Some(20), None));
        dwell.feed(1_000, false, false);
        dwell.feed(10, true, false);
        assert_eq!(dwell.held_for(0), Some(10), "what went before is spent");
        dwell.feed(10, true, true);
        assert!(!dwell.is_beyond() && dwell.held_for(0).is_none());
    }
}
