//! Rule: a GPU that is little used for long could be shared finer.

use super::mean::{Dwell, Mean};
use super::neighbour::Neighbour;
use super::{Finding, Sample, Thresholds};

/// Takes in a sample in which `present` were on the GPU, at least one.
///
/// An idle GPU without tenants says nothing, neither way: the caller leaves such samples out.
pub(super) fn feed(
    underused: &mut Dwell,
    sample: &Sample,
    elapsed_ms: u64,
    busy: &Mean,
    present: &[&Neighbour],
    limits: &Thresholds,
) {
    // Who suffers at half load would not gain by more company.
    let troubled = present.iter().any(|tenant| tenant.troubled(sample.at_ms, limits));
    let begins = busy.milli() < limits.underused_milli;
    let ends = busy.milli() >= limits.underused_ends_milli
        || troubled
        || !admits_another(sample.memory_total_mib, present, limits);
    underused.feed(elapsed_ms, begins, ends);
}

/// Whether anybody else could come at all.
fn admits_another(total_mib: u64, present: &[&Neighbour], limits: &Thresholds) -> bool {
    let held_mib: u128 = present.iter().map(|tenant| u128::from(tenant.last.memory_mib)).sum();
    let full = held_mib * 1000 >= u128::from(total_mib) * u128::from(limits.memory_full_milli);
    !present.iter().any(|tenant| tenant.last.exclusive) && (total_mib == 0 || !full)
}

/// The advice, if the GPU has been underused for long enough.
pub(super) fn advise(
    underused: &Dwell,
    busy: &Mean,
    tenants: usize,
    limits: &Thresholds,
) -> Option<Finding> {
    let for_ms = underused.held_for(limits.underused_for_ms)?;
    let (busy_milli, below_milli) = (busy.milli(), limits.underused_milli);
    Some(Finding::ShareFiner { busy_milli, below_milli, for_ms, tenants })
}
