//! Several neighbours, profiles and MIG slices: what is reckoned rather than learned.

use alloc::format;
use alloc::string::String;

use model::SharingKind;

use super::Tenant;
use crate::sharing::InstanceShare;

/// How much more than their sum several light neighbours slow down under MPS, where the first finds idle
/// multiprocessors and the later ones do not (ParvaGPU's tables). Below `1 / ln 7`, so that more is never faster.
const CROWDING: f64 = 0.45;
/// Neighbours beyond these crowd no further.
const CROWD_MAX: f64 = 7.0;
/// Speed on a part p of a card is p to this power, if nothing is known of the tenant (MISO's medians).
const SLICE_POWER: f64 = 0.6;
/// Slow-down of tenants that together just fill the time there is.
const ALPHA_FULL: f64 = 0.2;
/// No pair is known to do less to each other.
const ALPHA_MIN: f64 = 1e-4;

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

/// A part of a GPU, 0 to 1.
fn part(milli: Option<u32>) -> Option<f64> {
    milli.map(|milli| f64::from(milli.min(1000)) / 1000.0)
}

/// α of tenants that together ask so much of a resource, where 1 is all of it: what exceeds it hurts, and before that they get
/// into each other's way the more the fuller it is. Set by hand to pairs of training jobs (Lucid, ASPLOS'23, as published: 1.3 %
/// lost at 40 to 60 % busy, 12 % at 90 to 95 %, 21 % above).
pub(super) fn by_load(load: f64) -> f64 {
    let crowded = ALPHA_FULL * libm::pow(load.clamp(0.0, 1.0), 4.0);
    crowded.max(load - 1.0)
}

/// ln α from profiles; `None` if they say too little. By turns only what exceeds the time there is hurts, but whoever is
/// waited for loses the neighbour's time whenever that computes; under MPS L2 and DRAM count as gpulet has fitted them
/// (ATC'22), else the scarcest of what both know.
pub(super) fn by_profiles(
    mode: SharingKind,
    tenant: &Tenant<'_>,
    beside: &Tenant<'_>,
) -> Option<f64> {
    let (own, other) = (&tenant.profile, &beside.profile);
    let excess = |a, b| Some(by_load(part(a)? + part(b)?));
    let busy = match tenant.is_waited_for {
        true => part(beside.load_milli()),
        false => excess(tenant.load_milli(), beside.load_milli()),
    };
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

/// ln α on a slice for a tenant of whom is known what it takes of the whole GPU: the scarcer of compute and bandwidth, each
/// over what the slice has. Whoever is waited for may want all of the compute in its busy time, so busy says nothing there.
pub(super) fn on_slice(tenant: &Tenant<'_>, slice: InstanceShare) -> Option<f64> {
    let busy = part(tenant.profile.busy_milli).filter(|_| !tenant.is_waited_for);
    let over = |part: f64, has_milli: u32| part * 1000.0 / f64::from(has_milli.max(1)) - 1.0;
    let compute =
        part(tenant.profile.sm_milli).or(busy).map(|part| over(part, slice.compute_milli));
    let dram = part(tenant.profile.dram_milli).map(|part| over(part, slice.memory_milli));
    let alpha = compute?.max(dram.unwrap_or(0.0));
    Some(libm::log(alpha.max(ALPHA_MIN)))
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
