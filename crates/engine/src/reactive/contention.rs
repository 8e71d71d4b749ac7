//! Rule: where a GPU is full and a tenant's latency gets worse, that tenant should be isolated.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::mean::{Dwell, Mean};
use super::neighbour::Neighbour;
use super::{Finding, LatencyLimit, Thresholds};

/// Takes in a sample in which `present` were on the GPU.
pub(super) fn feed(
    contended: &mut Dwell,
    elapsed_ms: u64,
    busy: &Mean,
    present: &[&Neighbour],
    limits: &Thresholds,
) {
    let suffers = present.len() > 1 && present.iter().any(|tenant| tenant.slow().is_some());
    let begins = suffers && busy.milli() >= limits.contended_milli;
    let ends = !suffers || busy.milli() < limits.contended_ends_milli;
    contended.feed(elapsed_ms, begins, ends);
}

/// The advice, if this has gone on for long enough.
pub(super) fn advise(
    contended: &Dwell,
    busy: &Mean,
    present: &[&Neighbour],
    limits: &Thresholds,
) -> Option<Finding> {
    let for_ms = contended.held_for(limits.contended_for_ms)?;
    let (worst, (latency_p99_us, limit)) = worst(present)?;
    let mut others: Vec<&Neighbour> = present.to_vec();
    others.retain(|other| other.last.workload != worst.last.workload);
    others.sort_by_key(|other| {
        (other.last.priority, Reverse(other.busy.milli()), other.last.workload)
    });
    Some(Finding::Isolate {
        busy_milli: busy.milli(),
        for_ms,
        tenant: worst.last.workload,
        latency_p99_us,
        limit,
        neighbours: others.iter().map(|other| other.last.workload).collect(),
    })
}

/// Who is furthest above its limit; of equal ones the one of higher priority, then the first.
fn worst<'a>(present: &[&'a Neighbour]) -> Option<(&'a Neighbour, (u64, LatencyLimit))> {
    let slow = present.iter().filter_map(|tenant| Some((*tenant, tenant.slow()?)));
    slow.min_by_key(|(tenant, (late, limit))| {
        let of = match limit {
            LatencyLimit::Target(us) | LatencyLimit::Usual(us) => (*us).max(1),
        };
        let above = u128::from(*late) * 1000 / u128::from(of);
        (Reverse(above), Reverse(tenant.last.priority), tenant.last.workload)
    })
}
