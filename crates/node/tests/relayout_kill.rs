//! A process that changes a MIG layout is killed before and after every single call of the driver,
//! and started again: the target is always reached, nothing is lost or doubled, and what is in use
//! is not touched.

mod simulated;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use fake_machine::MACHINE_VARIABLE;
use model::{MigGeometry, Share, SharingMode};
use node::journal::Journal;
use node::machine::{Machine, MachineOptions};
use node::mig::{self, Target};
use simulated::{Scratch, again, lay_out, machine, standing, text};

const KILL: i32 = 9;
/// Calls after which a re-layout must have come to its end; a bound for a test that goes wrong.
const CALLS_MAX: u32 = 2000;

type Names = Vec<(String, u8)>;

fn names(places: &[(&str, u8)]) -> Names {
    places.iter().map(|(name, start)| ((*name).to_owned(), *start)).collect()
}

/// In the child: grants one instance and gives it back. The layout around it changes for that.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn child_grants() {
    let Some(wanted) = std::env::var_os("WANTED") else { return };
    let wanted = wanted.into_string().expect("a profile and a start");
    let (name, start) = wanted.split_once('@').expect("a profile and a start");
    let mut machine = Machine::open(MachineOptions::default()).expect("the machine opens");
    let (uuid, geometry) = first_gpu(&machine);
    let profile = geometry.find(name).expect("a profile");
    let start = start.parse().expect("a start");
    machine.set_mode(&uuid, SharingMode::Mig).expect("MIG mode");
    // What a killed run held is given up by the next one.
    machine.release_all("child").expect("the journal can be written");
    let grant = machine.grant(&uuid, Share::Mig { profile, start }, "child");
    let grant = grant.expect("there is room for it");
    assert!(grant.device.starts_with("MIG-"), "{grant:?}");
    machine.revoke(&grant).expect("it can be given back");
}

fn first_gpu(machine: &Machine) -> (String, MigGeometry) {
    let driver = machine.driver();
    let uuid = driver.nvml().device_by_index(0).and_then(|gpu| gpu.uuid()).expect("a GPU");
    let profiles = mig::profiles(driver, &uuid).expect("MIG profiles");
    (uuid, profiles.geometry)
}

/// In the child: changes the whole layout.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn child_changes_layout() {
    let Some(wanted) = std::env::var_os("WANTED") else { return };
    let wanted: Names = serde_json::from_str(wanted.to_str().expect("text")).expect("a layout");
    let mut machine = Machine::open(MachineOptions::default()).expect("the machine opens");
    let (uuid, geometry) = first_gpu(&machine);
    let place = |(name, start): &(String, u8)| (geometry.find(name).expect("a profile"), *start);
    let target = Target::Exact(wanted.iter().map(place).collect());
    machine.relayout(&uuid, &target).expect("nothing is in the way");
}

/// In the child: opens the machine, which brings what was begun to its end, and asks for nothing.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn child_opens() {
    if std::env::var_os(MACHINE_VARIABLE).is_none() {
        return;
    }
    let machine = Machine::open(MachineOptions::default()).expect("the machine opens");
    let given_up = machine.resumed().iter().filter(|change| change.given_up.is_some());
    assert_eq!(given_up.count(), 0, "{:?}", machine.resumed());
}

/// In the child: opens the machine, which ends what was begun, and puts it back as it was.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn child_restores() {
    if std::env::var_os(MACHINE_VARIABLE).is_none() {
        return;
    }
    let mut machine = Machine::open(MachineOptions::default()).expect("the machine opens");
    machine.release_all("child").expect("the journal can be written");
    let inventory = machine.inventory().expect("the driver answers");
    let gpus: Vec<String> = inventory.devices.into_iter().map(|device| device.uuid).collect();
    let restored = machine.restore(&gpus).expect("the journal can be written");
    assert!(restored.left.is_empty() && restored.forgotten.is_empty(), "{restored:?}");
}

/// Runs the child with a kill at its n-th call; whether it came to its end by itself.
fn run(folder: &Path, child: &str, wanted: &str, kill: Option<(&str, u32)>) -> bool {
    let mut command = again(child, folder);
    command.env("WANTED", wanted);
    if let Some((variable, call)) = kill {
        command.env(variable, call.to_string());
    }
    let output = command.output().expect("the test program runs again");
    let ended = output.status.success();
    let killed = output.status.signal() == Some(KILL);
    assert!(ended || (killed && kill.is_some()), "{}", text(&output));
    ended
}

struct Story {
    from: Names,
    used: Vec<usize>,
    wanted: &'static str,
    after: Names,
}

/// Kills at each call in turn, from the same beginning each time, then runs to the end.
fn killed_at_each_call(name: &str, variable: &str, story: &Story) -> u32 {
    let scratch = Scratch::new(name);
    let folder = scratch.path();
    let machine = machine(&folder.join("machine"), "a100-80gb:1");
    for call in 1..CALLS_MAX {
        let _ = std::fs::remove_dir_all(folder.join("state"));
        lay_out(&machine, 0, &story.from, &story.used);
        let before = standing(&machine, 0);
        let ended = run(folder, "child_grants", story.wanted, Some((variable, call)));
        check_unhurt(&machine, &before, story, call);
        run(folder, "child_grants", story.wanted, None);
        let after = standing(&machine, 0);
        let places: Names = after.iter().map(|(name, start, _)| (name.clone(), *start)).collect();
        assert_eq!(places, story.after, "{variable} {call}");
        assert!(after.iter().all(|(_, _, parts)| parts.len() == 1), "{variable} {call}: {after:?}");
        check_unhurt(&machine, &before, story, call);
        let journal = Journal::open(&folder.join("state")).expect("the journal opens");
        assert_eq!(journal.open_changes().expect("readable"), Vec::new(), "{variable} {call}");
        assert_eq!(journal.holds().expect("readable"), Vec::new(), "{variable} {call}");
        if ended {
            return call;
        }
    }
    panic!("no end after {CALLS_MAX} calls");
}

/// Instances in use, and those that nobody needed to touch, are what they were.
fn check_unhurt(
    machine: &fake_machine::Machine,
    before: &[(String, u8, Vec<String>)],
    story: &Story,
    call: u32,
) {
    let now = standing(machine, 0);
    for one in
        before.iter().filter(|(name, start, _)| story.after.contains(&(name.clone(), *start)))
    {
        assert!(now.contains(one), "call {call}: {one:?} was touched; now {now:?}");
    }
    for at in &story.used {
        assert!(now.contains(&before[*at]), "call {call}: an instance in use was touched");
    }
}

fn three_for_four() -> Story {
    Story {
        from: names(&[("2g.20gb", 0), ("1g.10gb", 2), ("1g.10gb", 3), ("3g.40gb", 4)]),
        used: vec![3],
        wanted: "4g.40gb@0",
        after: names(&[("4g.40gb", 0), ("3g.40gb", 4)]),
    }
}

fn one_beside_others() -> Story {
    Story {
        from: names(&[("4g.40gb", 0), ("1g.10gb", 4), ("1g.20gb", 6)]),
        used: vec![1],
        wanted: "2g.20gb@0",
        after: names(&[("2g.20gb", 0), ("1g.10gb", 4), ("1g.20gb", 6)]),
    }
}

/// From one layout to another, killed at each call; then a process that wants nothing opens the
/// machine. There is the old layout if the change was not written down yet, else the new one.
fn ended_by_another(name: &str, variable: &str, from: &[(&str, u8)], to: &[(&str, u8)]) {
    let scratch = Scratch::new(name);
    let folder = scratch.path();
    let machine = machine(&folder.join("machine"), "a100-80gb:1");
    let (from, to) = (names(from), names(to));
    let wanted = serde_json::to_string(&to).expect("plain data");
    let mut seen = (0, 0);
    for call in 1..CALLS_MAX {
        let _ = std::fs::remove_dir_all(folder.join("state"));
        lay_out(&machine, 0, &from, &[]);
        let ended = run(folder, "child_changes_layout", &wanted, Some((variable, call)));
        let written = is_written(folder);
        // Whoever ends it is killed as well now and then, somewhere on the way.
        if call % 5 == 0 {
            run(folder, "child_opens", "", Some((variable, call / 2)));
        }
        run(folder, "child_opens", "", None);
        let after = standing(&machine, 0);
        let places: Names = after.iter().map(|(name, start, _)| (name.clone(), *start)).collect();
        assert_eq!(places, if written { to.clone() } else { from.clone() }, "call {call}");
        assert!(after.iter().all(|(_, _, parts)| parts.len() == 1), "call {call}: {after:?}");
        let journal = Journal::open(&folder.join("state")).expect("the journal opens");
        assert_eq!(journal.open_changes().expect("readable"), Vec::new(), "call {call}");
        if written {
            seen.1 += 1;
        } else {
            seen.0 += 1;
        }
        if ended {
            assert!(seen.0 > 10 && seen.1 > 20, "{seen:?}: too few calls before and after");
            return;
        }
    }
    panic!("no end after {CALLS_MAX} calls");
}

/// Whether the journal knows of a change, open or closed.
fn is_written(folder: &Path) -> bool {
    // A process that is killed at its first calls has not made the state folder yet.
    let state = folder.join("state");
    state.exists() && {
        let journal = Journal::open(&state).expect("the journal opens");
        !journal.before().expect("readable").is_empty()
    }
}

#[test]
fn ended_by_another_process_small_to_large() {
    let small: Vec<(&str, u8)> = (0..7).map(|start| ("1g.10gb", start)).collect();
    let large = [("3g.40gb", 0), ("3g.40gb", 4)];
    ended_by_another("small", "HOTPOT_FAKE_KILL_AFTER", &small, &large);
}

#[test]
fn ended_by_another_process_large_to_small() {
    let large = [("4g.40gb", 0), ("3g.40gb", 4)];
    let small = [("2g.20gb", 0), ("1g.20gb", 2), ("1g.10gb", 4), ("1g.10gb", 5), ("1g.20gb", 6)];
    ended_by_another("large", "HOTPOT_FAKE_KILL_BEFORE", &large, &small);
}

#[test]
fn killed_before_each_call() {
    let calls = killed_at_each_call("before", "HOTPOT_FAKE_KILL_BEFORE", &three_for_four());
    assert!(calls > 50, "only {calls} calls: the kill does not work");
}

#[test]
fn killed_after_each_call() {
    let calls = killed_at_each_call("after", "HOTPOT_FAKE_KILL_AFTER", &three_for_four());
    assert!(calls > 50, "only {calls} calls: the kill does not work");
}

#[test]
fn killed_after_each_call_beside_others() {
    killed_at_each_call("beside", "HOTPOT_FAKE_KILL_AFTER", &one_beside_others());
}

#[test]
fn killed_while_mig_mode_turns_on_and_off() {
    let scratch = Scratch::new("mode");
    let folder = scratch.path();
    let machine = machine(&folder.join("machine"), "a100-80gb:1");
    let is_on = || {
        let now = fake_machine::Machine::open(machine.folder()).expect("the machine").read();
        let mode = now.gpu(0).expect("a GPU").mig;
        assert_eq!(mode.current, mode.pending);
        mode.current
    };
    for call in 1..CALLS_MAX {
        let _ = std::fs::remove_dir_all(folder.join("state"));
        let kill = Some(("HOTPOT_FAKE_KILL_AFTER", call));
        let ended = run(folder, "child_grants", "3g.40gb@4", kill);
        run(folder, "child_grants", "3g.40gb@4", None);
        let [(name, 4, parts)] = &standing(&machine, 0)[..] else {
            panic!("call {call}: {:?}", standing(&machine, 0))
        };
        assert!(is_on() && name == "3g.40gb" && parts.len() == 1, "call {call}");
        let restored = run(folder, "child_restores", "", kill);
        run(folder, "child_restores", "", None);
        assert!(!is_on() && standing(&machine, 0).is_empty(), "call {call}");
        if ended && restored {
            return;
        }
    }
    panic!("no end after {CALLS_MAX} calls");
}

#[test]
fn killed_while_putting_back() {
    let scratch = Scratch::new("restore");
    let folder = scratch.path();
    let machine = machine(&folder.join("machine"), "a100-80gb:1");
    let story = three_for_four();
    for call in 1..CALLS_MAX {
        let _ = std::fs::remove_dir_all(folder.join("state"));
        lay_out(&machine, 0, &story.from, &story.used);
        let before = standing(&machine, 0);
        run(folder, "child_grants", story.wanted, None);
        let ended = run(folder, "child_restores", "", Some(("HOTPOT_FAKE_KILL_AFTER", call)));
        run(folder, "child_restores", "", None);
        let after = standing(&machine, 0);
        let places: Names = after.iter().map(|(name, start, _)| (name.clone(), *start)).collect();
        assert_eq!(places, story.from, "call {call}");
        assert!(after.iter().all(|(_, _, parts)| parts.len() == 1), "call {call}: {after:?}");
        assert!(after.contains(&before[3]), "call {call}: an instance in use was touched");
        if ended {
            return;
        }
    }
    panic!("no end after {CALLS_MAX} calls");
}
