//! Shards or MPS that do not spread evenly over the GPUs of a node, in whichever file they are counted.

use std::ops::Range;

use crate::finding::Finding;
use crate::finding::Severity::NotWhatYouThink;

/// * `kind` — `shard` or `mps`; `count` — of all GPUs of the node, which are `gpus`.
/// * `write` — how a count is written in this file; `elsewhere` — where it stands too.
pub(crate) fn uneven(
    span: &Range<usize>,
    (kind, count): (&str, u64),
    gpus: u64,
    (write, elsewhere): (&str, &str),
) -> Option<Finding> {
    if gpus == 0 || count.is_multiple_of(gpus) {
        return None;
    }
    let (least, most) = (count / gpus, count.div_ceil(gpus));
    let even = |each: u64| format!("{write}{}", each.saturating_mul(gpus));
    let (happens, instead) = match least {
        0 => (format!("{} of them have none", gpus - count), even(most)),
        _ => (
            format!(
                "some have {least}, others {most}, so a share is not the same on each, and a job of {kind}:{most} has fewer places than you think"
            ),
            format!("{} or {}", even(least), even(most)),
        ),
    };
    Some(Finding::new(
        ("shared-uneven", NotWhatYouThink),
        span.clone(),
        format!("{count} of {kind} do not spread evenly over {gpus} GPUs: {happens}"),
        format!("write {instead}, here and in {elsewhere}"),
    ))
}
