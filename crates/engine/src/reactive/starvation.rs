//! Rule: a tenant that has work, gets next to nothing for long, and sees others compute, starves.

use super::neighbour::Neighbour;
use super::{Finding, Thresholds};
use model::WorkloadId;

/// The others: what they compute together, mean in thousandths; and of the busiest who it is, its
/// priority and its mean busy in thousandths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Takers {
    pub(super) busy_milli: u32,
    pub(super) first: (WorkloadId, i32, u32),
}

/// Takes in the sample that `tenant` has just been fed.
pub(super) fn feed(tenant: &mut Neighbour, elapsed_ms: u64, taken_milli: u32, limits: &Thresholds) {
    let (busy_milli, throttled_milli) = (tenant.busy.milli(), tenant.throttled.milli());
    let begins = busy_milli < limits.starved_milli
        && throttled_milli >= limits.wanting_milli
        && taken_milli >= limits.taken_milli;
    let ends = busy_milli >= limits.starved_ends_milli
        || throttled_milli < limits.wanting_ends_milli
        || taken_milli < limits.taken_ends_milli;
    tenant.starved.feed(elapsed_ms, begins, ends);
}

/// The finding, if the tenant has starved for long enough and that was not told lately.
pub(super) fn find(
    tenant: &mut Neighbour,
    at_ms: u64,
    takers: Option<Takers>,
    limits: &Thresholds,
) -> Option<Finding> {
    let for_ms = tenant.starved.held_for(limits.starved_for_ms)?;
    let Takers { busy_milli: others_milli, first } = takers?;
    if limits.told_lately(tenant.starved_told_ms, at_ms) {
        return None;
    }
    tenant.starved_told_ms = Some(at_ms);
    let (taker, taker_priority, taker_busy_milli) = first;
    Some(Finding::Starved {
        tenant: tenant.last.workload,
        priority: tenant.last.priority,
        busy_milli: tenant.busy.milli(),
        throttled_milli: tenant.throttled.milli(),
        for_ms,
        others_milli,
        taker,
        taker_priority,
        taker_busy_milli,
    })
}
