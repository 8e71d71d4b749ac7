//! The terms of ln α, what is known of each, and who is forgotten.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use model::SharingKind;

use super::{Basis, KINDS_MAX, Pair, TERMS_MAX};

/// Error of one measured speed.
pub(super) const NOISE: f64 = 0.05;
/// Variance of ln α before anything is known, by the place of the term in [`Terms::keys`]: mean of mode and GPU;
/// victim's family, victim; neighbour's family, neighbour; the pair by families, by one and the other, itself.
const PRIOR: [f64; 9] = [4.0, 1.5, 0.9, 1.5, 0.9, 0.9, 0.45, 0.45, 0.15];
/// Observations on any GPU that count as one on this.
const ELSEWHERE: u32 = 4;
/// A term keeps this part of its first variance, so that it follows what changes.
const KEPT: f64 = 0.02;

/// Table of mode and GPU, place in [`PRIOR`], victim, neighbour. Numbers are those of names; 0 is nobody.
pub(super) type Key = (u32, u8, u32, u32);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) variance: f64,
    /// Observations of it.
    pub(super) count: u32,
    /// When it was last observed, counted in observations.
    seen: u64,
}

/// All that was learned. Names have numbers that are never given again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Terms {
    /// Number and time of the last observation, by name of kind, family, or mode with GPU.
    names: BTreeMap<String, (u32, u64)>,
    estimates: BTreeMap<Key, Estimate>,
    given: u32,
    clock: u64,
}

/// The part of a kind before ` (`: the kind without its batch size.
pub(super) fn family(kind: &str) -> &str {
    kind.split(" (").next().unwrap_or(kind)
}

/// Names the table of a mode and a GPU; turns are turns, with memory caps or without. An empty GPU is all of them.
pub(super) fn table(mode: SharingKind, gpu: &str) -> String {
    let mode = match mode {
        SharingKind::MemoryCapped => SharingKind::TimeSlice,
        SharingKind::Exclusive | SharingKind::TimeSlice | SharingKind::Mps | SharingKind::Mig => {
            mode
        }
    };
    alloc::format!("gpu:{}:{gpu}", mode.as_str())
}

impl Terms {
    /// The longest name of a GPU that was observed under the mode and begins the name of this one: what is known of `v100` counts
    /// for `v100m16`. Its own name if there is none.
    fn measured_as<'a>(&self, mode: SharingKind, gpu: &'a str) -> &'a str {
        let known = |end: &usize| self.names.contains_key(&table(mode, &gpu[..*end]));
        let ends = gpu.char_indices().map(|(at, letter)| at + letter.len_utf8());
        ends.filter(known).max().map_or(gpu, |end| &gpu[..end])
    }

    pub(super) fn sum(&self, mode: SharingKind, gpu: &str, kind: &str, other: &str) -> Pair {
        let gpu = self.measured_as(mode, gpu);
        let near = |kind: &str| self.number(&of_family(kind));
        let of = [near(kind), self.number(kind), near(other), self.number(other)];
        let (mut ln, mut variance, mut seen) = (0.0, 0.0, [0_u32; 9]);
        for (table, part) in [(table(mode, ""), ELSEWHERE), (table(mode, gpu), 1)] {
            for (at, key) in keys(self.number(&table), of).iter().enumerate() {
                let found = key.and_then(|key| self.estimates.get(&key));
                ln += found.map_or(0.0, |found| found.value);
                seen[at] = seen[at].max(found.map_or(0, |found| found.count.div_ceil(part)));
            }
        }
        // Terms err against each other, so their own variances do not add up to that of the sum.
        for (prior, seen) in PRIOR.iter().zip(seen) {
            variance += prior / (1.0 + f64::from(seen));
        }
        let seen = seen.map(|count| count > 0);
        let basis = match (seen[8], seen[1] || seen[2], seen[3] || seen[4]) {
            (true, ..) => Basis::Pair,
            (_, true, true) => Basis::BothKinds,
            (_, true, false) | (_, false, true) => Basis::OneKind,
            (_, false, false) => Basis::Nothing,
        };
        Pair { ln, variance, basis }
    }

    /// The keys of a pair, for all GPUs together and for its own, with all names entered.
    pub(super) fn enter(
        &mut self,
        mode: SharingKind,
        gpu: &str,
        kind: &str,
        other: &str,
    ) -> Vec<Key> {
        self.clock += 1;
        let gpu = self.measured_as(mode, gpu);
        let names = [of_family(kind), kind.to_string(), of_family(other), other.to_string()];
        let of = [0, 1, 2, 3].map(|at: usize| self.touch(&names[at]));
        let tables = [table(mode, ""), table(mode, gpu)].map(|table| self.touch(&table));
        tables.into_iter().flat_map(|table| keys(table, of)).flatten().collect()
    }

    /// What is known of a term, at the least its prior; it counts as seen now.
    pub(super) fn estimate(&mut self, key: Key) -> &mut Estimate {
        let fresh = Estimate { value: 0.0, variance: prior(key), count: 0, seen: self.clock };
        let estimate = self.estimates.entry(key).or_insert(fresh);
        estimate.seen = self.clock;
        estimate
    }

    /// Moves the terms by their parts of an error with the variance `noise`.
    pub(super) fn correct(&mut self, keys: &[Key], wanted: f64, noise: f64) {
        let (mut sum, mut spread) = (0.0, noise);
        for key in keys {
            let estimate = self.estimate(*key);
            sum += estimate.value;
            spread += estimate.variance;
        }
        for key in keys {
            let estimate = self.estimate(*key);
            estimate.count = estimate.count.saturating_add(1);
            let gain = estimate.variance / spread;
            estimate.value += gain * (wanted - sum);
            estimate.variance = (estimate.variance * (1.0 - gain)).max(KEPT * prior(*key));
        }
    }

    /// Forgets those observed longest ago until the limits hold.
    pub(super) fn forget(&mut self) {
        while self.names.len() > KINDS_MAX {
            let oldest = self.names.values().map(|(number, seen)| (*seen, *number)).min();
            let Some((_, gone)) = oldest else { return };
            self.names.retain(|_, (number, _)| *number != gone);
            self.estimates.retain(|key, _| ![key.0, key.2, key.3].contains(&gone));
        }
        while self.estimates.len() > TERMS_MAX {
            let oldest = self.estimates.iter().map(|(key, estimate)| (estimate.seen, *key)).min();
            let Some((_, gone)) = oldest else { return };
            self.estimates.remove(&gone);
        }
    }

    fn number(&self, name: &str) -> u32 {
        self.names.get(name).map_or(0, |(number, _)| *number)
    }

    fn touch(&mut self, name: &str) -> u32 {
        if name.is_empty() || name == "family:" {
            return 0;
        }
        if let Some((number, seen)) = self.names.get_mut(name) {
            *seen = self.clock;
            return *number;
        }
        self.given += 1;
        self.names.insert(name.to_string(), (self.given, self.clock));
        self.given
    }
}

fn of_family(kind: &str) -> String {
    alloc::format!("family:{}", family(kind))
}

/// Variance of a term before anything is known.
pub(super) fn prior(key: Key) -> f64 {
    PRIOR.get(usize::from(key.1)).copied().unwrap_or(1.0)
}

/// Terms of a pair, in the order of [`PRIOR`]; `None` where somebody is not known.
fn keys(table: u32, [near, kind, near_other, other]: [u32; 4]) -> [Option<Key>; 9] {
    let one = |place, a: u32, b: u32| (table != 0 && a + b != 0).then_some((table, place, a, b));
    let two = |place, a: u32, b: u32| if a * b == 0 { None } else { one(place, a, b) };
    let mean = (table != 0).then_some((table, 0, 0, 0));
    [
        mean,
        one(1, near, 0),
        one(2, kind, 0),
        one(3, 0, near_other),
        one(4, 0, other),
        two(5, near, near_other),
        two(6, kind, near_other),
        two(7, near, other),
        two(8, kind, other),
    ]
}
