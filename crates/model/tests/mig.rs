//! MIG geometry of the shipped table: how many layouts there are, and that the two ways of asking
//! what fits agree.

use std::collections::BTreeSet;

use model::{Catalogue, MigGeometry, MigLayout, ProfileIndex};

const SEVEN_SLICED: [&str; 11] = [
    "a100-40gb",
    "a100-80gb",
    "h100-80gb",
    "h100-94gb",
    "h100-96gb",
    "h200",
    "gh200-144gb",
    "b200",
    "gb200",
    "b300",
    "gb300",
];

/// Layouts, maximal layouts, profile sets of maximal layouts, profile sets.
#[derive(Debug, PartialEq, Eq)]
struct Counts(usize, usize, usize, usize);

fn geometry(model: &str) -> MigGeometry {
    let catalogue = Catalogue::shipped().expect("the shipped table");
    catalogue.get(model).and_then(|found| found.mig.clone()).expect("a GPU with MIG")
}

/// The geometry without the 1g profile of two memory slices.
fn without_double(geometry: &MigGeometry) -> MigGeometry {
    let mut geometry = geometry.clone();
    geometry.profiles.retain(|p| (p.compute_slices, p.memory_slices) != (1, 2));
    geometry
}

fn has_double(geometry: &MigGeometry) -> bool {
    without_double(geometry) != *geometry
}

/// Which profiles a layout has, wherever they stand.
fn profile_set(layout: &MigLayout) -> Vec<ProfileIndex> {
    let mut profiles: Vec<_> = layout.instances().iter().map(|(profile, _)| *profile).collect();
    profiles.sort();
    profiles
}

fn counts(geometry: &MigGeometry) -> Counts {
    let layouts = geometry.layouts();
    let maximal: Vec<_> = layouts.iter().filter(|layout| geometry.is_maximal(layout)).collect();
    let sets: BTreeSet<_> = layouts.iter().map(profile_set).collect();
    let maximal_sets: BTreeSet<_> = maximal.iter().copied().map(profile_set).collect();
    Counts(layouts.len(), maximal.len(), maximal_sets.len(), sets.len())
}

/// Every layout of every shipped geometry, and each with a `+me` instance where one fits.
fn every_layout() -> impl Iterator<Item = (MigGeometry, Vec<MigLayout>)> {
    let models = SEVEN_SLICED.into_iter().chain(["a30", "rtx-pro-6000-96gb"]);
    models.map(geometry).map(|geometry| {
        let mut layouts = geometry.layouts();
        for plain in layouts.clone() {
            for (index, profile) in geometry.indexed().filter(|(_, p)| p.name.contains('+')) {
                let fits = |start: &&u8| geometry.admit(&plain, index, **start).is_ok();
                let fitting = profile.starts.iter().filter(fits);
                layouts.extend(fitting.map(|start| plain.with(index, *start)));
            }
        }
        (geometry, layouts)
    })
}

#[test]
fn layouts_without_the_double() {
    for model in SEVEN_SLICED {
        let geometry = without_double(&geometry(model));
        assert_eq!(counts(&geometry), Counts(298, 19, 14, 38), "{model}");
    }
}

#[test]
fn layouts_with_the_double() {
    for model in SEVEN_SLICED {
        let geometry = geometry(model);
        if has_double(&geometry) {
            assert_eq!(counts(&geometry), Counts(723, 78, 38, 78), "{model}");
        }
    }
    assert!(has_double(&geometry("a100-80gb")));
}

#[test]
fn layouts_of_the_four_sliced_a30() {
    assert_eq!(counts(&geometry("a30")), Counts(26, 5, 4, 10));
}

#[test]
fn no_two_instances_overlap() {
    for (geometry, layouts) in every_layout() {
        for layout in &layouts {
            let mut taken = 0u16;
            for (index, start) in layout.instances() {
                let mask = geometry.profile(*index).unwrap().mask(*start);
                assert_eq!(taken & mask, 0, "{layout:?}");
                assert_eq!(mask >> geometry.memory_slices, 0, "{layout:?}");
                taken |= mask;
            }
            assert!(geometry.compute_used(layout) <= geometry.compute_slices, "{layout:?}");
        }
    }
}

#[test]
fn one_media_instance_at_most() {
    for (geometry, layouts) in every_layout() {
        for (index, profile) in geometry.indexed().filter(|(_, p)| p.name.contains('+')) {
            let holds = |layout: &&MigLayout| layout.instances().iter().any(|(i, _)| *i == index);
            assert!(layouts.iter().any(|layout| holds(&layout)), "{}", profile.name);
            for layout in layouts.iter().filter(holds) {
                assert_eq!(geometry.free_starts(layout, index), 0, "{layout:?}");
            }
        }
    }
}

#[test]
fn free_starts_agrees_with_admit() {
    for (geometry, layouts) in every_layout() {
        for layout in &layouts {
            for (index, _) in geometry.indexed() {
                let free = geometry.free_starts(layout, index);
                for start in 0..16u8 {
                    let admitted = geometry.admit(layout, index, start).is_ok();
                    assert_eq!(free & (1 << start) != 0, admitted, "{index:?} {start} {layout:?}");
                }
            }
        }
    }
}

#[test]
fn instances_admit_in_any_order() {
    for (geometry, layouts) in every_layout() {
        for layout in &layouts {
            let mut instances = layout.instances().to_vec();
            for _ in 0..instances.len() {
                instances.rotate_left(1);
                admit_all(&geometry, instances.iter(), layout);
                admit_all(&geometry, instances.iter().rev(), layout);
            }
        }
    }
}

/// Admits one instance after the other and ends at `layout`.
fn admit_all<'a>(
    geometry: &MigGeometry,
    instances: impl Iterator<Item = &'a (ProfileIndex, u8)>,
    layout: &MigLayout,
) {
    let mut built = MigLayout::default();
    for (index, start) in instances {
        assert_eq!(geometry.admit(&built, *index, *start), Ok(()), "{layout:?}");
        built = built.with(*index, *start);
    }
    assert_eq!(built, *layout);
}

#[test]
fn foreign_profiles_and_starts_are_refused() {
    let geometry = geometry("a100-80gb");
    let empty = MigLayout::default();
    assert_eq!(geometry.free_starts(&empty, ProfileIndex(99)), 0);
    assert!(geometry.admit(&empty, ProfileIndex(99), 0).is_err());
    for name in ["4g.40gb", "7g.80gb"] {
        let index = geometry.find(name).unwrap();
        let admitted = (0..16).filter(|start| geometry.admit(&empty, index, *start).is_ok());
        assert_eq!(admitted.collect::<Vec<u8>>(), [0], "{name}");
    }
}

#[test]
fn two_3g_leave_a_compute_slice_that_nobody_can_use() {
    let geometry = geometry("a100-80gb");
    let profile = geometry.find("3g.40gb").unwrap();
    let layout = MigLayout::default().with(profile, 0).with(profile, 4);
    assert_eq!(geometry.compute_used(&layout), 6);
    assert!(geometry.is_maximal(&layout));
}
