//! How fast a tenant runs on a GPU that it shares, relative to running there alone.
//!
//! A neighbour adds a slow-down α to its victim; speed is `1 / (1 + α in all)`. ln α is a sum of terms
//! (`terms`), each shrunk by what was observed, and under MPS of what batch sizes tell (`fill`). `compose` adds up several
//! neighbours. See `docs/interference.md`.

mod company;
mod compose;
mod fill;
mod learn;
mod shipped;
mod terms;

pub(crate) use company::is_known;
pub use company::{Company, is_waited_for, speed_min_milli};
pub use learn::Observation;
pub use shipped::ShippedError;

use alloc::vec::Vec;
use model::{Profile, SharingKind};

use crate::sharing::InstanceShare;
use fill::Fill;
use terms::{NOISE, Terms};

/// No prediction is below this speed.
pub const SPEED_MIN: f64 = 0.01;
/// Most kinds remembered; the one observed longest ago goes first.
pub const KINDS_MAX: usize = 1024;
/// Most terms remembered, those of pairs included; the one observed longest ago goes first.
pub const TERMS_MAX: usize = 65_536;

/// One of those who share a GPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tenant<'a> {
    /// Its kind, such as `ResNet-18 (batch size 16)`; the family is what stands before ` (`. Empty: not known.
    pub kind: &'a str,
    /// What was measured of it alone.
    pub profile: Profile,
    /// Its MIG instance; read under MIG only.
    pub slice: Option<InstanceShare>,
    /// Thousandths of the GPU's compute that it is held to; 0 is no limit. Not read under MIG.
    pub cap_milli: u32,
    /// Whether somebody waits for its answers: then it counts how fast it is while it computes. Others may catch up when
    /// their neighbours are idle.
    pub is_waited_for: bool,
}

impl Tenant<'_> {
    /// Thousandths of the time or the compute that it takes at most; `None` if nothing is known.
    fn load_milli(&self) -> Option<u32> {
        let cap = (self.cap_milli > 0).then_some(self.cap_milli);
        [self.profile.busy_milli, cap].into_iter().flatten().min()
    }
}

/// What a prediction rests on, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// The mode alone.
    Nothing,
    /// Profiles of the tenants.
    Profile,
    /// One of the two kinds, or its family, has been observed.
    OneKind,
    /// Both kinds, or their families, have been observed, but not together.
    BothKinds,
    /// This pair has been observed.
    Pair,
}

/// How fast one tenant will run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Speed relative to alone on the whole GPU, [`SPEED_MIN`] to 1.
    pub speed: f64,
    /// One standard deviation of `speed`, as far as the model knows.
    pub spread: f64,
    /// The weakest that it rests on among all neighbours.
    pub basis: Basis,
}

/// The model: what it has learned, and what it predicts from that.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interference {
    terms: Terms,
    fill: Fill,
}

impl Interference {
    /// The model fitted to the shipped measurements (`data/interference.csv`).
    ///
    /// # Errors
    /// None in a build whose tests have passed: the table is compiled in.
    pub fn shipped() -> Result<Self, ShippedError> {
        Ok(Self::fit(&shipped::read(shipped::TABLE)?))
    }

    /// Speed of each tenant, in their order, when all of them share one GPU of the model `gpu` (lower case).
    ///
    /// A GPU that was never observed under the mode is taken for the mean of those that were.
    pub fn predict(&self, mode: SharingKind, gpu: &str, tenants: &[Tenant<'_>]) -> Vec<Prediction> {
        let mut pair =
            |at: usize, other: usize| self.pair(mode, gpu, &tenants[at], &tenants[other]);
        (0..tenants.len()).map(|at| self.one(mode, gpu, tenants, at, &mut pair)).collect()
    }

    /// * `pair` — what one tenant does to another, by their places in `all`.
    fn one(
        &self,
        mode: SharingKind,
        gpu: &str,
        all: &[Tenant<'_>],
        at: usize,
        pair: &mut dyn FnMut(usize, usize) -> Pair,
    ) -> Prediction {
        let alone = Prediction { speed: 1.0, spread: 0.0, basis: Basis::Pair };
        let tenant = &all[at];
        match mode {
            SharingKind::Exclusive => alone,
            SharingKind::Mig => match tenant.slice {
                None => alone,
                Some(slice) if slice.compute_milli.min(slice.memory_milli) >= 1000 => alone,
                Some(slice) => self.on_slice(gpu, tenant, slice),
            },
            SharingKind::TimeSlice | SharingKind::Mps | SharingKind::MemoryCapped => {
                let others = (0..all.len()).filter(|other| *other != at);
                let pairs: Vec<(usize, Pair)> =
                    others.map(|other| (other, pair(at, other))).collect();
                let beside = match pairs.is_empty() {
                    true => alone,
                    false => together(
                        mode,
                        pairs.iter().map(|(_, pair)| *pair),
                        crowded(all, at, &pairs),
                    ),
                };
                Prediction { speed: beside.speed.min(capped(tenant)).max(SPEED_MIN), ..beside }
            }
        }
    }

    /// ln α that `other` adds to `tenant`, its variance, and what it rests on.
    fn pair(&self, mode: SharingKind, gpu: &str, tenant: &Tenant<'_>, other: &Tenant<'_>) -> Pair {
        let known = self.known(mode, gpu, tenant.kind, other.kind);
        if known.basis >= Basis::OneKind {
            return known;
        }
        match compose::by_profiles(mode, tenant, other) {
            Some(ln) => Pair { ln, variance: 1.0, basis: Basis::Profile },
            None => known,
        }
    }

    /// ln α by names alone.
    fn known(&self, mode: SharingKind, gpu: &str, kind: &str, other: &str) -> Pair {
        let sum = self.terms.sum(mode, gpu, kind, other);
        Pair { ln: sum.ln + self.fill.ln(mode, gpu, kind, other), ..sum }
    }

    fn on_slice(&self, gpu: &str, tenant: &Tenant<'_>, slice: InstanceShare) -> Prediction {
        let sum = self.terms.sum(SharingKind::Mig, gpu, tenant.kind, &compose::slice_name(slice));
        let known = Pair { ln: sum.ln + compose::slice_offset(slice), ..sum };
        let by_profile = compose::on_slice(tenant, slice)
            .filter(|_| {
                self.terms.sum(SharingKind::Mig, gpu, tenant.kind, "").basis < Basis::OneKind
            })
            .map(|ln| Pair { ln, variance: 1.0, basis: Basis::Profile });
        together(SharingKind::TimeSlice, core::iter::once(by_profile.unwrap_or(known)), 0.0)
    }
}

/// The slow-down by one neighbour, as a logarithm.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ln: f64,
    variance: f64,
    basis: Basis,
}

/// α by what those who are known by their profiles ask together, the tenant included: pairs that fit into the time one by
/// one may not all together.
fn crowded(all: &[Tenant<'_>], at: usize, pairs: &[(usize, Pair)]) -> f64 {
    let load = |at: usize| f64::from(all[at].load_milli().unwrap_or(0)) / 1000.0;
    let known = pairs.iter().filter(|(_, pair)| pair.basis == Basis::Profile);
    let others: f64 = known.map(|(other, _)| load(*other)).sum();
    if others > 0.0 { compose::by_load(load(at) + others) } else { 0.0 }
}

/// The speed that a limit on its compute leaves a tenant.
fn capped(tenant: &Tenant<'_>) -> f64 {
    match tenant.profile.busy_milli {
        Some(busy) if tenant.cap_milli > 0 && busy > tenant.cap_milli => {
            f64::from(tenant.cap_milli) / f64::from(busy)
        }
        _ => 1.0,
    }
}

/// Adds up neighbours, of whom there is at least one.
///
/// * `least` — the slow-down that all together make at least.
fn together(
    mode: SharingKind,
    pairs: impl Iterator<Item = Pair> + Clone,
    least: f64,
) -> Prediction {
    let alphas: Vec<f64> =
        pairs.clone().map(|pair| libm::exp(pair.ln.clamp(-20.0, 20.0))).collect();
    let speed = 1.0 / (1.0 + compose::total(mode, &alphas).max(least));
    // The least certain neighbour speaks for all: their errors have causes in common.
    let variance = pairs.clone().map(|pair| pair.variance).fold(0.0, f64::max);
    let basis = pairs.map(|pair| pair.basis).min().unwrap_or(Basis::Nothing);
    let spread = speed * (1.0 - speed) * libm::sqrt(variance) + NOISE;
    Prediction { speed: speed.max(SPEED_MIN), spread: spread.min(0.5), basis }
}

#[cfg(test)]
mod tests;
