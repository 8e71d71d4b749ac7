//! How fast workloads get on: alone at full speed, beside others as fast as a model of sharing says.

use std::cell::RefCell;

use engine::interference::{Company, Interference};
use model::Gpu;

/// Thousandths that make full speed.
const FULL_MILLI: u32 = 1000;

/// A model of how fast the tenants of a GPU run. The empty one, `()`, has everybody run at full speed.
pub trait Speeds {
    /// Whether everybody runs at full speed, whoever sits beside.
    fn are_full(&self) -> bool {
        true
    }

    /// Speeds of a GPU's tenants in thousandths of running alone on that GPU, in the order of its tenants; 0 counts as 1.
    fn of(&self, gpu: &Gpu) -> Vec<u32> {
        vec![FULL_MILLI; gpu.tenants().len()]
    }
}

impl Speeds for () {}

/// Speeds as the engine predicts them from what is known of the tenants; see [`engine::interference`].
#[derive(Default)]
pub struct Predicted {
    company: RefCell<Company>,
}

impl Predicted {
    /// By a model of one's own; [`Predicted::default`] goes by the shipped one.
    pub fn new(model: Interference) -> Self {
        Self { company: RefCell::new(Company::new(model)) }
    }
}

impl Speeds for Predicted {
    fn are_full(&self) -> bool {
        false
    }

    fn of(&self, gpu: &Gpu) -> Vec<u32> {
        let told = self.company.borrow_mut().on(gpu);
        told.iter().map(|told| (told.speed * f64::from(FULL_MILLI)).round() as u32).collect()
    }
}

/// How far a workload has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Work that is left, in thousandths of ms at full speed.
    left: u128,
    speed_milli: u32,
    since_ms: u64,
}

impl Pace {
    /// One that starts at full speed.
    pub(crate) fn new(runs_ms: u64, now_ms: u64) -> Self {
        let left = u128::from(runs_ms) * u128::from(FULL_MILLI);
        Self { left, speed_milli: FULL_MILLI, since_ms: now_ms }
    }

    /// Runs on at another speed.
    pub(crate) fn change(&mut self, speed_milli: u32, now_ms: u64) {
        let ran_ms = now_ms.saturating_sub(self.since_ms);
        let done = u128::from(ran_ms) * u128::from(self.speed_milli);
        *self = Self {
            left: self.left.saturating_sub(done),
            speed_milli: speed_milli.max(1),
            since_ms: now_ms,
        };
    }

    /// When it is done if nothing changes.
    pub(crate) fn end_ms(&self) -> u64 {
        let needs_ms = self.left.div_ceil(u128::from(self.speed_milli));
        self.since_ms.saturating_add(u64::try_from(needs_ms).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_longer_as_long_as_somebody_sits_beside() {
        let mut pace = Pace::new(10_000, 0);
        assert_eq!(pace.end_ms(), 10_000);
        pace.change(500, 4_000);
        assert_eq!(pace.end_ms(), 16_000, "6 s are left, at half speed");
        pace.change(1000, 8_000);
        assert_eq!(pace.end_ms(), 12_000, "4 s are left");
        pace.change(0, 12_000);
        assert_eq!(pace.end_ms(), 12_000, "done is done");
    }

    #[test]
    fn no_length_and_no_speed_overflows() {
        let mut pace = Pace::new(u64::MAX, u64::MAX - 1);
        assert_eq!(pace.end_ms(), u64::MAX);
        pace.change(1, u64::MAX);
        assert_eq!(pace.end_ms(), u64::MAX);
    }
}
