//! MIG as geometry: which instance profiles a GPU model has, at which memory slices each may start,
//! and which sets of instances fit on one GPU together.
//!
//! A profile occupies `memory_slices` consecutive memory slices from one of its legal starts and
//! uses up `compute_slices` of the GPU's compute slices. Source: NVIDIA MIG user guide, "Supported
//! profiles"; the table itself is `data/mig_profiles.csv`.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// A profile's position in its [`MigGeometry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProfileIndex(pub u8);

/// One kind of MIG instance of one GPU model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigProfile {
    /// The driver's name, such as `3g.40gb` or `1g.10gb+me`.
    pub name: String,
    /// Compute slices, 1 to 7.
    pub compute_slices: u8,
    /// Memory slices, 1 to 8.
    pub memory_slices: u8,
    /// Memory of an instance; nominal GB from the table times 1024, until the driver says better.
    pub memory_mib: u64,
    /// Most instances of this profile on one GPU.
    pub instances_max: u8,
    /// Memory slices at which an instance may start, ascending.
    pub starts: Vec<u8>,
}

impl MigProfile {
    /// Whether it is not a media-engine variant (`+me`).
    pub fn is_plain(&self) -> bool {
        !self.name.contains('+')
    }

    /// Memory slices that an instance starting at `start` occupies, one bit each.
    pub fn mask(&self, start: u8) -> u16 {
        ((1u16 << self.memory_slices) - 1) << start
    }
}

/// All profiles of one GPU model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigGeometry {
    /// Compute slices of the whole GPU (7, or 4 on the small parts).
    pub compute_slices: u8,
    /// Memory slices of the whole GPU (8, or 4).
    pub memory_slices: u8,
    /// Profiles, in the table's order.
    pub profiles: Vec<MigProfile>,
}

/// The instances on one GPU: profile and first memory slice each.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MigLayout {
    instances: Vec<(ProfileIndex, u8)>,
}

impl MigLayout {
    /// The instances in order of their first memory slice.
    pub fn instances(&self) -> &[(ProfileIndex, u8)] {
        &self.instances
    }

    /// This layout and one instance more, without asking whether it fits.
    #[must_use]
    pub fn with(&self, profile: ProfileIndex, start: u8) -> Self {
        let mut layout = self.clone();
        layout.insert(profile, start);
        layout
    }

    /// Adds an instance without asking whether it fits; see [`MigGeometry::admit`].
    pub(crate) fn insert(&mut self, profile: ProfileIndex, start: u8) {
        let at = self.instances.partition_point(|(_, other)| *other < start);
        self.instances.insert(at, (profile, start));
    }
}

impl MigGeometry {
    /// The profile at a position; `None` for a position of another geometry.
    pub fn profile(&self, index: ProfileIndex) -> Option<&MigProfile> {
        self.profiles.get(usize::from(index.0))
    }

    /// The profile with the driver's name `name`.
    pub fn find(&self, name: &str) -> Option<ProfileIndex> {
        let at = self.profiles.iter().position(|profile| profile.name == name)?;
        u8::try_from(at).ok().map(ProfileIndex)
    }

    /// Every profile with its position.
    pub fn indexed(&self) -> impl Iterator<Item = (ProfileIndex, &MigProfile)> {
        (0..=u8::MAX).map(ProfileIndex).zip(&self.profiles)
    }

    /// Whether an instance fits beside those in `layout`; see [`MigGeometry::free_starts`].
    ///
    /// # Errors
    /// [`Refusal::MigPlacement`] with the profile's name, if the start is not legal, the slices are
    /// taken, the compute slices do not suffice or the profile's own maximum is reached.
    pub fn admit(&self, layout: &MigLayout, asked: ProfileIndex, start: u8) -> Result<(), Refusal> {
        let refusal = || Refusal::MigPlacement {
            profile: self.profile(asked).map_or_else(String::new, |p| p.name.clone()),
        };
        let free = self.free_starts(layout, asked) & 1u16.checked_shl(start.into()).unwrap_or(0);
        if free != 0 { Ok(()) } else { Err(refusal()) }
    }

    /// Legal starts at which `asked` still fits beside `layout`, as a set of bits.
    pub fn free_starts(&self, layout: &MigLayout, asked: ProfileIndex) -> u16 {
        let Some(profile) = self.profile(asked) else { return 0 };
        let (taken, compute, same) = self.occupancy(layout, asked);
        if compute + profile.compute_slices > self.compute_slices || same >= profile.instances_max {
            return 0;
        }
        let free = |start: &&u8| taken & profile.mask(**start) == 0;
        profile.starts.iter().filter(free).fold(0, |set, start| set | 1 << start)
    }

    /// Compute slices in use by `layout`.
    pub fn compute_used(&self, layout: &MigLayout) -> u8 {
        let slices = |(index, _): &(ProfileIndex, u8)| {
            self.profile(*index).map_or(0, |profile| profile.compute_slices)
        };
        layout.instances.iter().map(slices).sum()
    }

    /// Every layout that fits, the empty one included, without `+me` profiles, each layout once.
    ///
    /// A few hundred values: meant for tests and for planning changes of layout, not for each
    /// decision.
    pub fn layouts(&self) -> Vec<MigLayout> {
        let mut found = Vec::new();
        self.extend_layouts(MigLayout::default(), 0, &mut found);
        found
    }

    /// Whether no further instance (without `+me`) fits beside `layout`.
    pub fn is_maximal(&self, layout: &MigLayout) -> bool {
        self.indexed()
            .filter(|(_, profile)| profile.is_plain())
            .all(|(index, _)| self.free_starts(layout, index) == 0)
    }

    fn extend_layouts(&self, layout: MigLayout, from: u8, found: &mut Vec<MigLayout>) {
        for (index, profile) in self.indexed() {
            if !profile.is_plain() {
                continue;
            }
            for start in profile.starts.iter().copied().filter(|start| *start >= from) {
                if self.admit(&layout, index, start).is_ok() {
                    let mut next = layout.clone();
                    next.insert(index, start);
                    self.extend_layouts(next, start + profile.memory_slices, found);
                }
            }
        }
        found.push(layout);
    }

    /// Memory slices taken, compute slices taken, instances of `asked` present.
    fn occupancy(&self, layout: &MigLayout, asked: ProfileIndex) -> (u16, u8, u8) {
        let mut sums = (0, 0, 0);
        for (index, start) in &layout.instances {
            if let Some(profile) = self.profile(*index) {
                sums.0 |= profile.mask(*start);
                sums.1 += profile.compute_slices;
                sums.2 += u8::from(*index == asked);
            }
        }
        sums
    }
}
