//! What launches cost, learned from some that were measured.

use super::{COSTS, UNKNOWN_NS};

/// Launches of a kind that are measured before it counts as known.
const FIRST: u16 = 3;
/// Known kinds: one of so many launches is measured, more of them while costs vary.
const EVERY: u16 = 64;
/// The most seldom, for kinds whose cost does not vary.
const EVERY_MAX: u16 = 1024;
/// The most often.
const EVERY_MIN: u16 = 16;
/// A mean over about so many measurements: older ones fade.
const MEMORY: u64 = 16;
/// Entries that are looked at for a kind.
const PROBES: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// 0: nobody.
    key: u64,
    mean_ns: u64,
    samples: u16,
    since: u16,
    every: u16,
    /// A launch is being measured.
    pending: bool,
}

/// The costs of the kinds of launches of one process on one GPU.
#[derive(Debug)]
pub struct Costs {
    table: Box<[Cost]>,
}

/// A kind of launch: the function and the size of the grid, by powers of two of a quarter.
///
/// * `function` — handle of the function or executable graph.
/// * `blocks`, `threads` — of the launch; 0 if they do not matter.
pub fn key(function: u64, blocks: u64, threads: u32) -> u64 {
    // Two bits below the highest one: sizes within 25 % are of one kind.
    let top = u64::from(64 - blocks.leading_zeros());
    let class = top << 2 | blocks.checked_shr(top.saturating_sub(3) as u32).unwrap_or(0) & 3;
    let mixed = function ^ class.rotate_left(48) ^ u64::from(threads).rotate_left(32);
    // Multiplier of Fibonacci hashing: 2^64 / golden ratio (Knuth, volume 3, 6.4).
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mixed >> 29) | 1
}

impl Costs {
    /// Nothing is known.
    pub fn new() -> Self {
        Self { table: vec![Cost::default(); COSTS].into_boxed_slice() }
    }

    /// What a launch of this kind is expected to cost, in ns, and whether to measure it.
    pub fn ask(&mut self, key: u64) -> (u64, bool) {
        let Some(cost) = self.entry(key) else { return (UNKNOWN_NS, false) };
        cost.since = cost.since.saturating_add(1);
        let due = cost.samples < FIRST || cost.since >= cost.every;
        // A measurement that got lost is not waited for for ever.
        let measure = due && (!cost.pending || cost.since >= EVERY_MAX);
        if measure {
            (cost.pending, cost.since) = (true, 0);
        }
        (if cost.samples == 0 { UNKNOWN_NS } else { cost.mean_ns }, measure)
    }

    /// Whether a launch of this kind is being measured for the first time.
    pub fn is_first(&self, key: u64) -> bool {
        self.probe(key)
            .and_then(|at| self.table.get(at))
            .is_some_and(|cost| cost.key == key && cost.pending && cost.samples == 0)
    }

    /// A launch was measured. Gives what was expected, and whether it took so much longer that the
    /// estimates of what is in the queue were wrong.
    pub fn sampled(&mut self, key: u64, ns: u64) -> (u64, bool) {
        let Some(cost) = self.entry(key) else { return (ns, false) };
        let expected = if cost.samples == 0 { UNKNOWN_NS } else { cost.mean_ns };
        let off = ns.abs_diff(expected);
        let far = ns > expected.saturating_mul(4);
        cost.pending = false;
        if far {
            // What was learned before says little now.
            cost.samples = cost.samples.min(1);
        }
        let weight = u64::from(cost.samples).min(MEMORY - 1);
        cost.mean_ns = (cost.mean_ns.saturating_mul(weight).saturating_add(ns)) / (weight + 1);
        cost.samples = cost.samples.saturating_add(1);
        cost.every = match () {
            () if cost.samples <= FIRST => EVERY,
            () if off <= expected / 10 => (cost.every.saturating_mul(2)).min(EVERY_MAX),
            () if off > expected / 2 => (cost.every / 2).max(EVERY_MIN),
            () => cost.every,
        };
        (expected, far)
    }

    /// A measurement has failed.
    pub fn lost(&mut self, key: u64) {
        if let Some(cost) = self.entry(key) {
            cost.pending = false;
        }
    }

    /// A kind is gone; its key may soon be another's.
    pub fn forget(&mut self, key: u64) {
        if let Some(cost) = self.probe(key).and_then(|at| self.table.get_mut(at))
            && cost.key == key
        {
            // Not an empty entry: behind one nobody is looked for.
            *cost = Cost { key, every: EVERY, ..Cost::default() };
        }
    }

    /// Functions are gone, and it is not known which: what is known stays the best guess, but each kind is
    /// measured anew, and that counts as much as all before.
    pub fn doubt(&mut self) {
        for cost in &mut *self.table {
            cost.samples = cost.samples.min(1);
        }
    }

    /// Where a kind is or could be: its own entry, else a free one, else the one that is known least.
    fn probe(&self, key: u64) -> Option<usize> {
        let first = usize::try_from(key >> 20).unwrap_or(0);
        let mut best: Option<(u16, usize)> = None;
        for step in 0..PROBES {
            let at = first.wrapping_add(step) % COSTS;
            let cost = self.table.get(at)?;
            if cost.key == key || cost.key == 0 {
                return Some(at);
            }
            if best.is_none_or(|(samples, _)| cost.samples < samples) {
                best = Some((cost.samples, at));
            }
        }
        best.map(|(_, at)| at)
    }

    fn entry(&mut self, key: u64) -> Option<&mut Cost> {
        let at = self.probe(key)?;
        let cost = self.table.get_mut(at)?;
        if cost.key != key {
            *cost = Cost { key, every: EVERY, ..Cost::default() };
        }
        Some(cost)
    }
}

impl Default for Costs {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_measured_then_some_and_steady_ones_seldom() {
        let mut costs = Costs::new();
        let kind = key(0x7000_1000, 100, 256);
        let mut measured = Vec::new();
        for launch in 0..10_000 {
            let (_, measure) = costs.ask(kind);
            if measure {
                measured.push(launch);
                costs.sampled(kind, 5_000);
            }
        }
        assert_eq!(measured[..4], [0, 1, 2, 66]);
        assert!((10..=20).contains(&measured.len()), "{measured:?}");
        assert_eq!(costs.ask(kind).0, 5_000);
    }

    #[test]
    fn kinds_differ_by_function_and_size_and_costs_follow_a_change() {
        assert_eq!(key(1, 1000, 32), key(1, 1020, 32));
        assert_ne!(key(1, 1000, 32), key(1, 2000, 32));
        assert_ne!(key(1, 1000, 32), key(2, 1000, 32));
        let mut costs = Costs::new();
        for _ in 0..100 {
            costs.sampled(7, 1_000_000);
        }
        assert!(costs.sampled(7, 100_000_000).1, "far from what was expected");
        assert!(costs.ask(7).0 > 40_000_000);
        for _ in 0..40 {
            costs.sampled(7, 100_000);
        }
        assert!(costs.ask(7).0 < 10_000_000);
    }

    #[test]
    fn what_is_gone_is_unknown_and_what_may_be_gone_is_measured_anew() {
        let mut costs = Costs::new();
        for _ in 0..100 {
            costs.sampled(7, 1_000_000);
            costs.sampled(9, 1_000_000);
        }
        costs.forget(7);
        assert_eq!(costs.ask(7), (UNKNOWN_NS, true));
        assert_eq!(costs.ask(9), (1_000_000, false));
        costs.doubt();
        assert_eq!(costs.ask(9), (1_000_000, true));
        costs.sampled(9, 10_000);
        assert!(costs.ask(9).0 < 600_000);
    }

    #[test]
    fn more_kinds_than_entries_do_not_break_anything() {
        let mut costs = Costs::new();
        for function in 0..50_000 {
            let kind = key(function, 1, 1);
            assert!(costs.ask(kind).0 <= UNKNOWN_NS);
            costs.sampled(kind, 10);
        }
    }
}
