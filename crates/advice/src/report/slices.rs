//! A card in MIG instances: each at its true place in memory slices, what it has of compute slices, and which slices no instance can have.

use model::{GpuModel, MigGeometry, MigLayout, MigProfile, ProfileIndex, Share};

use super::lanes::{Axis, Drawing, Segment, Tenant};
use super::tenants::Part;

/// Compute of a whole card.
const WHOLE_MILLI: f64 = 1000.0;

/// The drawing of a card in instances; `None` if a share is none of this model's instances.
pub(super) fn drawing(model: &GpuModel, parts: &[Part<'_>]) -> Option<Drawing> {
    let geometry = model.mig.as_ref()?;
    let mut layout = MigLayout::default();
    let (mut tenants, mut computed) = (Vec::new(), 0);
    for part in parts {
        let Share::Mig { profile: index, start } = part.held.share else { return None };
        let profile = geometry.profile(index)?;
        layout = layout.with(index, start);
        tenants.push(tenant(model, geometry, part, (profile, start, computed)));
        computed += profile.compute_slices;
    }
    let (reach, taken) = (reach(geometry, &layout, 0), mask(geometry, &layout));
    let memory = Slices { all: geometry.memory_slices, taken, within_reach: reach.memory };
    // Compute slices have no places of their own: what is free and what is lost comes last.
    let compute = Slices {
        all: geometry.compute_slices,
        taken: range(computed),
        within_reach: range(reach.compute),
    };
    Some(Drawing {
        tenants,
        memory: memory.axis("Memory slices"),
        compute: compute.axis("Compute slices"),
    })
}

fn tenant(
    model: &GpuModel,
    geometry: &MigGeometry,
    part: &Part<'_>,
    (profile, start, computed): (&MigProfile, u8, u8),
) -> Tenant {
    let need = part.need;
    let asked_mib = need.map_or(0, |need| need.memory_mib.saturating_add(model.context_mib));
    let asked_memory =
        asked_mib as f64 * f64::from(geometry.memory_slices) / model.memory_mib.max(1) as f64;
    let asked_milli = need.map_or(0, |need| need.compute_milli);
    let asked_compute = f64::from(asked_milli) * f64::from(geometry.compute_slices) / WHOLE_MILLI;
    // Who names a profile asks just that; the rest of a slice is then rounding.
    let whole = |asked: f64, slices: u8| {
        if part.names_profile { f64::from(slices) } else { asked }
    };
    let (name, told) = (&part.name, part.told());
    let of_memory = (profile.memory_slices, geometry.memory_slices);
    let of_compute = (profile.compute_slices, geometry.compute_slices);
    Tenant {
        title: format!(
            "{name}: {told}; {}/{} of memory, {}/{} of compute",
            of_memory.0, of_memory.1, of_compute.0, of_compute.1
        ),
        colour: part.colour,
        memory: Segment {
            label: profile.name.clone(),
            ..segment(start, profile.memory_slices, whole(asked_memory, profile.memory_slices))
        },
        compute: Segment {
            label: part.name.clone(),
            ..segment(
                computed,
                profile.compute_slices,
                whole(asked_compute, profile.compute_slices),
            )
        },
    }
}

fn segment(from: u8, slices: u8, asked: f64) -> Segment {
    let from = f64::from(from);
    Segment { from, to: from + f64::from(slices), asked: from + asked, label: String::new() }
}

/// Slices of one kind, one bit each.
struct Slices {
    all: u8,
    taken: u16,
    within_reach: u16,
}

impl Slices {
    fn axis(&self, title: &str) -> Axis {
        let lost = range(self.all) & !self.within_reach;
        let mut figure = format!("{} of {} taken", self.taken.count_ones(), self.all);
        if lost != 0 {
            figure.push_str(&format!(", {} lost", lost.count_ones()));
        }
        Axis {
            title: title.to_owned(),
            figure,
            hi: f64::from(self.all),
            full: f64::from(self.all),
            ticks: (0..=self.all).map(|at| (f64::from(at), at.to_string())).collect(),
            merges: false,
            free: places(self.within_reach & !self.taken),
            note: String::new(),
            lost: places(lost),
        }
    }
}

/// What instances can still come to have.
#[derive(Clone, Copy)]
struct Reach {
    /// Memory slices, one bit each.
    memory: u16,
    /// Compute slices at most.
    compute: u8,
}

/// Of all layouts that `layout` can be made by adding plain instances from a memory slice on. A few hundred at most.
fn reach(geometry: &MigGeometry, layout: &MigLayout, from: u8) -> Reach {
    let mut all = Reach { memory: mask(geometry, layout), compute: geometry.compute_used(layout) };
    for (index, profile) in geometry.indexed().filter(|(_, profile)| profile.is_plain()) {
        let free = geometry.free_starts(layout, index);
        let starts = profile.starts.iter().copied().filter(|start| *start >= from);
        for start in starts.filter(|start| free & (1 << start) != 0) {
            let next = reach(geometry, &layout.with(index, start), start + profile.memory_slices);
            all.memory |= next.memory;
            all.compute = all.compute.max(next.compute);
        }
    }
    all
}

fn mask(geometry: &MigGeometry, layout: &MigLayout) -> u16 {
    let one = |(index, start): &(ProfileIndex, u8)| {
        geometry.profile(*index).map_or(0, |profile| profile.mask(*start))
    };
    layout.instances().iter().map(one).fold(0, |all, one| all | one)
}

/// The first slices.
fn range(count: u8) -> u16 {
    (0..count).fold(0, |all, slice| all | 1 << slice)
}

/// Stretches of slices, from and to.
fn places(slices: u16) -> Vec<(f64, f64)> {
    let mut stretches: Vec<(f64, f64)> = Vec::new();
    for slice in (0_u8..16).filter(|slice| slices & (1 << slice) != 0) {
        let from = f64::from(slice);
        match stretches.last_mut() {
            Some((_, to)) if (*to - from).abs() < 0.5 => *to = from + 1.0,
            _ => stretches.push((from, from + 1.0)),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use model::Catalogue;

    use super::*;

    fn reached(names: &[(&str, u8)]) -> (u16, u8) {
        let catalogue = Catalogue::shipped().unwrap();
        let geometry = catalogue.get("a100-80gb").unwrap().mig.clone().unwrap();
        let layout = names.iter().fold(MigLayout::default(), |layout, (name, start)| {
            layout.with(geometry.find(name).unwrap(), *start)
        });
        let all = reach(&geometry, &layout, 0);
        (all.memory, all.compute)
    }

    #[test]
    fn two_halves_of_memory_leave_a_slice_of_compute_to_nobody() {
        assert_eq!(reached(&[("3g.40gb", 0), ("3g.40gb", 4)]), (0xff, 6));
    }

    #[test]
    fn seven_small_instances_leave_a_slice_of_memory_to_nobody() {
        let seven: Vec<(&str, u8)> = (0..7).map(|start| ("1g.10gb", start)).collect();
        assert_eq!(reached(&seven), (0x7f, 7));
    }

    #[test]
    fn an_empty_card_can_come_to_have_all() {
        assert_eq!(reached(&[]), (0xff, 7));
    }
}
