//! Where on a GPU a MIG instance is put, so that the largest profiles stay possible.

use alloc::vec::Vec;

use model::{MigGeometry, MigLayout, ProfileIndex};

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
