//! Where a MIG instance is put: at which start on a GPU, and on which GPU.
//!
//! Both questions have one answer: where the GPU loses the least *openness*. `docs/mig.md` says how
//! the rule compares with others.

use model::{MigGeometry, MigLayout, ProfileIndex, Share};

use super::Candidate;

/// The best free start for an instance of `asked`; `None` if no placement is free.
///
/// It is the one that leaves the GPU most open. Equal starts go to the highest, because the big
/// profiles begin at 0.
pub fn best_start(geometry: &MigGeometry, layout: &MigLayout, asked: ProfileIndex) -> Option<u8> {
    let free = geometry.free_starts(layout, asked);
    let starts = (0..16u8).filter(|start| free & (1 << start) != 0);
    if free.count_ones() < 2 {
        return starts.min();
    }
    starts.max_by_key(|start| (openness(geometry, &layout.with(asked, *start)), *start))
}

/// How much could still come beside `layout`: the free placements of every profile, each counted
/// with its memory slices, less the slices stranded without one of the other kind.
///
/// The second part is what makes 3g and 4g share a GPU: two 3g leave a compute slice without
/// memory, two doubles as much compute as nobody can use. Media-engine (`+me`) variants are left
/// out: they fit where their plain profile fits.
fn openness(geometry: &MigGeometry, layout: &MigLayout) -> i64 {
    let plain = geometry.indexed().filter(|(_, profile)| !profile.name.contains('+'));
    let placements = plain.map(|(index, profile)| {
        let free = geometry.free_starts(layout, index).count_ones();
        i64::from(free) * i64::from(profile.memory_slices)
    });
    placements.sum::<i64>() - stranded(geometry, layout)
}

/// Free compute slices beyond the free memory slices, or the other way round.
fn stranded(geometry: &MigGeometry, layout: &MigLayout) -> i64 {
    let held = layout.instances().iter().filter_map(|(index, _)| geometry.profile(*index));
    let memory: u8 = held.map(|profile| profile.memory_slices).sum();
    let memory_free = i64::from(geometry.memory_slices) - i64::from(memory);
    let compute_free =
        i64::from(geometry.compute_slices) - i64::from(geometry.compute_used(layout));
    (memory_free - compute_free).abs()
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
        let before = gpu.layout();
        let after = before.with(profile, start);
        let lost = openness(geometry, &before) - openness(geometry, &after);
        lost * 1000 + i64::from(pick.left_milli)
    });
    -loss.sum::<i64>()
}
