//! What goes wrong with drivers and journals, and what is said then.

mod simulated;

use std::process::Command;

use fake_machine::{Code, MACHINE_VARIABLE, Machine as Simulated};
use model::{ModeSet, Share, SharingKind, SharingMode};
use node::driver::{Driver, Fault};
use node::journal::{FILE, Journal, JournalError};
use node::machine::{Machine, MachineError, MachineOptions};
use node::mig::{MigError, Target};
use simulated::{Scratch, again, edit, lay_out, library, machine, on_machine, standing, text};

fn uuid(machine: &Simulated) -> String {
    machine.read().gpu(0).expect("a GPU").uuid.clone()
}

fn open() -> Machine {
    Machine::open(MachineOptions::default()).expect("the machine opens")
}

/// Seven instances where two were.
fn target(machine: &Machine, gpu: &str) -> Target {
    let profiles = node::mig::profiles(machine.driver(), gpu).expect("MIG profiles");
    let small = profiles.geometry.find("1g.10gb").expect("a profile");
    Target::Exact((0..7).map(|start| (small, start)).collect())
}

fn two_large(machine: &Simulated) {
    lay_out(machine, 0, &[("3g.40gb".into(), 0), ("3g.40gb".into(), 4)], &[]);
}

fn fail(machine: &Simulated, call: &str, nth: u64, code: Code) {
    edit(machine, |state| {
        state.fail(call, nth, code);
        Ok(())
    });
}

#[test]
fn a_driver_without_its_kernel_module_says_so() {
    on_machine("a_driver_without_its_kernel_module_says_so", "t4:1", |machine, _| {
        edit(machine, |state| {
            state.unloaded = true;
            Ok(())
        });
        let error = Driver::open_library(&library()).expect_err("not loaded");
        assert!(error.is(&Fault::NotLoaded) && error.to_string().contains("modprobe"), "{error}");
    });
}

#[test]
fn a_gpu_lost_in_the_middle_ends_the_change_and_the_next_one_goes_on() {
    let test = "a_gpu_lost_in_the_middle_ends_the_change_and_the_next_one_goes_on";
    on_machine(test, "a100-80gb:1", |simulated, _| {
        two_large(simulated);
        let gpu = uuid(simulated);
        let mut machine = open();
        let target = target(&machine, &gpu);
        fail(simulated, "nvmlDeviceCreateGpuInstanceWithPlacement", 3, Code::GpuIsLost);
        let error = machine.relayout(&gpu, &target).expect_err("lost");
        let words = error.to_string();
        assert!(words.contains("lost") && words.contains(&gpu), "{words}");
        assert_eq!(standing(simulated, 0).len(), 2, "two of seven were made");
        machine.relayout(&gpu, &target).expect("the fault is over");
        assert_eq!(standing(simulated, 0).len(), 7);
    });
}

#[test]
fn a_tenant_that_comes_in_the_middle_is_spared() {
    let test = "a_tenant_that_comes_in_the_middle_is_spared";
    on_machine(test, "a100-80gb:1", |simulated, _| {
        two_large(simulated);
        let gpu = uuid(simulated);
        let mut machine = open();
        let target = target(&machine, &gpu);
        // The driver refuses though it lists no process: seen between a process's start and its
        // first context.
        fail(simulated, "nvmlComputeInstanceDestroy", 0, Code::InUse);
        let before = standing(simulated, 0);
        let error = machine.relayout(&gpu, &target).expect_err("in use");
        assert!(error.to_string().contains("in use"), "{error}");
        assert_eq!(standing(simulated, 0), before);
        assert_eq!(machine.journal().open_changes().expect("readable"), Vec::new());
        edit(simulated, |state| {
            state.faults.clear();
            Ok(())
        });
        // The third such call of this process is the second of the next change: by then one instance
        // has gone, and what stands is looked at anew.
        fail(simulated, "nvmlComputeInstanceDestroy", 3, Code::InUse);
        machine.relayout(&gpu, &target).expect("it was over the second time");
        assert_eq!(standing(simulated, 0).len(), 7);
    });
}

#[test]
fn without_rights_a_change_says_who_could_make_it() {
    on_machine("without_rights_a_change_says_who_could_make_it", "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated);
        let mut machine = open();
        edit(simulated, |state| {
            state.unprivileged = true;
            Ok(())
        });
        let error = machine.set_mode(&gpu, SharingMode::Mig).expect_err("not root");
        assert!(error.to_string().contains("root"), "{error}");
    });
}

#[test]
fn an_unknown_gpu_is_named() {
    on_machine("an_unknown_gpu_is_named", "t4:1", |_, _| {
        let error = open().set_mode("GPU-none", SharingMode::Exclusive).expect_err("no such GPU");
        assert!(error.to_string().contains("GPU-none"), "{error}");
    });
}

#[test]
fn a_damaged_journal_is_left_as_it_is() {
    let scratch = Scratch::new("damaged");
    let file = scratch.path().join(FILE);
    let garbage = [b'x'; 8192];
    std::fs::write(&file, garbage).expect("written");
    let error = Journal::open(scratch.path()).expect_err("no database");
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("Move it away"), "{error}");
    assert_eq!(std::fs::read(&file).expect("there"), garbage);
}

#[test]
fn a_journal_damaged_in_its_middle_is_an_error_and_no_crash() {
    let scratch = Scratch::new("holes");
    let journal = Journal::open(scratch.path()).expect("a new one");
    for number in 0..400 {
        journal
            .hold("GPU-1", model::Share::Exclusive, "GPU-1", &format!("holder {number}"))
            .expect("written");
    }
    drop(journal);
    let file = scratch.path().join(FILE);
    let mut bytes = std::fs::read(&file).expect("there");
    assert!(bytes.len() > 3 * 4096, "the log was folded into the file");
    let len = bytes.len();
    bytes[4096..len].fill(0xa5);
    std::fs::write(&file, bytes).expect("written");
    let read = Journal::open(scratch.path()).and_then(|journal| journal.holds());
    assert!(matches!(read, Err(JournalError::Corrupt { .. })), "{read:?}");
}

#[test]
fn many_that_make_a_journal_at_once_lose_nothing() {
    for round in 0..20 {
        let scratch = Scratch::new(&format!("at-once-{round}"));
        let start = std::sync::Barrier::new(8);
        let hold = |number: usize| {
            start.wait();
            let journal = Journal::open(scratch.path()).expect("opened");
            let who = format!("holder {number}");
            journal.hold("GPU-1", model::Share::Exclusive, "GPU-1", &who).expect("written");
        };
        std::thread::scope(|scope| {
            for number in 0..8 {
                let hold = &hold;
                scope.spawn(move || hold(number));
            }
        });
        let holds = Journal::open(scratch.path()).and_then(|journal| journal.holds());
        assert_eq!(holds.expect("read").len(), 8, "round {round}");
    }
}

#[test]
fn a_journal_that_is_no_file_says_so() {
    let scratch = Scratch::new("folder");
    std::fs::create_dir(scratch.path().join(FILE)).expect("a folder in its place");
    let error = Journal::open(scratch.path()).expect_err("a folder");
    assert!(error.to_string().contains("HOTPOT_STATE_DIR"), "{error}");
}

/// In the child, whose files cannot grow: opens the machine and changes a layout.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn child_on_a_full_disk() {
    if std::env::var_os(MACHINE_VARIABLE).is_none() {
        return;
    }
    let mut machine = open();
    let gpu = machine.driver().nvml().device_by_index(0).and_then(|gpu| gpu.uuid());
    let gpu = gpu.expect("a GPU");
    let target = target(&machine, &gpu);
    let mut grown = 0;
    let error = loop {
        // Each hold makes the log longer, until it can be no longer.
        match machine.journal().hold(&gpu, model::Share::Exclusive, &gpu, &"x".repeat(500)) {
            Ok(_) => grown += 1,
            Err(error) => break error,
        }
        assert!(grown < 100_000, "the disk is never full");
    };
    assert!(matches!(error, JournalError::Full { .. }), "{error:?}");
    match machine.relayout(&gpu, &target) {
        Err(MachineError::Journal(JournalError::Full { .. })) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn on_a_full_disk_nothing_is_changed() {
    let scratch = Scratch::new("full");
    let folder = scratch.path();
    let simulated = machine(&folder.join("machine"), "a100-80gb:1");
    two_large(&simulated);
    let before = standing(&simulated, 0);
    let child = again("child_on_a_full_disk", folder);
    // Files of at most 256 blocks of 1,024 bytes; the signal for longer ones is left aside.
    let limits = "trap '' XFSZ; ulimit -f 256; exec \"$0\" \"$@\"";
    let mut limited = Command::new("bash");
    limited.args(["-c", limits]).arg(child.get_program()).args(child.get_args());
    for (name, value) in child.get_envs() {
        limited.env(name, value.unwrap_or_default());
    }
    let output = limited.output().expect("bash is there");
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(standing(&simulated, 0), before, "the journal could not be written");
    let journal = Journal::open(&folder.join("state")).expect("the disk has room again");
    assert_eq!(journal.open_changes().expect("readable"), Vec::new());
    assert!(!journal.holds().expect("readable").is_empty(), "what was written before stays");
}

/// In the child: one of several that grant at the same time.
#[test]
#[ignore = "run by the test below, in processes of its own"]
fn child_grants_at_once() {
    let Ok(start) = std::env::var("START") else { return };
    let mut machine = open();
    let gpu = machine.driver().nvml().device_by_index(0).and_then(|gpu| gpu.uuid());
    let gpu = gpu.expect("a GPU");
    let profiles = node::mig::profiles(machine.driver(), &gpu).expect("MIG profiles");
    let profile = profiles.geometry.find("1g.10gb").expect("a profile");
    let share = Share::Mig { profile, start: start.parse().expect("a number") };
    machine
        .grant(&gpu, share, format!("child {start}").as_str())
        .expect("there is room for all seven");
}

#[test]
fn many_at_once_take_turns() {
    let scratch = Scratch::new("at-once");
    let folder = scratch.path();
    let simulated = machine(&folder.join("machine"), "a100-80gb:1");
    lay_out(&simulated, 0, &[("3g.40gb".into(), 4)], &[]);
    let children: Vec<_> = (0..7)
        .map(|start| {
            let mut child = again("child_grants_at_once", folder);
            child.env("START", start.to_string()).spawn().expect("the test program runs again")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    let standing = standing(&simulated, 0);
    assert_eq!(standing.len(), 7, "{standing:?}");
    let journal = Journal::open(&folder.join("state")).expect("the journal opens");
    let holds = journal.holds().expect("readable");
    assert_eq!(holds.len(), 7);
    for (_, start, devices) in standing {
        let hold = holds.iter().find(|hold| hold.start == Some(start)).expect("each is held");
        assert_eq!(devices, std::slice::from_ref(&hold.device));
        assert_eq!(hold.who, format!("child {start}"));
    }
}

#[test]
fn a_layout_without_mig_mode_is_refused() {
    on_machine("a_layout_without_mig_mode_is_refused", "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated);
        let mut machine = open();
        let target = target(&machine, &gpu);
        match machine.relayout(&gpu, &target) {
            Err(MachineError::Mig(MigError::NoMig { .. })) => {}
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_gpu_that_does_not_tell_its_memory_is_not_divided() {
    let test = "a_gpu_that_does_not_tell_its_memory_is_not_divided";
    on_machine(test, "t4:1", |simulated, _| {
        fail(simulated, "nvmlDeviceGetMemoryInfo_v2", 0, Code::NotSupported);
        let mut machine = open();
        let offers = machine.inventory().expect("an inventory").devices[0].offers();
        assert_eq!(offers, ModeSet::of(&[SharingKind::Exclusive, SharingKind::TimeSlice]));
        let share = Share::MemoryCapped { memory_mib: 1024, compute_milli: 0 };
        let refused = machine.grant(&uuid(simulated), share, "run.1/1").expect_err("refused");
        let words = refused.to_string();
        assert!(words.contains("does not tell how much memory it has"), "{words}");
    });
}
