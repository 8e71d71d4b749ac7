//! Where on a GPU a MIG instance is put, so that the largest profiles stay possible.

use alloc::vec::Vec;

use model::{MigGeometry, MigLayout, ProfileIndex, Share};

use super::Candidate;

/// The best free start for an instance of `asked`; `None` if no placement is free.
///
/// Each start is judged by what would still fit beside it: the placements left to every profile,
/// weighed by the profile's memory slices. Equal starts go to the highest, because the big profiles
/// begin at 0.
pub fn best_start(geometry: &MigGeometry, layout: &MigLayout, asked: ProfileIndex) -> Option<u8> {
    let free = geometry.free_starts(layout, asked);
    let starts = (0..16u8).filter(|start| free & (1 << start) != 0);
    starts.max_by_key(|start| (openness(geometry, &layout.with(asked, *start)), *start))
}

/// What still fits beside `layout`: placements left, weighed by size.
pub(crate) fn openness(geometry: &MigGeometry, layout: &MigLayout) -> u32 {
    let worth = geometry.indexed().map(|(index, profile)| {
        geometry.free_starts(layout, index).count_ones() * u32::from(profile.memory_slices)
    });
    worth.collect::<Vec<_>>().iter().sum()
}

/// Whether the candidate takes MIG instances and nothing else.
pub(crate) fn all_instances(candidate: &Candidate<'_>) -> bool {
    let mut shares = candidate.picks.iter().map(|pick| pick.share);
    !candidate.picks.is_empty() && shares.all(|share| matches!(share, Share::Mig { .. }))
}

/// The openness that the GPUs lose, negated; of equal losses the fuller GPU wins.
pub(crate) fn score(candidate: &Candidate<'_>) -> i64 {
    let loss = candidate.picks.iter().map(|pick| {
        let gpu = candidate.node.gpus().get(usize::from(pick.gpu));
        let geometry = gpu.and_then(|gpu| Some((gpu, gpu.model().mig.as_ref()?)));
        let (Some((gpu, geometry)), Share::Mig { profile, start }) = (geometry, pick.share) else {
            return 0;
        };
        let layout = gpu.layout();
        let after = openness(geometry, &layout.with(profile, start));
        let lost = i64::from(openness(geometry, &layout)) - i64::from(after);
        lost * 1000 + i64::from(pick.left_milli)
    });
    -loss.sum::<i64>()
}
