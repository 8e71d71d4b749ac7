//! Rule: where a GPU is full and a tenant's latency gets worse, that tenant should be isolated.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::mean::Mean;
use super::neighbour::Neighbour;
use super::{Finding, LatencyLimit, Thresholds};

/// Takes in a sample of `tenant` on a GPU that is `busy`, beside others that compute for
/// `others_milli` together. Time without answers proves nothing: it does not count.
pub(super) fn feed(
    tenant: &mut Neighbour,
    elapsed_ms: u64,
    busy: &Mean,
    others_milli: u32,
    limits: &Thresholds,
) {
    let full = busy.milli() >= limits.contended_milli;
    let begins = full && others_milli >= limits.company_milli && tenant.slow(limits).is_some();
    let ends = tenant.answers_well(limits) || busy.milli() < limits.contended_ends_milli;
    let known_ms = if tenant.last.p99_us().is_some() { elapsed_ms } else { 0 };
    tenant.contended.feed(known_ms, begins, ends);
}

/// The advice for who has suffered for long enough and does so most.
pub(super) fn advise(busy: &Mean, present: &[&Neighbour], limits: &Thresholds) -> Option<Finding> {
    let suffering = present.iter().filter_map(|tenant| {
        let for_ms = tenant.contended.held_for(limits.contended_for_ms)?;
        Some((*tenant, for_ms, tenant.slow(limits)?))
    });
    let (worst, for_ms, (latency_p99_us, limit)) = suffering.min_by_key(|(tenant, _, slow)| {
        (Reverse(excess(*slow)), Reverse(tenant.last.priority), tenant.last.workload)
    })?;
    Some(Finding::Isolate {
        busy_milli: busy.milli(),
        for_ms,
        tenant: worst.last.workload,
        latency_p99_us,
        limit,
        neighbours: others(worst, present),
    })
}

/// A latency in thousandths of its limit.
fn excess((p99_us, limit): (u64, LatencyLimit)) -> u128 {
    let (LatencyLimit::Target(limit_us) | LatencyLimit::Usual(limit_us)) = limit;
    u128::from(p99_us) * 1000 / u128::from(limit_us.max(1))
}

/// Those beside `tenant` that compute: lower priority first, then those that compute most.
fn others(tenant: &Neighbour, present: &[&Neighbour]) -> Vec<model::WorkloadId> {
    let mut others: Vec<&Neighbour> = present.to_vec();
    others.retain(|other| other.last.workload != tenant.last.workload && other.busy.milli() > 0);
    others.sort_by_key(|other| {
        (other.last.priority, Reverse(other.busy.milli()), other.last.workload)
    });
    others.iter().map(|other| other.last.workload).collect()
}
