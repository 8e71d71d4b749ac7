//! What a turn and what a MIG instance is worth.

use alloc::vec::Vec;
use core::cmp::Reverse;

use model::{GpuModel, MigGeometry, MigProfile, ProfileIndex};

use super::{Bound, Need};

const WHOLE_MILLI: u32 = 1000;

/// What changing from one tenant to the next costs where they take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switching {
    /// Length of a turn, in µs.
    pub slice_us: u32,
    /// What is lost at each change, in µs.
    pub switch_us: u32,
}

impl Default for Switching {
    /// 2 ms turns, which is what is told of the driver's setting "short" (Red Hat's laboratory pages), and 100 µs lost at each
    /// change: an assumption, as no dependable figure is published. `hotpot` measures neither; give your own.
    fn default() -> Self {
        Self { slice_us: 2000, switch_us: 100 }
    }
}

/// Thousandths of a GPU that each of `tenants` gets where all want turns all the time: `P_total / N` less what changing costs. One alone
/// loses nothing, none get nothing.
pub fn turn_milli(tenants: u32, switching: Switching) -> u32 {
    match tenants {
        0 => 0,
        1 => WHOLE_MILLI,
        tenants => {
            let (slice, switch) = (u64::from(switching.slice_us), u64::from(switching.switch_us));
            let round = (slice + switch).saturating_mul(u64::from(tenants)).max(1);
            (u64::from(WHOLE_MILLI) * slice / round) as u32
        }
    }
}

/// What an instance has of its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceShare {
    /// Thousandths of the GPU's compute, by real compute slices: 3g of 7 is 428.
    pub compute_milli: u32,
    /// Thousandths of its memory, by real memory slices: 3g of 8 is 500.
    pub memory_milli: u32,
}

impl InstanceShare {
    /// Compute less memory: how far "half the memory" is from "half the card"; −72 for 3g.40gb of A100-80GB.
    pub fn off_milli(self) -> i32 {
        self.compute_milli as i32 - self.memory_milli as i32
    }
}

/// What an instance of a profile has of its GPU (NVIDIA MIG user guide, "Supported profiles"); `None` if the geometry has no such profile.
pub fn instance_share(geometry: &MigGeometry, profile: ProfileIndex) -> Option<InstanceShare> {
    let profile = geometry.profile(profile)?;
    let part = |slices: u8, all: u8| u32::from(slices) * WHOLE_MILLI / u32::from(all.max(1));
    let compute_milli = part(profile.compute_slices, geometry.compute_slices);
    let memory_milli = part(profile.memory_slices, geometry.memory_slices);
    Some(InstanceShare { compute_milli, memory_milli })
}

/// Most instances on one GPU that each hold `booked`, context included: those of the smallest profile that does. Otherwise what no
/// instance has enough of; [`Bound::Tenants`] where the model has no instances.
pub(super) fn instances_max(model: &GpuModel, booked: Need) -> Result<u32, Bound> {
    let Some(geometry) = &model.mig else { return Err(Bound::Tenants) };
    let asked = u64::from(booked.compute_milli) * u64::from(geometry.compute_slices);
    let mut computing = Vec::from_iter(geometry.profiles.iter().filter(|profile| {
        let milli = u64::from(profile.compute_slices) * u64::from(WHOLE_MILLI);
        profile.is_plain() && milli >= asked
    }));
    if computing.is_empty() {
        return Err(Bound::Compute);
    }
    computing.retain(|profile| model.instance_memory_mib(profile) >= booked.memory_mib);
    let size = |profile: &&MigProfile| {
        (profile.memory_slices, profile.compute_slices, Reverse(profile.instances_max))
    };
    let smallest = computing.into_iter().min_by_key(size).ok_or(Bound::Memory)?;
    Ok(u32::from(smallest.instances_max))
}

#[cfg(test)]
mod tests {
    use model::{Catalogue, MigLayout};

    use super::*;
    use crate::best_start;

    /// Instances that the placement rule finds room for, each time the smallest that will do.
    fn placed(model: &GpuModel, need: Need) -> u32 {
        let geometry = model.mig.as_ref().unwrap();
        let slices = u64::from(geometry.compute_slices);
        let mut enough = Vec::from_iter(geometry.indexed().filter(|(_, profile)| {
            profile.is_plain()
                && u64::from(profile.compute_slices) * 1000
                    >= u64::from(need.compute_milli) * slices
                && model.instance_memory_mib(profile) >= need.memory_mib
        }));
        enough.sort_by_key(|(_, profile)| (profile.memory_slices, profile.compute_slices));
        let next = |layout: &MigLayout| {
            let start = |index| Some((index, best_start(geometry, layout, index)?));
            enough.iter().find_map(|(index, _)| start(*index))
        };
        let (mut layout, mut count) = (MigLayout::default(), 0);
        while let Some((index, start)) = next(&layout) {
            (layout, count) = (layout.with(index, start), count + 1);
        }
        count
    }

    #[test]
    fn as_many_are_counted_as_the_placement_rule_seats() {
        let catalogue = Catalogue::shipped().unwrap();
        for name in ["a100-80gb", "a100-40gb", "a30", "h100-80gb"] {
            let model = catalogue.get(name).unwrap();
            for memory_mib in (0..model.memory_mib + 4096).step_by(1024) {
                for compute_milli in (0..=1100).step_by(50) {
                    let need = Need { memory_mib, compute_milli };
                    let counted = instances_max(model, need).unwrap_or(0);
                    assert_eq!(counted, placed(model, need), "{name} {need:?}");
                }
            }
        }
    }

    #[test]
    fn turns_are_equal_less_what_changing_costs() {
        let free = Switching { slice_us: 2000, switch_us: 0 };
        assert_eq!([0, 1, 2, 3, 4].map(|n| turn_milli(n, free)), [0, 1000, 500, 333, 250]);
        assert_eq!(turn_milli(2, Switching::default()), 476);
        assert_eq!(turn_milli(1, Switching { slice_us: 1, switch_us: u32::MAX }), 1000);
        assert_eq!(turn_milli(2, Switching { slice_us: 0, switch_us: 0 }), 0);
        assert_eq!(turn_milli(u32::MAX, Switching::default()), 0);
    }

    #[test]
    fn half_the_memory_is_not_half_the_card() {
        let catalogue = Catalogue::shipped().unwrap();
        let geometry = catalogue.get("a100-80gb").unwrap().mig.clone().unwrap();
        let of = |name: &str| instance_share(&geometry, geometry.find(name).unwrap()).unwrap();
        let three = of("3g.40gb");
        assert_eq!((three.compute_milli, three.memory_milli, three.off_milli()), (428, 500, -72));
        let seven = of("7g.80gb");
        assert_eq!((seven.compute_milli, seven.memory_milli, seven.off_milli()), (1000, 1000, 0));
        let one = of("1g.10gb");
        assert_eq!((one.compute_milli, one.memory_milli, one.off_milli()), (142, 125, 17));
        assert_eq!(instance_share(&geometry, ProfileIndex(200)), None);
    }
}
