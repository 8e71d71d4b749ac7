//! Our own policy; `docs/policy.md` explains it.

use super::Candidate;
use super::fgd;
use super::fragment::{Mix, Stand};

pub(crate) fn score(mix: &Mix, stand: &Stand, candidate: &Candidate<'_>) -> i64 {
    fgd::score(mix, stand, candidate)
}
