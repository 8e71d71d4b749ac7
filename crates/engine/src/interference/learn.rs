//! Learning: from one observation at a time, or from many at once.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use model::SharingKind;

use super::fill::Fill;
use super::terms::{Key, NOISE, Terms, prior};
use super::{Interference, compose};
use crate::sharing::InstanceShare;

/// Passes over all terms when many observations are fitted.
const SWEEPS: usize = 12;
/// Speeds beyond these say no more than these: near 0 and 1 the logarithm would make much of noise.
const TOLD: (f64, f64) = (0.03, 0.98);

/// A measured speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// How the GPU was shared.
    pub mode: SharingKind,
    /// Its model, lower case.
    pub gpu: String,
    /// The kind of the tenant that was measured.
    pub kind: String,
    /// The kinds of the others on the GPU; not read under MIG.
    pub others: Vec<String>,
    /// The tenant's instance, under MIG.
    pub slice: Option<InstanceShare>,
    /// Speed relative to alone on the whole GPU.
    pub speed: f64,
}

impl Interference {
    /// The model that fits all observations best: first what batch sizes tell under MPS, then least squares with each
    /// term drawn to 0 by its prior. Those of several unlike neighbours come after the others, one by one.
    pub fn fit(observations: &[Observation]) -> Self {
        let mut terms = Terms::default();
        let mut points = Vec::new();
        let (alike, unlike): (Vec<_>, Vec<_>) = observations
            .iter()
            .partition(|seen| seen.others.iter().all(|other| *other == seen.others[0]));
        let told: Vec<_> =
            alike.into_iter().filter_map(|seen| Some((seen, target(seen)?))).collect();
        let fill =
            Fill::fit(&Vec::from_iter(told.iter().map(|(seen, (.., noise))| (*seen, 1.0 / noise))));
        for (seen, (other, wanted, noise)) in told {
            let keys = terms.enter(seen.mode, &seen.gpu, &seen.kind, &other);
            let rest = wanted - fill.ln(seen.mode, &seen.gpu, &seen.kind, &other);
            points.push(Point { keys, rest, weight: 1.0 / noise });
        }
        sweep(&mut terms, &mut points);
        terms.forget();
        let mut model = Self { terms, fill };
        unlike.into_iter().for_each(|seen| model.observe(seen));
        model
    }

    /// Learns from one observation. The same observations in the same order give the same model. What says
    /// nothing is left out: nobody beside it, a whole card, a speed that is no number.
    pub fn observe(&mut self, seen: &Observation) {
        let Some((other, wanted, noise)) = target(seen) else { return };
        let count = if seen.slice.is_some() { 1 } else { seen.others.len() };
        let mut others: Vec<&str> = seen.others.iter().map(String::as_str).collect();
        if seen.mode == SharingKind::Mig {
            others = alloc::vec![other.as_str()];
        }
        let known: Vec<f64> = others
            .iter()
            .map(|other| self.known(seen.mode, &seen.gpu, &seen.kind, other).ln)
            .collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        for (other, known) in others.iter().zip(&known) {
            // Each keeps its part of the slow-down, as far as that was known.
            let told = self.fill.ln(seen.mode, &seen.gpu, &seen.kind, other);
            let wanted = wanted + known - mean - told;
            let keys = self.terms.enter(seen.mode, &seen.gpu, &seen.kind, other);
            self.terms.correct(&keys, wanted, noise * count as f64);
        }
        self.terms.forget();
    }
}

struct Point {
    keys: Vec<Key>,
    rest: f64,
    weight: f64,
}

/// The neighbour, ln α by each, and the variance of that; `None` if the observation says nothing.
fn target(seen: &Observation) -> Option<(String, f64, f64)> {
    if !seen.speed.is_finite() || seen.kind.is_empty() {
        return None;
    }
    let speed = seen.speed.clamp(TOLD.0, TOLD.1);
    let all = 1.0 / speed - 1.0;
    let (other, alpha, offset) = match (seen.mode, seen.slice) {
        (SharingKind::Exclusive, _) | (SharingKind::Mig, None) => return None,
        (SharingKind::Mig, Some(slice)) => {
            (compose::slice_name(slice), all, compose::slice_offset(slice))
        }
        (SharingKind::TimeSlice | SharingKind::Mps | SharingKind::MemoryCapped, _) => {
            let other = seen.others.first()?.clone();
            (other, compose::each(seen.mode, all, seen.others.len()), 0.0)
        }
    };
    let deviation = NOISE / (speed * (1.0 - speed));
    Some((other, libm::log(alpha.max(1e-6)) - offset, deviation * deviation + 0.01))
}

/// Coordinate descent: each term in turn takes what the others leave, less what its prior holds back.
fn sweep(terms: &mut Terms, points: &mut [Point]) {
    let mut of: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for (at, point) in points.iter().enumerate() {
        point.keys.iter().for_each(|key| of.entry(*key).or_default().push(at));
    }
    for _ in 0..SWEEPS {
        for (key, members) in &of {
            let estimate = terms.estimate(*key);
            let weight = |at: &usize| points[*at].weight;
            let precision = members.iter().map(weight).sum::<f64>() + 1.0 / prior(*key);
            let pull: f64 =
                members.iter().map(|at| weight(at) * (points[*at].rest + estimate.value)).sum();
            let moved = pull / precision - estimate.value;
            estimate.value += moved;
            estimate.variance = 1.0 / precision;
            estimate.count = u32::try_from(members.len()).unwrap_or(u32::MAX);
            members.iter().for_each(|at| points[*at].rest -= moved);
        }
    }
}
