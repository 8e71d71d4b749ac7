//! Fragmentation gradient descent: the seat whose choice lets fragmentation grow least.
//!
//! Source: Weng et al., USENIX ATC'23, section 5, and its published artifact, from which the cut to
//! whole percent comes. The cut is not cosmetic: it makes many seats equal, so that the fleet's
//! order concentrates work; with full precision the published result is missed by 1.4 points.

use super::Candidate;
use super::fragment::{Mix, Stand, lefts, offers_of};

/// 0 to 100; 50 means that fragmentation stays as it is.
pub(crate) fn score(mix: &Mix, stand: &Stand, candidate: &Candidate<'_>) -> i64 {
    let shrinkage = (stand.amount - after(mix, stand, candidate)) / 1000.0;
    (100.0 / (1.0 + libm::exp(-shrinkage))) as i64
}

/// The node's fragmentation once the candidate is seated, in thousandths of GPU.
pub(crate) fn after(mix: &Mix, stand: &Stand, candidate: &Candidate<'_>) -> f64 {
    let cpu_milli = candidate.cpu_after_milli();
    let total_milli = stand.total_milli - candidate.taken_milli();
    match candidate.picks {
        [] => mix.amount(cpu_milli, total_milli, |shape| stand.offers[shape]),
        [pick] => {
            let gpu = candidate.node.gpus().get(usize::from(pick.gpu));
            let model = gpu.map_or(0, |gpu| gpu.model().id.0);
            let change = (pick.left_milli, pick.left_after_milli);
            mix.amount(cpu_milli, total_milli, |shape| stand.offer_after(mix, shape, model, change))
        }
        several => {
            let mut left = lefts(candidate.node);
            for pick in several {
                left[usize::from(pick.gpu)].1 = pick.left_after_milli;
            }
            let offers = offers_of(mix, &left);
            mix.amount(cpu_milli, total_milli, |shape| offers[shape])
        }
    }
}
