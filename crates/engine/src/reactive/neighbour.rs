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
    /// Whether it is slow on a full GPU, and whether it starves.
    pub(super) contended: Dwell,
    pub(super) starved: Dwell,
    pub(super) rise: Rise,
    /// When its starvation and its memory were last told.
    pub(super) starved_told_ms: Option<u64>,
    pub(super) memory_told_ms: Option<u64>,
}

/// The latency of a tenant: of late, and usually.
#[derive(Clone, Debug, Default)]
struct Latency {
    late: Mean,
    usual: Mean,
    seen_ms: u64,
    last_ms: u64,
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
            contended: Dwell::default(),
            starved: Dwell::default(),
            rise: Rise::default(),
            starved_told_ms: None,
            memory_told_ms: None,
        }
    }

    /// Takes in a sample of the last `elapsed_ms`. Time in which it was away is not in it.
    pub(super) fn feed(
        &mut self,
        sample: &TenantSample,
        at_ms: u64,
        elapsed_ms: u64,
        limits: &Thresholds,
    ) {
        let milli = |value: u32| u64::from(value.min(1000));
        self.busy.feed(milli(sample.busy_milli), elapsed_ms, limits.smooth_ms);
        self.throttled.feed(milli(sample.throttled_milli), elapsed_ms, limits.smooth_ms);
        self.latency.feed(sample, at_ms, elapsed_ms, limits);
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
    pub(super) fn slow(&self, limits: &Thresholds) -> Option<(u64, LatencyLimit)> {
        let (late_us, limit) = self.latency(limits)?;
        let most_us = match limit {
            LatencyLimit::Target(us) => us,
            LatencyLimit::Usual(us) => part(us, limits.slow_milli),
        };
        (late_us > most_us).then_some((late_us, limit))
    }

    /// Whether nothing is wrong with its latency, or nothing known of it.
    pub(super) fn answers_well(&self, limits: &Thresholds) -> bool {
        self.latency(limits).is_none_or(|(late_us, limit)| match limit {
            LatencyLimit::Target(us) => late_us <= part(us, limits.target_ends_milli),
            LatencyLimit::Usual(us) => late_us <= part(us, limits.slow_ends_milli),
        })
    }

    /// Whether it has trouble that more tenants would make worse: slow, starved, or told of as such or
    /// as short of memory of late.
    pub(super) fn troubled(&self, at_ms: u64, limits: &Thresholds) -> bool {
        let told = [self.starved_told_ms, self.memory_told_ms];
        self.slow(limits).is_some()
            || self.starved.is_beyond()
            || told.into_iter().any(|then_ms| limits.told_lately(then_ms, at_ms))
    }

    /// Its p99 of late in µs and what that is to be measured against, if both are known.
    fn latency(&self, limits: &Thresholds) -> Option<(u64, LatencyLimit)> {
        let seen = self.latency.seen_ms >= limits.usual_ms;
        let usual = self.latency.usual.value().filter(|_| seen).map(LatencyLimit::Usual);
        let target = self.last.latency_target_us.filter(|us| *us > 0).map(LatencyLimit::Target);
        Some((self.latency.late.value()?, target.or(usual)?))
    }
}

/// A part of a latency, in thousandths.
fn part(us: u64, milli: u32) -> u64 {
    us.saturating_mul(u64::from(milli)) / 1000
}

impl Latency {
    fn feed(&mut self, sample: &TenantSample, at_ms: u64, elapsed_ms: u64, limits: &Thresholds) {
        if at_ms.saturating_sub(self.last_ms) > limits.gap_ms {
            *self = Self::default();
        }
        let Some(p99_us) = sample.p99_us() else { return };
        let elapsed_ms = if self.late.value().is_some() { elapsed_ms } else { 0 };
        self.late.feed(p99_us, elapsed_ms, limits.smooth_ms);
        self.usual.feed(p99_us, elapsed_ms, limits.usual_ms);
        self.seen_ms = self.seen_ms.saturating_add(elapsed_ms);
        self.last_ms = at_ms;
    }
}
