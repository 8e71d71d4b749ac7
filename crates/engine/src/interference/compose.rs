//! Several neighbours, profiles and MIG slices: what is reckoned rather than learned.

use alloc::format;
use alloc::string::String;

use model::{Profile, SharingKind};

use crate::sharing::InstanceShare;

/// How much more than their sum several light neighbours slow down under MPS, where the first finds idle
/// multiprocessors and the later ones do not (ParvaGPU's tables). Below `1 / ln 7`, so that more is never faster.
const CROWDING: f64 = 0.45;
/// Neighbours beyond these crowd no further.
const CROWD_MAX: f64 = 7.0;
/// Speed on a part p of a card is p to this power, if nothing is known of the tenant (MISO's medians).
const SLICE_POWER: f64 = 0.6;
/// Slow-down of tenants that do not get in each other's way.
const ALPHA_MIN: f64 = 0.02;

/// The slow-down by all neighbours from that by each: the sum, under MPS more if they are light.
pub(super) fn total(mode: SharingKind, alphas: &[f64]) -> f64 {
    let sum: f64 = alphas.iter().sum();
    let count = alphas.len() as f64;
    match mode {
        SharingKind::Mps => {
            let light = 1.0 - (sum / count).min(1.0);
            sum * libm::pow(count.min(CROWD_MAX), CROWDING * light)
        }
        SharingKind::Exclusive
        | SharingKind::TimeSlice
        | SharingKind::Mig
        | SharingKind::MemoryCapped => sum,
    }
}

/// The slow-down by each of `count` equal neighbours that together make `wanted`.
pub(super) fn each(mode: SharingKind, wanted: f64, count: usize) -> f64 {
    let (mut low, mut high) = (0.0, wanted);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        match total(mode, &alloc::vec![middle; count]) < wanted {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

/// ln α from profiles; `None` if they say too little. By turns only what exceeds the time there is hurts; under MPS
/// L2 and DRAM count as gpulet has fitted them (ATC'22), else the scarcest of what both know.
pub(super) fn by_profiles(mode: SharingKind, own: &Profile, other: &Profile) -> Option<f64> {
    let part = |milli: Option<u32>| milli.map(|milli| f64::from(milli.min(1000)) / 1000.0);
    let excess = |a, b| Some((part(a)? + part(b)? - 1.0).max(0.0));
    let busy = excess(own.busy_milli, other.busy_milli);
    let alpha = match (
        mode,
        part(own.l2_milli),
        part(other.l2_milli),
        part(own.dram_milli),
        part(other.dram_milli),
    ) {
        (SharingKind::Mps, Some(l2), Some(l2_other), Some(dram), Some(dram_other)) => {
            Some(0.113 * l2 + 0.716 * l2_other + 0.355 * dram + 0.088 * dram_other - 0.105)
        }
        (SharingKind::Mps, ..) => {
            let (sm, dram) =
                (excess(own.sm_milli, other.sm_milli), excess(own.dram_milli, other.dram_milli));
            [sm, dram].into_iter().flatten().reduce(f64::max).or(busy)
        }
        _ => busy,
    };
    alpha.map(|alpha| libm::log(alpha.max(ALPHA_MIN)))
}

/// What a slice is called where kinds of neighbours are.
pub(super) fn slice_name(slice: InstanceShare) -> String {
    format!("slice {}/{}", slice.compute_milli, slice.memory_milli)
}

/// ln α on a slice of which nothing else is known.
pub(super) fn slice_offset(slice: InstanceShare) -> f64 {
    let part = f64::from(slice.compute_milli.clamp(1, 999)) / 1000.0;
    libm::log(libm::pow(part, -SLICE_POWER) - 1.0)
}
