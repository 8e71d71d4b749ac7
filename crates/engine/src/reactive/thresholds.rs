//! All numbers that the rules go by, in one place, with their reasons.

/// Thresholds, dwell times and cool-downs of all rules of one GPU.
///
/// Most conditions have two thresholds: time beyond the first counts, time between the two counts half
/// against it, and short of the second it ends; it is told while beyond the first only. If they are the
/// wrong way round the second wins, so that the condition never begins. Any value is legal. The
/// defaults are chosen, not measured, unless a source is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// A gap between samples longer than this (ms) voids what was seen before: nobody knows what
    /// happened in it. Two samples a minute with two of them lost are still one series.
    pub gap_ms: u64,
    /// Time constant of the means of busy, throttled and latency (ms). Half a minute evens out
    /// batches and garbage collection and follows a change of load within two minutes.
    pub smooth_ms: u64,
    /// No advice for so long (ms) after any. Half an hour is long against what a new division of a
    /// GPU costs its tenants.
    pub cool_down_ms: u64,
    /// No advice to share finer for so long (ms) after contention. A load that comes and goes by the
    /// hour is divided for its peaks; one that goes by day and night may be divided anew.
    pub calm_ms: u64,
    /// A finding of a tenant is not said again for so long (ms), also if its cause comes and goes.
    pub again_ms: u64,

    /// Mean busy (thousandths) below which a GPU is underused. Pairs of training jobs that keep a GPU
    /// 40 to 60 % busy between them lose 1.3 % of their speed (Lucid, ASPLOS'23, artifact).
    pub underused_milli: u32,
    /// Mean busy (thousandths) from which it no longer is.
    pub underused_ends_milli: u32,
    /// Part of the GPU's memory (thousandths) from which tenants leave none for another.
    pub memory_full_milli: u32,
    /// For how long (ms) it must be underused: longer than a load phase or a pause between epochs.
    pub underused_for_ms: u64,

    /// Mean busy (thousandths) from which tenants are in contention. The same pairs lose 12 % of their
    /// speed on a GPU that is 90 to 95 % busy, and 21 % above.
    pub contended_milli: u32,
    /// Mean busy (thousandths) below which they no longer are.
    pub contended_ends_milli: u32,
    /// Others that compute less than this together (thousandths) cannot be why a tenant is slow.
    pub company_milli: u32,
    /// For how long (ms) the GPU must be contended and a tenant slow. People wait at it, so this is
    /// short; but it outlasts a burst.
    pub contended_for_ms: u64,
    /// A tenant without a target is slow from this part of its usual latency on (thousandths).
    pub slow_milli: u32,
    /// It no longer is from this part of its usual latency down (thousandths).
    pub slow_ends_milli: u32,
    /// A tenant with a target is slow above it, and no longer from this part of it down
    /// (thousandths).
    pub target_ends_milli: u32,
    /// Time constant (ms) of the usual latency, which must have been seen for as long. What worsens
    /// more slowly than about 2.5 % a minute is taken for usual: set a target.
    pub usual_ms: u64,

    /// A tenant that computes less than this (thousandths) gets next to nothing.
    pub starved_milli: u32,
    /// From this on (thousandths) it gets something.
    pub starved_ends_milli: u32,
    /// It wants to compute if it is held back for this part of the time or more (thousandths).
    pub wanting_milli: u32,
    /// It no longer wants to, below this (thousandths).
    pub wanting_ends_milli: u32,
    /// From this on (thousandths) others together take what it lacks. On a GPU with room it is its own
    /// cap that holds it back, which is as it should be.
    pub taken_milli: u32,
    /// Below this (thousandths) they no longer do.
    pub taken_ends_milli: u32,
    /// For how long (ms) it must starve: batch work may wait for minutes.
    pub starved_for_ms: u64,

    /// Part of its cap (thousandths) from which a tenant is near it. Frameworks keep a cache and run
    /// at 80 % and more for good.
    pub near_cap_milli: u32,
    /// Window (ms) in which memory must rise, in each of its halves: one jump is no trend.
    pub rise_ms: u64,
    /// Warn if the cap is reached within this time (ms).
    pub runs_out_ms: u64,
}

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60_000;

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            gap_ms: 2 * MINUTE_MS,
            smooth_ms: 30 * SECOND_MS,
            cool_down_ms: 30 * MINUTE_MS,
            calm_ms: 240 * MINUTE_MS,
            again_ms: 10 * MINUTE_MS,
            underused_milli: 500,
            underused_ends_milli: 600,
            memory_full_milli: 900,
            underused_for_ms: 10 * MINUTE_MS,
            contended_milli: 900,
            contended_ends_milli: 800,
            company_milli: 50,
            contended_for_ms: 2 * MINUTE_MS,
            slow_milli: 1_250,
            slow_ends_milli: 1_100,
            target_ends_milli: 900,
            usual_ms: 10 * MINUTE_MS,
            starved_milli: 20,
            starved_ends_milli: 50,
            wanting_milli: 200,
            wanting_ends_milli: 100,
            taken_milli: 500,
            taken_ends_milli: 400,
            starved_for_ms: 5 * MINUTE_MS,
            near_cap_milli: 850,
            rise_ms: 2 * MINUTE_MS,
            runs_out_ms: 10 * MINUTE_MS,
        }
    }
}

impl Thresholds {
    /// Whether what was told of a tenant at `then_ms` is not to be told again at `at_ms`.
    pub(super) fn told_lately(&self, then_ms: Option<u64>, at_ms: u64) -> bool {
        then_ms.is_some_and(|then_ms| at_ms.saturating_sub(then_ms) < self.again_ms)
    }
}
