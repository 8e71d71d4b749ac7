//! How full clients make a GPU under MPS, by the batch sizes in the names of their kinds: what is known before any has run.
//!
//! Two clients are in each other's way where both have work for the same multiprocessors, so α grows with the work of one
//! times the work of the other, until the GPU is full and each gets an equal part (α = 1): α = q / (1 + q), q = w · w' / half².
//! The work w of a client is its batch size over the part of the card that the GPU is.

use model::SharingKind;

use super::{Observation, compose};

/// Compute slices of a whole card.
const SLICES: f64 = 7.0;
/// Works that are tried for `half`: 1 to 1,024, two to a doubling.
const HALVES: core::ops::RangeInclusive<u32> = 0..=20;
/// Clients with next to no work do this to each other: measured speeds beyond 0.98 are not told apart.
const ALPHA_MIN: f64 = 0.02;

/// What was learned of it: nothing in a model that was fitted to no batch size under MPS.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Fill(Option<Curve>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Curve {
    /// The work of each of two equal clients with α = 1/2.
    half: f64,
    /// The batch size of whoever names none: the geometric mean of those that were shown, by weight.
    usual: f64,
}

impl Fill {
    /// The curve that errs least in speed, by squares; none if nobody under MPS names a batch size.
    ///
    /// * `seen` — with the weight of each.
    pub(super) fn fit(seen: &[(&Observation, f64)]) -> Self {
        let seen = || seen.iter().filter(|(seen, _)| seen.mode == SharingKind::Mps);
        let (mut all, mut sum) = (0.0, 0.0);
        for (seen, weight) in seen() {
            let Some(batch) = batch(&seen.kind) else { continue };
            (all, sum) = (all + weight, sum + weight * libm::log(batch));
        }
        if all <= 0.0 {
            return Self(None);
        }
        let usual = libm::exp(sum / all);
        let curves = HALVES.map(|at| Curve { half: libm::exp2(f64::from(at) / 2.0), usual });
        let error = |curve: &Curve| seen().map(|(seen, _)| curve.error(seen)).sum::<f64>();
        let judged = curves.map(|curve| (error(&curve), curve));
        Self(judged.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, curve)| curve))
    }

    /// ln α by which a client slows down another, before anything is known of either; 0, an equal part, where there are turns.
    pub(super) fn ln(&self, mode: SharingKind, gpu: &str, kind: &str, other: &str) -> f64 {
        match (mode, &self.0) {
            (SharingKind::Mps, Some(curve)) => libm::log(curve.alpha(gpu, kind, other)),
            _ => 0.0,
        }
    }
}

impl Curve {
    fn alpha(&self, gpu: &str, kind: &str, other: &str) -> f64 {
        let work = |kind| batch(kind).unwrap_or(self.usual) / part(gpu) / self.half;
        let both = work(kind) * work(other);
        (both / (1.0 + both)).max(ALPHA_MIN)
    }

    /// The square of its error in an observed speed; 0 where nobody else was there.
    fn error(&self, seen: &Observation) -> f64 {
        let Some(other) = seen.others.first() else { return 0.0 };
        let alphas = alloc::vec![self.alpha(&seen.gpu, &seen.kind, other); seen.others.len()];
        let speed = 1.0 / (1.0 + compose::total(seen.mode, &alphas));
        (speed - seen.speed) * (speed - seen.speed)
    }
}

/// The batch size that a kind names, as in `bert (batch 8)` or `LM (batch size 80)`.
fn batch(kind: &str) -> Option<f64> {
    let (_, named) = kind.split_once(" (batch ")?;
    let number = named.strip_suffix(')')?.rsplit(' ').next()?;
    number.parse::<u32>().ok().filter(|batch| *batch > 0).map(f64::from)
}

/// The part of the card that a GPU is: `a100-80gb/3` is an instance of 3 compute slices.
fn part(gpu: &str) -> f64 {
    let slices = gpu.rsplit_once('/').and_then(|(_, slices)| slices.parse::<u8>().ok());
    slices.map_or(1.0, |slices| (f64::from(slices) / SLICES).clamp(1.0 / SLICES, 1.0))
}
