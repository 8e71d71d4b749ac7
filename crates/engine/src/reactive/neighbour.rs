//! What is remembered of one tenant.

use super::mean::{Dwell, Mean};
use super::rise::Rise;
use super::{LatencyLimit, TenantSample, Thresholds};

/// One tenant's past on this GPU, and its last sample.
#[derive(Clone, Debug)]
pub(super) struct Neighbour {
    pub(super) last: TenantSample,
    pub(super) last_ms: u64,
    pub(super) busy: Mean,
    pub(super) throttled: Mean,
    latency: Latency,
    pub(super) wanting: Dwell,
    pub(super) starved: Dwell,
    pub(super) rise: Rise,
    /// When its starvation and its memory were last told.
    pub(super) starved_told_ms: Option<u64>,
    pub(super) memory_told_ms: Option<u64>,
}

/// The latency of a tenant: of late, usually, and whether that is slow.
#[derive(Clone, Debug, Default)]
struct Latency {
    late: Mean,
    usual: Mean,
    seen_ms: u64,
    last_ms: u64,
    slow: Dwell,
}

impl Neighbour {
    /// A tenant that has just come.
    pub(super) fn new(sample: &TenantSample, at_ms: u64) -> Self {
        Self {
            last: sample.clone(),
            last_ms: at_ms,
            busy: Mean::default(),
            throttled: Mean::default(),
            latency: Latency::default(),
            wanting: Dwell::default(),
            starved: Dwell::default(),
            rise: Rise::default(),
            starved_told_ms: None,
            memory_told_ms: None,
        }
    }

    /// Takes in a sample, a time after the one before that was at most a gap.
    pub(super) fn feed(&mut self, sample: &TenantSample, at_ms: u64, limits: &Thresholds) {
        let elapsed_ms = at_ms.saturating_sub(self.last_ms);
        let milli = |value: u32| u64::from(value.min(1000));
        self.busy.feed(milli(sample.busy_milli), elapsed_ms, limits.smooth_ms);
        self.throttled.feed(milli(sample.throttled_milli), elapsed_ms, limits.smooth_ms);
        self.latency.feed(sample, at_ms, limits);
        self.rise.feed(at_ms, sample.memory_mib, sample.memory_cap_mib, limits.rise_ms);
        (self.last, self.last_ms) = (sample.clone(), at_ms);
    }

    /// Forgets what was measured before a gap, but not what was told.
    pub(super) fn void(&mut self) {
        let (starved, memory) = (self.starved_told_ms, self.memory_told_ms);
        *self = Self::new(&self.last, self.last_ms);
        (self.starved_told_ms, self.memory_told_ms) = (starved, memory);
    }

    /// If it is slow: its p99 in µs and what that is above.
    pub(super) fn slow(&self) -> Option<(u64, LatencyLimit)> {
        let late = self.latency.late.value().filter(|_| self.latency.slow.holds())?;
        let usual = || self.latency.usual.value().map(LatencyLimit::Usual);
        let limit = self.last.latency_target_us.map(LatencyLimit::Target).or_else(usual)?;
        Some((late, limit))
    }
}

impl Latency {
    fn feed(&mut self, sample: &TenantSample, at_ms: u64, limits: &Thresholds) {
        let elapsed_ms = at_ms.saturating_sub(self.last_ms);
        let known = sample.latency_p99_us.filter(|us| *us > 0);
        if self.late.value().is_some() && elapsed_ms > limits.gap_ms {
            *self = Self::default();
        }
        let Some(p99_us) = known else { return };
        let elapsed_ms = if self.late.value().is_some() { elapsed_ms } else { 0 };
        self.late.feed(p99_us, elapsed_ms, limits.smooth_ms);
        self.usual.feed(p99_us, elapsed_ms, limits.usual_ms);
        self.seen_ms = self.seen_ms.saturating_add(elapsed_ms);
        self.last_ms = at_ms;
        let (begins, ends) = self.judge(sample.latency_target_us, limits);
        self.slow.feed(elapsed_ms, begins, ends);
    }

    /// Whether being slow begins, and whether it ends.
    fn judge(&self, target_us: Option<u64>, limits: &Thresholds) -> (bool, bool) {
        let (late, usual) = (self.late.value().unwrap_or(0), self.usual.value().unwrap_or(0));
        let part = |of: u64, milli: u32| of.saturating_mul(u64::from(milli)) / 1000;
        match target_us {
            Some(target) => (late > target, late <= part(target, limits.target_ends_milli)),
            None if self.seen_ms < limits.usual_ms => (false, true),
            None => {
                let begins = late > part(usual, limits.slow_milli);
                (begins, late <= part(usual, limits.slow_ends_milli))
            }
        }
    }
}
