//! Rule: a tenant that has work, gets next to nothing for long, and sees another compute, starves.

use super::neighbour::Neighbour;
use super::{Finding, Thresholds};
use model::WorkloadId;

/// The others' busiest: who, its priority, its mean busy in thousandths.
pub(super) type Taker = (WorkloadId, i32, u32);

/// Takes in the sample that `tenant` has just been fed; `taker` is the busiest of the others.
pub(super) fn feed(
    tenant: &mut Neighbour,
    elapsed_ms: u64,
    taker: Option<Taker>,
    limits: &Thresholds,
) {
    let (busy_milli, throttled_milli) = (tenant.busy.milli(), tenant.throttled.milli());
    let (begins, ends) =
        (throttled_milli >= limits.wanting_milli, throttled_milli < limits.wanting_ends_milli);
    tenant.wanting.feed(elapsed_ms, begins, ends);
    // Where nobody else computes it is its own cap that holds it, which is as it should be.
    let taken = taker.is_some_and(|(_, _, busy_milli)| busy_milli >= limits.starved_ends_milli);
    let wants = tenant.wanting.holds() && taken;
    let begins = wants && busy_milli < limits.starved_milli;
    tenant.starved.feed(elapsed_ms, begins, !wants || busy_milli >= limits.starved_ends_milli);
}

/// The finding, if the tenant has starved for long enough and that was not told lately.
pub(super) fn find(
    tenant: &mut Neighbour,
    at_ms: u64,
    taker: Option<Taker>,
    limits: &Thresholds,
) -> Option<Finding> {
    let for_ms = tenant.starved.held_for(limits.starved_for_ms)?;
    let (taker, taker_priority, taker_busy_milli) = taker?;
    let told = |then_ms: u64| at_ms.saturating_sub(then_ms) < limits.again_ms;
    if tenant.starved_told_ms.is_some_and(told) {
        return None;
    }
    tenant.starved_told_ms = Some(at_ms);
    Some(Finding::Starved {
        tenant: tenant.last.workload,
        priority: tenant.last.priority,
        busy_milli: tenant.busy.milli(),
        throttled_milli: tenant.throttled.milli(),
        for_ms,
        taker,
        taker_priority,
        taker_busy_milli,
    })
}
