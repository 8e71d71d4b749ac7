//! Changing MIG layouts through the driver: every pair of maximal layouts, with instances in use.

mod simulated;

use std::collections::BTreeSet;

use fake_machine::Machine;
use model::{MigGeometry, MigLayout};
use node::driver::Driver;
use node::mig::{self, Holders, MigError, Profiles, RelayoutRefusal, Target};
use simulated::{Dice, edit, lay_out, on_machine, standing};

type Names = Vec<(String, u8)>;

fn names(geometry: &MigGeometry, layout: &MigLayout) -> Names {
    let name = |profile| geometry.profile(profile).expect("of this geometry").name.clone();
    layout.instances().iter().map(|(profile, start)| (name(*profile), *start)).collect()
}

fn maximal(geometry: &MigGeometry) -> Vec<MigLayout> {
    geometry.layouts().into_iter().filter(|layout| geometry.is_maximal(layout)).collect()
}

/// * `part` — of how many parts which one: pairs are shared out by their first layout.
fn all_pairs(machine: &Machine, driver: &Driver, part: (usize, usize), expected: usize) {
    let uuid = machine.read().gpu(0).expect("a GPU").uuid.clone();
    let profiles = mig::profiles(driver, &uuid).expect("MIG profiles");
    let layouts = maximal(&profiles.geometry);
    assert_eq!(layouts.len(), expected);
    let mut dice = Dice::new(4 + part.1 as u64);
    let (mut reached, mut refused) = (0, 0);
    for from in layouts.iter().skip(part.1).step_by(part.0) {
        for to in &layouts {
            let used = (0..from.instances().len()).filter(|_| dice.below(6) == 0);
            let used: Vec<usize> = used.collect();
            let from = names(&profiles.geometry, from);
            lay_out(machine, 0, &from, &used);
            let before = standing(machine, 0);
            match one_pair(driver, &uuid, &profiles, to) {
                Ok(()) => reached += 1,
                Err(refusal) => {
                    let wanted = names(&profiles.geometry, to);
                    let in_the_way = used.iter().filter(|at| !wanted.contains(&from[**at]));
                    let in_the_way: BTreeSet<u8> = in_the_way.map(|at| from[*at].1).collect();
                    assert_eq!(refusal, in_the_way, "{from:?} to {wanted:?}");
                    assert_eq!(standing(machine, 0), before, "a refusal changes nothing");
                    refused += 1;
                    continue;
                }
            }
            check_reached(machine, &before, &used, &names(&profiles.geometry, to));
        }
    }
    assert!(reached > layouts.len() && refused > layouts.len(), "{reached} and {refused}");
}

/// The target, or the starts of the instances in the way.
fn one_pair(
    driver: &Driver,
    uuid: &str,
    profiles: &Profiles,
    to: &MigLayout,
) -> Result<(), BTreeSet<u8>> {
    let target = Target::Exact(to.instances().to_vec());
    match mig::carry_out(driver, uuid, profiles, &target, &Holders::new()) {
        Ok(_) => Ok(()),
        Err(MigError::Refused { refusal: RelayoutRefusal::InTheWay(obstacles), .. }) => {
            assert!(obstacles.iter().all(|one| !one.pids.is_empty() && one.uuid.is_some()));
            Err(obstacles.iter().map(|one| one.start).collect())
        }
        Err(error) => panic!("{error}"),
    }
}

fn check_reached(
    machine: &Machine,
    before: &[(String, u8, Vec<String>)],
    used: &[usize],
    wanted: &Names,
) {
    let after = standing(machine, 0);
    let places: Names = after.iter().map(|(name, start, _)| (name.clone(), *start)).collect();
    assert_eq!(places, *wanted, "from {before:?}");
    assert!(after.iter().all(|(_, _, uuids)| uuids.len() == 1), "{after:?}");
    for kept in before.iter().filter(|(name, start, _)| wanted.contains(&(name.clone(), *start))) {
        assert!(after.contains(kept), "an instance that could stay was made anew: {kept:?}");
    }
    for at in used {
        assert!(after.contains(&before[*at]), "an instance in use was touched");
    }
}

#[test]
fn all_pairs_on_a100_from_even_layouts() {
    on_machine("all_pairs_on_a100_from_even_layouts", "a100-80gb:1", |machine, driver| {
        all_pairs(machine, driver, (2, 0), 78);
    });
}

#[test]
fn all_pairs_on_a100_from_odd_layouts() {
    on_machine("all_pairs_on_a100_from_odd_layouts", "a100-80gb:1", |machine, driver| {
        all_pairs(machine, driver, (2, 1), 78);
    });
}

#[test]
fn all_pairs_on_a30() {
    on_machine("all_pairs_on_a30", "a30:1", |machine, driver| {
        all_pairs(machine, driver, (1, 0), 5);
    });
}

#[test]
fn mig_mode_turns_on_and_off_and_spares_what_is_in_use() {
    let test = "mig_mode_turns_on_and_off_and_spares_what_is_in_use";
    on_machine(test, "a100-80gb:1,t4:1", |machine, driver| {
        let uuid = |gpu| machine.read().gpu(gpu).expect("a GPU").uuid.clone();
        let (a100, t4) = (uuid(0), uuid(1));
        let none = Holders::new();
        mig::set_mode(driver, &a100, true, &none).expect("an idle GPU");
        assert_eq!(mig::mode(driver, &a100).expect("asked"), Some((true, true)));
        lay_out(machine, 0, &[("3g.40gb".into(), 0), ("3g.40gb".into(), 4)], &[1]);
        let before = standing(machine, 0);
        let refused = mig::set_mode(driver, &a100, false, &none).expect_err("in use");
        assert!(refused.to_string().contains("3g.40gb at slice 4"), "{refused}");
        assert_eq!(standing(machine, 0), before);
        lay_out(machine, 0, &[("3g.40gb".into(), 0)], &[]);
        let held = Holders::from([(0, "run 1".to_owned())]);
        let refused = mig::set_mode(driver, &a100, false, &held).expect_err("held");
        assert!(refused.to_string().contains("held by run 1"), "{refused}");
        mig::set_mode(driver, &a100, false, &none).expect("idle now");
        assert!(standing(machine, 0).is_empty());
        mig::set_mode(driver, &t4, false, &none).expect("it is off already");
        let refused = mig::set_mode(driver, &t4, true, &none).expect_err("a T4 has no MIG");
        assert!(refused.to_string().contains("no MIG"), "{refused}");
    });
}

#[test]
fn a_switch_that_waits_for_a_reset_can_be_taken_back() {
    let test = "a_switch_that_waits_for_a_reset_can_be_taken_back";
    on_machine(test, "a100-80gb:1", |machine, driver| {
        let uuid = machine.read().gpu(0).expect("a GPU").uuid.clone();
        edit(machine, |state| {
            state.gpu_mut(0)?.mig.pending = true;
            Ok(())
        });
        let device = driver.inventory().expect("the driver answers").devices.remove(0);
        let why = format!("{:?}", device.backends.mig);
        assert!(why.contains("next reset"), "{why}");
        mig::set_mode(driver, &uuid, false, &Holders::new()).expect("it is off");
        assert_eq!(mig::mode(driver, &uuid).expect("asked"), Some((false, false)));
    });
}

#[test]
fn mig_mode_waits_for_processes() {
    on_machine("mig_mode_waits_for_processes", "a100-80gb:1", |machine, driver| {
        let uuid = machine.read().gpu(0).expect("a GPU").uuid.clone();
        let process = fake_machine::Process::compute(4_000_000, 100).phantom();
        edit(machine, |state| {
            state.gpu_mut(0)?.add(process);
            Ok(())
        });
        let refused = mig::set_mode(driver, &uuid, true, &Holders::new()).expect_err("busy");
        assert!(refused.to_string().contains("4000000"), "{refused}");
        assert_eq!(mig::mode(driver, &uuid).expect("asked"), Some((false, false)));
    });
}
