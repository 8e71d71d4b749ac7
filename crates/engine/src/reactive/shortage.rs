//! Rule: a tenant whose memory is near its cap and keeps rising will run out of it.

use super::neighbour::Neighbour;
use super::{Finding, Thresholds};

/// The finding for a tenant that has just been fed, if that was not told lately.
pub(super) fn find(tenant: &mut Neighbour, at_ms: u64, limits: &Thresholds) -> Option<Finding> {
    let (memory_mib, cap_mib) = (tenant.last.memory_mib, tenant.last.memory_cap_mib);
    let near =
        u128::from(memory_mib) * 1000 >= u128::from(cap_mib) * u128::from(limits.near_cap_milli);
    if cap_mib == 0 || !near {
        return None;
    }
    let trend = tenant.rise.trend(at_ms, memory_mib, cap_mib, limits.rise_ms)?;
    let soon = trend.reaches_in_ms <= limits.runs_out_ms;
    if !soon || limits.told_lately(tenant.memory_told_ms, at_ms) {
        return None;
    }
    tenant.memory_told_ms = Some(at_ms);
    Some(Finding::MemoryRunsOut {
        tenant: tenant.last.workload,
        memory_mib,
        cap_mib,
        mib_per_min: trend.mib_per_min,
        in_ms: trend.reaches_in_ms,
    })
}
