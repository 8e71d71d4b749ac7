//! Rule: a GPU that is little used for long could be shared finer.

use super::mean::{Dwell, Mean};
use super::{Finding, Thresholds};

/// Takes in a sample with `tenants`; whether one of them is `slow` though the GPU has room.
///
/// An idle GPU without tenants says nothing, neither way: the caller leaves such samples out.
pub(super) fn feed(
    underused: &mut Dwell,
    elapsed_ms: u64,
    busy: &Mean,
    slow: bool,
    limits: &Thresholds,
) {
    let begins = busy.milli() < limits.underused_milli;
    // Somebody who suffers at half load would not gain by more company.
    let ends = slow || busy.milli() >= limits.underused_ends_milli;
    underused.feed(elapsed_ms, begins, ends);
}

/// The advice, if the GPU has been underused for long enough.
pub(super) fn advise(
    underused: &Dwell,
    busy: &Mean,
    tenants: usize,
    limits: &Thresholds,
) -> Option<Finding> {
    let for_ms = underused.held_for(limits.underused_for_ms)?;
    let (busy_milli, below_milli) = (busy.milli(), limits.underused_ends_milli);
    Some(Finding::ShareFiner { busy_milli, below_milli, for_ms, tenants })
}
