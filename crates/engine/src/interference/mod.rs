//! How fast a tenant runs on a GPU that it shares, relative to running there alone.
//!
//! A neighbour adds a slow-down α to its victim; speed is `1 / (1 + α in all)`. ln α is a sum of terms
//! (`terms`), each shrunk by what was observed. `compose` adds up several neighbours. See `docs/interference.md`.

mod compose;
mod learn;
mod shipped;
mod terms;

pub use learn::Observation;
pub use shipped::ShippedError;

use alloc::vec::Vec;
use model::{Profile, SharingKind};

use crate::sharing::InstanceShare;
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
        (0..tenants.len()).map(|at| self.one(mode, gpu, tenants, at)).collect()
    }

    fn one(&self, mode: SharingKind, gpu: &str, all: &[Tenant<'_>], at: usize) -> Prediction {
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
                let others = || all.iter().enumerate().filter(|(other, _)| *other != at);
                if others().next().is_none() {
                    return alone;
                }
                let pairs =
                    others().map(|(_, other)| self.pair(mode, gpu, tenant, other)).collect();
                together(mode, pairs)
            }
        }
    }

    /// ln α that `other` adds to `tenant`, its variance, and what it rests on.
    fn pair(&self, mode: SharingKind, gpu: &str, tenant: &Tenant<'_>, other: &Tenant<'_>) -> Pair {
        let known = self.terms.sum(mode, gpu, tenant.kind, other.kind);
        if known.basis >= Basis::OneKind {
            return known;
        }
        match compose::by_profiles(mode, &tenant.profile, &other.profile) {
            Some(ln) => Pair { ln, variance: 1.0, basis: Basis::Profile },
            None => known,
        }
    }

    fn on_slice(&self, gpu: &str, tenant: &Tenant<'_>, slice: InstanceShare) -> Prediction {
        let sum = self.terms.sum(SharingKind::Mig, gpu, tenant.kind, &compose::slice_name(slice));
        let ln = sum.ln + compose::slice_offset(slice);
        together(SharingKind::TimeSlice, alloc::vec![Pair { ln, ..sum }])
    }
}

/// The slow-down by one neighbour, as a logarithm.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ln: f64,
    variance: f64,
    basis: Basis,
}

/// Adds up neighbours, of whom there is at least one.
fn together(mode: SharingKind, pairs: Vec<Pair>) -> Prediction {
    let alphas: Vec<f64> = pairs.iter().map(|pair| libm::exp(pair.ln.clamp(-20.0, 20.0))).collect();
    let speed = 1.0 / (1.0 + compose::total(mode, &alphas));
    // The least certain neighbour speaks for all: their errors have causes in common.
    let variance = pairs.iter().map(|pair| pair.variance).fold(0.0, f64::max);
    let basis = pairs.iter().map(|pair| pair.basis).min().unwrap_or(Basis::Nothing);
    let spread = speed * (1.0 - speed) * libm::sqrt(variance) + NOISE;
    Prediction { speed: speed.max(SPEED_MIN), spread: spread.min(0.5), basis }
}

#[cfg(test)]
mod tests;
