//! Where on a GPU a MIG instance is put: where the GPU loses the least *openness*.
//!
//! `placement/mig.rs` chooses the GPU by the same measure; `docs/mig.md` says how the rule compares
//! with others.

use model::{MigGeometry, MigLayout, ProfileIndex};

/// What it costs to strand compute, in memory slices of free placements: 1 is too little to change a
/// decision, 2 to 4 decide nearly alike (`docs/mig.md`).
const LOPSIDED: i64 = 2;

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
/// with its memory slices, less [`LOPSIDED`] where compute is left that no memory is left for.
///
/// The second part keeps 3g from sitting beside 3g while it could sit beside 4g, and gathers the
/// double-memory 1g on GPUs that are lopsided already. Media-engine (`+me`) variants are left out:
/// they fit where their plain profile fits.
pub(crate) fn openness(geometry: &MigGeometry, layout: &MigLayout) -> i64 {
    let plain = geometry.indexed().filter(|(_, profile)| profile.is_plain());
    let placements = plain.map(|(index, profile)| {
        let free = geometry.free_starts(layout, index).count_ones();
        i64::from(free) * i64::from(profile.memory_slices)
    });
    let lopsided = if is_lopsided(geometry, layout) { LOPSIDED } else { 0 };
    placements.sum::<i64>() - lopsided
}

/// Whether more compute slices than memory slices are free: every instance needs one of each.
fn is_lopsided(geometry: &MigGeometry, layout: &MigLayout) -> bool {
    let held = layout.instances().iter().filter_map(|(index, _)| geometry.profile(*index));
    let memory_used: u8 = held.map(|profile| profile.memory_slices).sum();
    let compute_free = geometry.compute_slices.saturating_sub(geometry.compute_used(layout));
    compute_free > geometry.memory_slices.saturating_sub(memory_used)
}
