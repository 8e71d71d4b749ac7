//! Memory limits on cgroups through the simulated driver: set, read, refused, and what a machine
//! without them says.

mod simulated;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use fake_machine::{Code, Process};
use node::backend::Enforcement;
use node::driver::{Driver, Fault};
use node::memory_limit::{Cgroup, InForce, LimitError, MemoryLimits, probe};
use simulated::{Scratch, edit, on_machine};

fn refused(done: Result<(), LimitError>) -> Fault {
    match done {
        Err(LimitError::Driver(error)) => error.fault().cloned().expect("a refused call"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_limit_is_set_read_and_taken_away() {
    on_machine("a_limit_is_set_read_and_taken_away", "a100-80gb:2", |machine, driver| {
        let parent = Scratch::new("limit-set");
        let gpu = machine.read().gpus[1].uuid.clone();
        let limits = MemoryLimits::of(driver).unwrap();
        let cgroup = Cgroup::create(parent.path(), "task-1").unwrap();
        limits.set(&gpu, cgroup.path(), 2048).unwrap();
        edit(machine, |_| Ok(())); // Reads what the driver library has written.
        assert_eq!(machine.read().gpus[1].memory_limits[0].hard_bytes, 2048 << 20);
        let found = limits.get(&gpu, cgroup.path()).unwrap();
        assert_eq!(found, InForce { hard_mib: Some(2048), used_mib: 0 });
        limits.clear(&gpu, cgroup.path()).unwrap();
        if let Ok(found) = limits.get(&gpu, cgroup.path()) {
            assert_eq!(found.hard_mib, None);
        }
        cgroup.remove().unwrap();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    });
}

#[test]
fn what_the_driver_refuses_is_told_with_the_gpu() {
    on_machine("what_the_driver_refuses_is_told_with_the_gpu", "t4:1", |machine, driver| {
        let parent = Scratch::new("limit-refused");
        let gpu = machine.read().gpus[0].uuid.clone();
        let limits = MemoryLimits::of(driver).unwrap();
        let missing = parent.path().join("nobody");
        assert_eq!(refused(limits.set(&gpu, &missing, 100)), Fault::Forbidden);
        let too_much = limits.set(&gpu, parent.path(), 1 << 40).unwrap_err().to_string();
        assert!(too_much.contains(&gpu) && too_much.contains("nvmlDeviceSet"), "{too_much}");
        let absurd = limits.set(&gpu, parent.path(), u64::MAX);
        assert!(matches!(absurd, Err(LimitError::Amount(u64::MAX))), "{absurd:?}");
        edit(machine, |state| {
            state.fail("nvmlDeviceSetMemoryLimits_v1", 0, Code::NoPermission);
            state.gpu_mut(0)?.add(Process::compute(4_000_001, 10).phantom());
            Ok(())
        });
        assert_eq!(refused(limits.set(&gpu, parent.path(), 100)), Fault::NoPermission);
    });
}

#[test]
fn the_probe_tries_and_says_what_is_missing() {
    on_machine("the_probe_tries_and_says_what_is_missing", "h100-80gb:1", |machine, driver| {
        let parent = Scratch::new("limit-probe");
        let gpu = machine.read().gpus[0].uuid.clone();
        let because = |found: Enforcement| match found {
            Enforcement::Absent(why) => why,
            other @ (Enforcement::Hard | Enforcement::Cooperative | Enforcement::Unknown(_)) => {
                panic!("{other:?}")
            }
        };
        assert_eq!(probe(driver, &gpu, Some(parent.path())), Enforcement::Hard);
        assert!(because(probe(driver, &gpu, None)).contains("delegated"));
        let nowhere = because(probe(driver, &gpu, Some(&parent.path().join("none"))));
        assert!(nowhere.contains("cgroup v2 folder that it may write to"), "{nowhere}");
        edit(machine, |state| {
            state.fail("nvmlDeviceSetMemoryLimits_v1", 0, Code::NotSupported);
            Ok(())
        });
        let old = because(probe(driver, &gpu, Some(parent.path())));
        assert!(old.contains("does not support it"), "{old}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0, "the scratch folder is gone");
    });
}

#[test]
fn a_driver_without_the_calls_is_absent() {
    on_machine("a_driver_without_the_calls_is_absent", "t4:1", |machine, _| {
        let place = Scratch::new("limit-old");
        let old = place.path().join("libnvidia-ml.so.1");
        let missing = ["nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"];
        fake_machine::without_symbols(&simulated::library(), &old, &missing).unwrap();
        let driver = Driver::open_library(&old).unwrap();
        assert!(MemoryLimits::of(&driver).unwrap_err().is(&Fault::TooOld));
        let found = probe(&driver, &machine.read().gpus[0].uuid, Some(place.path()));
        assert!(format!("{found:?}").contains("r615"), "{found:?}");
    });
}

/// Where cgroup v2 is mounted and may be divided by us; `None` on machines where it is not.
fn real_cgroups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    Some(mount.split(' ').nth(1)?.into())
}

#[test]
fn a_real_cgroup_takes_a_process_and_goes_only_when_empty() {
    let name = format!("hotpot-test-{}", std::process::id());
    let made = real_cgroups().and_then(|parent| Cgroup::create(&parent, &name).ok());
    let Some(cgroup) = made else {
        return eprintln!("not tried: no cgroup v2 that may be divided");
    };
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    cgroup.add(child.id()).unwrap();
    let line = fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
    assert!(line.contains(&name), "{line}");
    let path = cgroup.path().to_path_buf();
    let busy = cgroup.remove().unwrap_err().to_string();
    assert!(busy.contains(&name), "{busy}");
    child.kill().unwrap();
    child.wait().unwrap();
    let parent = path.parent().unwrap();
    Cgroup::create(parent, &name).unwrap().remove().unwrap();
    assert!(!path.exists());
}
