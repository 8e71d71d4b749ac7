//! What the inventory says of simulated machines.

mod simulated;

use fake_machine::Code;
use model::{Catalogue, ModeSet, Share, SharingKind, SharingMode};
use node::backend::Enforcement;
use node::driver::{Driver, Fault};
use node::inventory::{ComputeMode, Inventory};
use node::machine::{Machine, MachineOptions};
use simulated::{Scratch, edit, lay_out, library, on_machine, standing};

fn inventory(driver: &Driver) -> Inventory {
    driver.inventory().expect("the driver answers")
}

#[test]
fn models_memory_and_versions() {
    let gpus = "a100-80gb:1,a100-40gb:1,a30:1,h100-80gb:1,h200:1,l40s:1,t4:1,b200:1";
    on_machine("models_memory_and_versions", gpus, |machine, driver| {
        let found = inventory(driver);
        let models: Vec<_> = found.devices.iter().map(|one| one.model.as_deref()).collect();
        let expected: Vec<_> =
            gpus.split(',').map(|one| Some(one.trim_end_matches(":1"))).collect();
        assert_eq!(models, expected);
        assert!(found.lost.is_empty());
        assert_eq!(found.driver.driver, machine.read().driver);
        assert!(found.driver.cuda.0 >= 12, "{:?}", found.driver);
        let catalogue = Catalogue::shipped().expect("compiled in");
        for (device, at) in found.devices.iter().zip(0..) {
            assert_eq!(device.index, at);
            assert_eq!(device.uuid, machine.read().gpu(at).expect("a GPU").uuid);
            assert_eq!(device.links.len(), at as usize, "a link to each GPU before it");
            let known = catalogue.get(device.model.as_deref().expect("named")).expect("known");
            let usable = device.memory_mib - device.reserved_mib;
            assert!(usable.abs_diff(known.memory_mib) < 64, "{device:?}");
        }
    });
}

#[test]
fn mig_geometry_is_the_drivers_and_agrees_with_the_table() {
    let gpus = "a100-80gb:1,a100-40gb:1,a30:1,h100-80gb:1,h200:1,b200:1";
    on_machine("mig_geometry_is_the_drivers_and_agrees_with_the_table", gpus, |_, driver| {
        let catalogue = Catalogue::shipped().expect("compiled in");
        for device in inventory(driver).devices {
            let mig = device.mig.expect("each of these has MIG");
            assert!(!mig.enabled && mig.instances.is_empty());
            let known = catalogue.get(device.model.as_deref().expect("named")).expect("known");
            let known = known.mig.as_ref().expect("MIG in the table");
            assert_eq!(mig.geometry.compute_slices, known.compute_slices);
            assert_eq!(mig.geometry.memory_slices, known.memory_slices);
            assert_eq!(mig.profile_ids.len(), mig.geometry.profiles.len());
            let shape = |geometry: &model::MigGeometry| -> Vec<_> {
                let shapes = geometry.profiles.iter().map(|of| {
                    let slices = (of.compute_slices, of.memory_slices, of.instances_max);
                    (of.name.clone(), slices, of.starts.clone())
                });
                shapes.collect()
            };
            assert_eq!(shape(&mig.geometry), shape(known), "{}", device.product);
        }
    });
}

#[test]
fn instances_have_devices_and_processes() {
    on_machine("instances_have_devices_and_processes", "a100-80gb:1", |machine, driver| {
        lay_out(machine, 0, &[("1g.10gb".into(), 2), ("3g.40gb".into(), 4)], &[1]);
        let device = inventory(driver).devices.remove(0);
        let mig = device.mig.expect("MIG");
        assert!(mig.enabled && mig.pending);
        let [small, large] = &mig.instances[..] else { panic!("{:?}", mig.instances) };
        let name = |at: model::ProfileIndex| mig.geometry.profile(at).expect("one").name.clone();
        assert_eq!((name(small.profile), small.start), ("1g.10gb".into(), 2));
        assert_eq!((name(large.profile), large.start), ("3g.40gb".into(), 4));
        assert_eq!((small.pids.len(), large.pids.len()), (0, 1));
        let part = large.device.as_ref().expect("it has a compute instance");
        assert!(part.uuid.starts_with("MIG-"));
        assert!((38_000..41_000).contains(&part.memory_mib), "{part:?}");
    });
}

#[test]
fn an_instance_that_others_have_divided_is_seen_and_spared() {
    let test = "an_instance_that_others_have_divided_is_seen_and_spared";
    on_machine(test, "a100-80gb:1", |machine, driver| {
        lay_out(machine, 0, &[("3g.40gb".into(), 4)], &[]);
        edit(machine, |state| {
            let instance = state.gpu(0)?.instances[0].clone();
            state.destroy_compute(0, instance.id, instance.compute[0].id)?;
            let profile = state.gpu(0)?.profile(instance.profile_id)?;
            let parts = fake_machine::compute_profiles(profile);
            let single = parts.iter().find(|part| part.slices == 1).expect("a part");
            state.create_compute(0, instance.id, single.id, None).map(|_| ())
        });
        let device = inventory(driver).devices.remove(0);
        let instance = &device.mig.as_ref().expect("MIG").instances[0];
        assert!(instance.divided && instance.device.is_none(), "{instance:?}");
        // Its division could not be put back.
        let before = standing(machine, 0);
        let mut ours = Machine::open(MachineOptions::default()).expect("the machine opens");
        let refused = ours.set_mode(&device.uuid, SharingMode::Exclusive).expect_err("in the way");
        assert!(refused.to_string().contains("divided by somebody else"), "{refused}");
        assert_eq!(standing(machine, 0), before);
    });
}

#[test]
fn a_lost_gpu_hides_no_other() {
    on_machine("a_lost_gpu_hides_no_other", "a100-80gb:3", |machine, driver| {
        edit(machine, |state| {
            state.gpu_mut(1)?.lost = true;
            Ok(())
        });
        let found = inventory(driver);
        assert_eq!(found.devices.iter().map(|one| one.index).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(found.lost.len(), 1);
        assert_eq!(found.lost[0].index, 1);
        assert!(found.lost[0].why.contains("lost"), "{:?}", found.lost);
    });
}

#[test]
fn without_rights_mig_is_seen_but_not_offered() {
    on_machine("without_rights_mig_is_seen_but_not_offered", "a100-80gb:2", |machine, driver| {
        lay_out(machine, 1, &[("3g.40gb".into(), 4)], &[]);
        edit(machine, |state| {
            state.unprivileged = true;
            Ok(())
        });
        let found = inventory(driver);
        let Enforcement::Absent(why) = &found.devices[0].backends.mig else {
            panic!("{:?}", found.devices[0].backends)
        };
        assert!(why.contains("root"), "{why}");
        let engine = found.to_engine().expect("the catalogue");
        assert_eq!(engine.devices, [0], "a GPU in MIG mode is of no use then");
        assert!(engine.left_out[0].1.contains("root"), "{:?}", engine.left_out);
    });
}

#[test]
fn a_driver_that_is_too_old_for_mig_shows_its_gpus() {
    let test = "a_driver_that_is_too_old_for_mig_shows_its_gpus";
    on_machine(test, "a100-80gb:1", |_, _| {
        let scratch = Scratch::new("old-driver");
        let old = scratch.path().join("libnvidia-ml.so.1");
        let symbols = ["nvmlDeviceGetMigMode", "nvmlDeviceSetMemoryLimits_v1"];
        fake_machine::without_symbols(&library(), &old, &symbols).expect("a copy");
        let driver = Driver::open_library(&old).expect("it loads");
        assert!(!driver.has(symbols[0]) && driver.has("nvmlDeviceGetName"));
        let device = inventory(&driver).devices.remove(0);
        assert_eq!(device.mig, None);
        let why = format!("{:?}", device.backends.memory_limit);
        assert!(why.contains("r615") || why.contains("too old"), "{why}");
    });
}

#[test]
fn functions_that_a_driver_lacks_are_named() {
    on_machine("functions_that_a_driver_lacks_are_named", "a100-80gb:1", |machine, driver| {
        edit(machine, |state| {
            state.missing = vec!["nvmlDeviceGetMigMode".into()];
            Ok(())
        });
        let device = inventory(driver).devices.remove(0);
        assert_eq!(device.mig, None);
        assert!(!device.offers().contains(SharingKind::Mig));
        edit(machine, |state| {
            state.missing = vec!["nvmlDeviceGetName".into()];
            Ok(())
        });
        let found = inventory(driver);
        assert!(found.lost[0].why.contains("too old"), "{:?}", found.lost);
        assert!(found.lost[0].why.contains("nvmlDeviceGetName"), "{:?}", found.lost);
    });
}

#[test]
fn the_engine_takes_what_the_driver_says() {
    on_machine("the_engine_takes_what_the_driver_says", "a100-80gb:2,t4:1", |_, driver| {
        let engine = inventory(driver).to_engine().expect("the catalogue");
        assert_eq!(engine.gpus.len(), 3);
        assert_eq!(engine.gpus[0].model().id, engine.gpus[1].model().id);
        let mut gpu = engine.gpus[0].clone();
        assert!(gpu.offers().contains(SharingKind::Mig));
        assert!(!engine.gpus[2].offers().contains(SharingKind::Mig));
        assert!(!gpu.offers().contains(SharingKind::MemoryCapped), "nothing holds it");
        gpu.set_mode(SharingMode::Mig).expect("an idle GPU");
        let geometry = gpu.model().mig.clone().expect("MIG");
        let profile = geometry.find("1g.10gb").expect("a profile");
        let share = Share::Mig { profile, start: 0 };
        gpu.fits(SharingMode::Mig, share).expect("an empty GPU");
        let one = geometry.profile(profile).expect("a profile");
        let memory_mib = gpu.model().instance_memory_mib(one);
        assert!((9_600..=9_728).contains(&memory_mib), "driver says 9728, engine {memory_mib}");
        assert_ne!(gpu.offers(), ModeSet::EMPTY);
    });
}

#[test]
fn the_compute_mode_is_read_and_set() {
    on_machine("the_compute_mode_is_read_and_set", "t4:1", |machine, driver| {
        let uuid = machine.read().gpu(0).expect("a GPU").uuid.clone();
        assert_eq!(inventory(driver).devices[0].compute_mode, ComputeMode::Default);
        let exclusive = ComputeMode::ExclusiveProcess;
        node::compute_mode::set(driver, &uuid, exclusive).expect("root may");
        assert_eq!(inventory(driver).devices[0].compute_mode, exclusive);
        edit(machine, |state| {
            state.unprivileged = true;
            Ok(())
        });
        let refused = node::compute_mode::set(driver, &uuid, ComputeMode::Default);
        let refused = refused.expect_err("only root may");
        assert!(refused.is(&Fault::NoPermission) && refused.to_string().contains(&uuid));
    });
}

#[test]
fn a_driver_that_dies_says_so() {
    on_machine("a_driver_that_dies_says_so", "t4:1", |machine, driver| {
        edit(machine, |state| {
            state.fail("nvmlDeviceGetCount_v2", 0, Code::Unknown);
            Ok(())
        });
        let error = driver.inventory().expect_err("it does not answer").to_string();
        assert!(error.contains("999") && error.contains("nvmlDeviceGetCount_v2"), "{error}");
    });
}

/// Names and numbers of a GPU's profiles do not depend on whether MIG mode is on.
#[test]
fn profiles_are_the_same_before_and_in_mig_mode() {
    let test = "profiles_are_the_same_before_and_in_mig_mode";
    let gpus = "a30:1,a100-40gb:1,a100-80gb:1,h100-80gb:1,h200:1,b200:1";
    on_machine(test, gpus, |machine, driver| {
        let mig = || driver.inventory().expect("it answers").devices.into_iter().map(|gpu| gpu.mig);
        let before: Vec<_> = mig().map(|mig| mig.expect("MIG")).collect();
        edit(machine, |state| {
            for gpu in &mut state.gpus {
                gpu.mig.current = true;
                gpu.mig.pending = true;
            }
            Ok(())
        });
        let after: Vec<_> = mig().map(|mig| mig.expect("MIG")).collect();
        assert_eq!(before.len(), 6);
        for (before, after) in before.iter().zip(&after) {
            assert!(!before.geometry.profiles.is_empty());
            assert_eq!(
                (&before.geometry, &before.profile_ids),
                (&after.geometry, &after.profile_ids)
            );
        }
    });
}

#[test]
fn a_profile_is_found_again_by_the_drivers_number() {
    let listed = |ids: &[u32]| node::mig::Profiles {
        geometry: model::MigGeometry { compute_slices: 7, memory_slices: 8, profiles: Vec::new() },
        ids: ids.to_vec(),
    };
    let now = listed(&[19, 20, 14]);
    assert_eq!(now.same(&[19, 14], model::ProfileIndex(1)), Some(model::ProfileIndex(2)));
    assert_eq!(now.same(&[19, 9], model::ProfileIndex(1)), None);
    assert_eq!(now.same(&[19], model::ProfileIndex(1)), None);
}
