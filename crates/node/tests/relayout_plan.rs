//! Planning a change of MIG layout, against brute force over all layouts, for all pairs.

mod simulated;

use std::collections::BTreeSet;

use model::{Catalogue, MigGeometry, MigLayout, ProfileIndex};
use node::inventory::{Instance, MigDevice};
use node::mig::{RelayoutRefusal, Standing, Target, plan_relayout};
use simulated::Dice;

type Place = (ProfileIndex, u8);

fn geometry(model: &str) -> MigGeometry {
    let catalogue = Catalogue::shipped().expect("the catalogue is compiled in");
    catalogue.get(model).expect("known").mig.clone().expect("it has MIG")
}

fn maximal(geometry: &MigGeometry) -> Vec<MigLayout> {
    geometry.layouts().into_iter().filter(|layout| geometry.is_maximal(layout)).collect()
}

fn instances(places: &[Place], used: &BTreeSet<usize>) -> Vec<Instance> {
    let made = places.iter().zip(0..).map(|((profile, start), number)| Instance {
        gpu_instance: number,
        profile: *profile,
        start: *start,
        device: Some(MigDevice {
            uuid: format!("MIG-{number}"),
            compute_instance: 0,
            memory_mib: 1,
        }),
        divided: false,
        pids: if used.contains(&(number as usize)) { vec![900 + number] } else { Vec::new() },
    });
    made.collect()
}

fn used(places: &[Place], dice: &mut Dice) -> BTreeSet<usize> {
    (0..places.len()).filter(|_| dice.below(4) == 0).collect()
}

fn standing(instances: &[Instance]) -> Vec<Standing<'_>> {
    instances.iter().map(|instance| Standing { instance, holder: None }).collect()
}

/// Starts of the instances that a refusal names.
fn named(refusal: &RelayoutRefusal) -> BTreeSet<u8> {
    match refusal {
        RelayoutRefusal::InTheWay(obstacles) => obstacles.iter().map(|one| one.start).collect(),
        RelayoutRefusal::Impossible(_) => panic!("every maximal layout is possible"),
    }
}

fn exact_pairs(model: &str, expected: usize) {
    let geometry = geometry(model);
    let layouts = maximal(&geometry);
    assert_eq!(layouts.len(), expected, "maximal layouts of {model}");
    let mut dice = Dice::new(1);
    let mut refused = 0;
    for from in layouts.iter().map(MigLayout::instances) {
        for to in layouts.iter().map(MigLayout::instances) {
            let used = used(from, &mut dice);
            let instances = instances(from, &used);
            let planned =
                plan_relayout(&geometry, &standing(&instances), &Target::Exact(to.to_vec()));
            let unwanted = from.iter().enumerate().filter(|(_, place)| !to.contains(place));
            let unwanted: Vec<usize> = unwanted.map(|(at, _)| at).collect();
            let in_the_way: BTreeSet<u8> =
                unwanted.iter().filter(|at| used.contains(at)).map(|at| from[*at].1).collect();
            match planned {
                Ok(plan) => {
                    assert!(in_the_way.is_empty(), "{from:?} to {to:?}");
                    let destroyed: Vec<u32> = unwanted.iter().map(|at| *at as u32).collect();
                    assert_eq!(plan.destroy, destroyed);
                    let missing = to.iter().filter(|place| !from.contains(place));
                    assert_eq!(plan.create, missing.copied().collect::<Vec<Place>>());
                    assert_eq!(plan.layout, to);
                }
                Err(refusal) => {
                    assert_eq!(named(&refusal), in_the_way, "{from:?} to {to:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0, "some pairs must be refused");
}

#[test]
fn exact_layouts_keep_what_they_can_and_name_what_is_in_the_way() {
    exact_pairs("a100-80gb", 78);
    exact_pairs("a30", 5);
}

fn profiles(layout: &[Place]) -> Vec<ProfileIndex> {
    let mut profiles: Vec<ProfileIndex> = layout.iter().map(|(profile, _)| *profile).collect();
    profiles.sort_unstable();
    profiles
}

fn multiset_pairs(model: &str) {
    let geometry = geometry(model);
    let all = geometry.layouts();
    let layouts = maximal(&geometry);
    let sets: BTreeSet<Vec<ProfileIndex>> =
        layouts.iter().map(|layout| profiles(layout.instances())).collect();
    let mut dice = Dice::new(2);
    let (mut reached, mut refused) = (0, 0);
    for set in &sets {
        let same: Vec<&MigLayout> =
            all.iter().filter(|layout| profiles(layout.instances()) == *set).collect();
        for from in layouts.iter().map(MigLayout::instances) {
            let used = used(from, &mut dice);
            let keeps = |layout: &MigLayout| -> Vec<usize> {
                let kept = |at: &usize| layout.instances().contains(&from[*at]);
                (0..from.len()).filter(kept).collect()
            };
            let best = same.iter().map(|layout| keeps(layout)).max_by_key(|kept| {
                (kept.iter().filter(|at| used.contains(at)).count(), kept.len())
            });
            let best = best.expect("the set has a layout");
            let used_kept = best.iter().filter(|at| used.contains(at)).count();
            let instances = instances(from, &used);
            let target = Target::Profiles(set.clone());
            match plan_relayout(&geometry, &standing(&instances), &target) {
                Ok(plan) => {
                    assert_eq!(used_kept, used.len(), "{from:?} to {set:?}");
                    assert_eq!(from.len() - plan.destroy.len(), best.len(), "{from:?} to {set:?}");
                    assert!(same.iter().any(|layout| layout.instances() == plan.layout));
                    reached += 1;
                }
                Err(refusal) => {
                    assert_eq!(named(&refusal).len(), used.len() - used_kept, "{from:?} {set:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(reached > 0 && refused > 0, "both outcomes occur");
}

#[test]
fn free_placements_keep_as_many_as_brute_force() {
    multiset_pairs("a100-80gb");
    multiset_pairs("a30");
}

#[test]
fn one_more_instance_disturbs_as_few_as_possible() {
    let geometry = geometry("a100-80gb");
    let mut dice = Dice::new(3);
    for from in maximal(&geometry).iter().map(MigLayout::instances) {
        for (profile, found) in geometry.indexed() {
            for start in &found.starts {
                let used = used(from, &mut dice);
                let instances = instances(from, &used);
                let target = Target::Including(profile, *start);
                let fewest = fewest_gone(&geometry, from, &used, (profile, *start));
                let planned = plan_relayout(&geometry, &standing(&instances), &target);
                let gone = planned.ok().map(|plan| plan.destroy.len());
                assert_eq!(gone, fewest, "{from:?} and {profile:?} at {start}, used {used:?}");
            }
        }
    }
}

/// By trying all sets of idle instances to remove.
fn fewest_gone(
    geometry: &MigGeometry,
    from: &[Place],
    used: &BTreeSet<usize>,
    asked: Place,
) -> Option<usize> {
    if from.contains(&asked) {
        return Some(0);
    }
    let sets = (0u32..1 << from.len()).filter(|gone| {
        let is_gone = |at: usize| gone & (1 << at) != 0;
        let mut layout = MigLayout::default();
        for (at, (profile, start)) in from.iter().enumerate().filter(|(at, _)| !is_gone(*at)) {
            let _ = at;
            layout = layout.with(*profile, *start);
        }
        !used.iter().any(|at| is_gone(*at)) && geometry.admit(&layout, asked.0, asked.1).is_ok()
    });
    sets.map(|gone| gone.count_ones() as usize).min()
}

#[test]
fn what_no_gpu_can_hold_is_refused_by_name() {
    let geometry = geometry("a100-80gb");
    let three = geometry.find("3g.40gb").expect("a profile");
    let planned = plan_relayout(&geometry, &[], &Target::Profiles(vec![three; 3]));
    let text = planned.expect_err("three do not fit").to_string();
    assert!(text.contains("3 × 3g.40gb"), "{text}");
}

#[test]
fn a_hold_protects_like_a_process_and_an_unfinished_instance_is_completed() {
    let geometry = geometry("a30");
    let whole = geometry.find("4g.24gb").expect("a profile");
    let one = geometry.find("1g.6gb").expect("a profile");
    let mut instances = instances(&[(one, 0), (one, 1)], &BTreeSet::new());
    instances[1].device = None;
    let standing = [
        Standing { instance: &instances[0], holder: Some("run 7") },
        Standing { instance: &instances[1], holder: None },
    ];
    let refusal = plan_relayout(&geometry, &standing, &Target::Exact(vec![(whole, 0)]));
    let text = refusal.expect_err("held").to_string();
    assert!(text.contains("held by run 7") && text.contains("MIG-0"), "{text}");
    let kept = Target::Exact(vec![(one, 0), (one, 1)]);
    let plan = plan_relayout(&geometry, &standing, &kept).expect("it stands already");
    assert_eq!((plan.destroy.len(), plan.complete, plan.create.len()), (0, vec![1], 0));
}
