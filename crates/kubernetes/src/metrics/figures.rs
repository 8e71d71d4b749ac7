//! What agents tell of shares, made figures of pods: rates between two rounds, and sums over a pod's shares. Pure: it is told the time.

use std::collections::BTreeMap;

use agent::reading::{Pod, Reading, ShareReading};

/// What is older is not told, in ms.
pub(super) const OLD_MS: i64 = 60_000;

/// A pod's shares, by device and claim.
type Shares = BTreeMap<(String, String), ShareReading>;

/// What there is to ask for. Names as autoscalers have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    /// GPU time had, in thousandths of what the pod's shares may have.
    Busy,
    /// Time for which launches were held back, in thousandths of the time that passed, summed over processes.
    Throttled,
    /// Device memory held, in bytes.
    Memory,
}

impl Metric {
    pub(super) const ALL: [Self; 3] = [Self::Busy, Self::Throttled, Self::Memory];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "hotpot_gpu_busy_milli",
            Self::Throttled => "hotpot_gpu_throttled_milli",
            Self::Memory => "hotpot_gpu_memory_used_bytes",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.as_str() == name)
    }
}

/// A value of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figure {
    /// In the metric's unit.
    pub(super) value: u64,
    /// When the agent was asked, in ms since 1970.
    pub(super) at_ms: i64,
    /// Time that it is about, in ms; 0 for a moment.
    pub(super) window_ms: i64,
}

/// What was told last of each pod, and before.
#[derive(Debug, Default)]
pub(super) struct Book(BTreeMap<Pod, Known>);

#[derive(Clone, Debug, Default)]
struct Known {
    at_ms: i64,
    shares: Shares,
    /// The round before.
    before: Option<(i64, Shares)>,
}

impl Book {
    /// Takes in what an agent has told of its pods.
    pub(super) fn take(&mut self, reading: Reading, now_ms: i64) {
        for (pod, shares) in reading {
            let known = self.0.entry(pod).or_default();
            let last = (known.at_ms, std::mem::take(&mut known.shares));
            let before = Some(last).filter(|(at_ms, shares)| {
                !shares.is_empty() && *at_ms < now_ms && now_ms - at_ms <= OLD_MS
            });
            *known = Known { at_ms: now_ms, shares, before };
        }
    }

    /// Forgets pods of which nobody has told for long.
    pub(super) fn forget(&mut self, now_ms: i64) {
        self.0.retain(|_, known| now_ms.saturating_sub(known.at_ms) <= OLD_MS);
    }

    /// What is known of a pod; `None` if nothing, or nothing that is young enough.
    pub(super) fn figure(&self, metric: Metric, pod: &Pod, now_ms: i64) -> Option<Figure> {
        let known = self.0.get(pod)?;
        if now_ms.saturating_sub(known.at_ms) > OLD_MS {
            return None;
        }
        let passed_ms = known.before.as_ref().map_or(0, |(at_ms, _)| known.at_ms - at_ms);
        let (value, window_ms) = match metric {
            Metric::Busy => (1000.0 * known.busy()?, passed_ms),
            Metric::Throttled => (1000.0 * known.throttled()?, passed_ms),
            Metric::Memory => (sum(known.shares.values().map(|one| one.memory_used_bytes))?, 0),
        };
        Some(Figure { value: whole(value), at_ms: known.at_ms, window_ms })
    }
}

impl Known {
    /// Parts of the time that its shares may have: what each had of its device, by what it may have of it.
    fn busy(&self) -> Option<f64> {
        let had = self
            .shares
            .iter()
            .map(|(key, share)| self.rate(key, share, |one| one.gpu_seconds).or(share.busy_ratio));
        let may = self.shares.values().map(|one| one.compute_cap_ratio.unwrap_or(1.0)).sum::<f64>();
        let had = sum(had)?;
        (may > 0.0).then(|| had / may)
    }

    fn throttled(&self) -> Option<f64> {
        sum(self
            .shares
            .iter()
            .map(|(key, share)| self.rate(key, share, |one| one.throttled_seconds)))
    }

    /// Seconds of each second since the round before; `None` if there was none, or the count began anew.
    fn rate(
        &self,
        key: &(String, String),
        now: &ShareReading,
        count: fn(&ShareReading) -> Option<f64>,
    ) -> Option<f64> {
        let (at_ms, shares) = self.before.as_ref()?;
        let more = count(now)? - count(shares.get(key)?)?;
        let passed_ms = u32::try_from(self.at_ms - at_ms).ok().filter(|passed| *passed > 0)?;
        (more >= 0.0).then(|| more * 1000.0 / f64::from(passed_ms))
    }
}

/// The sum; `None` if one is not known, or there are none.
fn sum(mut all: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let first = all.next()??;
    all.try_fold(first, |sum, one| Some(sum + one?))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float ends at the ends"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests;
