//! Modes and grants on a simulated machine, and all of it put back at the end.

mod simulated;
#[allow(dead_code, reason = "only the tools' folder is asked for here")]
mod tools;

use std::path::Path;

use fake_machine::{Machine as Simulated, Process, ProcessKind};
use model::{ProfileIndex, Share, SharingKind, SharingMode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use node::backend::Enforcement;
use node::inventory::{ComputeMode, Device};
use node::journal::Journal;
use node::machine::{Machine, MachineOptions};
use node::mps::{Interface, Mps};
use node::time_slice::Turn;
use simulated::{Scratch, edit, lay_out, on_machine, standing};

fn open() -> Machine {
    Machine::open(MachineOptions::default()).expect("the machine opens")
}

fn device(machine: &mut Machine, at: usize) -> Device {
    machine.inventory().expect("the driver answers").devices.swap_remove(at)
}

fn uuid(simulated: &Simulated, gpu: u32) -> String {
    simulated.read().gpu(gpu).expect("a GPU").uuid.clone()
}

fn instance(machine: &mut Machine, name: &str, start: u8) -> Share {
    let mig = device(machine, 0).mig.expect("MIG");
    Share::Mig { profile: mig.geometry.find(name).expect("a profile"), start }
}

#[test]
fn an_instance_is_kept_for_the_next_who_wants_it() {
    on_machine("an_instance_is_kept_for_the_next_who_wants_it", "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        let mut machine = open();
        machine.set_mode(&gpu, SharingMode::Mig).expect("an idle GPU");
        let share = instance(&mut machine, "2g.20gb", 2);
        let first = machine.grant(&gpu, share, "a").expect("room");
        assert_eq!(first.kind(), SharingKind::Mig);
        assert_eq!((&first.memory, &first.compute), (&Enforcement::Hard, &Enforcement::Hard));
        assert_eq!(standing(simulated, 0)[0].2, std::slice::from_ref(&first.device));
        let held = machine.grant(&gpu, share, "b").expect_err("held");
        assert!(held.to_string().contains("held by a"), "{held}");
        machine.revoke(&first).expect("given back");
        let second = machine.grant(&gpu, share, "b").expect("it is free");
        assert_eq!(second.device, first.device, "the instance was made anew");
        let overlapping = instance(&mut machine, "3g.40gb", 0);
        let refused = machine.grant(&gpu, overlapping, "c").expect_err("in the way");
        assert!(refused.to_string().contains("held by b"), "{refused}");
        machine.revoke(&second).expect("given back");
        let third = machine.grant(&gpu, overlapping, "c").expect("the idle one makes room");
        assert_eq!(standing(simulated, 0).len(), 1);
        let restored =
            machine.restore(std::slice::from_ref(&gpu)).expect("the journal can be written");
        assert!(!restored.left.is_empty(), "somebody holds a share: {restored:?}");
        machine.revoke(&third).expect("given back");
        let restored =
            machine.restore(std::slice::from_ref(&gpu)).expect("the journal can be written");
        assert!(restored.left.is_empty(), "{restored:?}");
        assert!(standing(simulated, 0).is_empty());
        assert!(!device(&mut machine, 0).mig.expect("MIG").enabled, "MIG mode was off at first");
        assert_eq!(
            machine.restore(std::slice::from_ref(&gpu)).expect("nothing to do"),
            node::machine::Restored::default()
        );
    });
}

#[test]
fn state_is_its_owners_alone() {
    on_machine("state_is_its_owners_alone", "t4:1", |_, _| {
        let machine = open();
        let mode = |path: &Path| {
            let found = std::fs::metadata(path).expect("it is there").permissions();
            std::os::unix::fs::PermissionsExt::mode(&found) & 0o777
        };
        assert_eq!(mode(machine.state()), 0o700);
        assert_eq!(mode(machine.journal().path()), 0o600);
    });
}

#[test]
fn a_process_of_others_on_an_instance_keeps_it_from_being_granted() {
    let test = "a_process_of_others_on_an_instance_keeps_it_from_being_granted";
    on_machine(test, "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        lay_out(simulated, 0, &[("3g.40gb".into(), 0)], &[0]);
        let mut machine = open();
        let share = instance(&mut machine, "3g.40gb", 0);
        let refused = machine.grant(&gpu, share, "a").expect_err("in use");
        assert!(refused.to_string().contains("4000000"), "{refused}");
        assert_eq!(machine.holds().expect("readable"), Vec::new());
    });
}

#[test]
fn a_layout_that_was_there_comes_back() {
    on_machine("a_layout_that_was_there_comes_back", "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        let at_first = [("1g.10gb".to_owned(), 0), ("3g.40gb".to_owned(), 4)];
        lay_out(simulated, 0, &at_first, &[]);
        let mut machine = open();
        machine.set_mode(&gpu, SharingMode::Exclusive).expect("nobody is on it");
        let grant = machine.grant(&gpu, Share::Exclusive, "a").expect("the whole GPU");
        assert_eq!(grant.device, gpu);
        let restored =
            machine.restore(std::slice::from_ref(&gpu)).expect("the journal can be written");
        assert!(restored.done.is_empty() && !restored.left.is_empty(), "it is held: {restored:?}");
        assert!(standing(simulated, 0).is_empty());
        machine.revoke(&grant).expect("given back");
        let restored =
            machine.restore(std::slice::from_ref(&gpu)).expect("the journal can be written");
        assert!(restored.left.is_empty(), "{restored:?}");
        let now: Vec<_> =
            standing(simulated, 0).into_iter().map(|(name, start, _)| (name, start)).collect();
        assert_eq!(now, at_first);
    });
}

#[test]
fn mps() {
    // Built before the child looks for it.
    tools::folder();
    on_machine("mps", "l40s:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        let mut machine = open();
        let mode = SharingMode::Mps { tenants_max: 8 };
        machine.set_mode(&gpu, mode).expect("the daemon comes up");
        assert_eq!(device(&mut machine, 0).compute_mode, ComputeMode::ExclusiveProcess);
        let share = Share::Mps { compute_milli: 250, memory_mib: 4096 };
        let grant = machine.grant(&gpu, share, "a").expect("room");
        let variable = |name: &str| {
            let found = grant.env.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        assert!(Path::new(variable("CUDA_MPS_PIPE_DIRECTORY")).is_dir(), "{grant:?}");
        assert_eq!(variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "25");
        assert!(variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT").contains("4096M"), "{grant:?}");
        assert_eq!(grant.memory, Enforcement::Cooperative);
        // Another process finds the daemon running.
        drop(machine);
        let mut machine = open();
        machine.set_mode(&gpu, mode).expect("it is so already");
        // A daemon that was killed is started anew, by looking or when the mode is asked for again.
        let tool = Mps::find().expect("the tool");
        let folder = Path::new(variable("CUDA_MPS_PIPE_DIRECTORY")).parent().expect("a folder");
        let daemon = tool.adopt(folder, Interface::V2).expect("well").expect("it runs");
        let first = daemon.pid();
        kill(Pid::from_raw(i32::try_from(first).expect("a pid")), Signal::SIGKILL).expect("ours");
        let mended = machine.look_after();
        assert!(mended.len() == 1 && mended[0].left.is_none(), "{mended:?}");
        assert_eq!((mended[0].gpu.as_str(), machine.look_after()), (gpu.as_str(), Vec::new()));
        let daemon = tool.adopt(folder, Interface::V2).expect("well").expect("it runs");
        assert_ne!(daemon.pid(), first);
        let first = daemon.pid();
        kill(Pid::from_raw(i32::try_from(first).expect("a pid")), Signal::SIGKILL).expect("ours");
        machine.set_mode(&gpu, mode).expect("a new one");
        let daemon = tool.adopt(folder, Interface::V2).expect("well").expect("it runs");
        assert_ne!(daemon.pid(), first);
        edit(simulated, |state| {
            let client = Process { kind: ProcessKind::Mps, ..Process::compute(4_000_000, 10) };
            state.gpu_mut(0)?.add(client.phantom());
            Ok(())
        });
        let refused = machine.set_mode(&gpu, SharingMode::Exclusive).expect_err("a client");
        assert!(refused.to_string().contains("4000000"), "{refused}");
        machine.release_all("a").expect("written");
        let restored = machine.restore(std::slice::from_ref(&gpu)).expect("written");
        assert!(restored.left.iter().any(|(_, _, why)| why.contains("4000000")), "{restored:?}");
        edit(simulated, |state| {
            state.gpu_mut(0)?.processes.clear();
            Ok(())
        });
        machine.revoke(&grant).expect("given back");
        let restored =
            machine.restore(std::slice::from_ref(&gpu)).expect("the journal can be written");
        assert!(restored.left.is_empty(), "{restored:?}");
        assert_eq!(device(&mut machine, 0).compute_mode, ComputeMode::Default);
        assert!(!Path::new(variable("CUDA_MPS_PIPE_DIRECTORY")).exists());
    });
}

#[test]
fn turns_are_set_and_put_back() {
    tools::folder();
    on_machine("turns_are_set_and_put_back", "t4:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        let mut machine = open();
        machine.set_turn(&gpu, Turn::Short).expect("the tool is there");
        let before = machine.journal().before().expect("readable");
        assert_eq!(before.len(), 1, "{before:?}");
        let restored = machine.restore(std::slice::from_ref(&gpu)).expect("written");
        assert_eq!((restored.done.len(), restored.left.len()), (1, 0), "{restored:?}");
        let error = machine.set_turn("GPU-none", Turn::Short).expect_err("no such GPU");
        assert!(error.to_string().contains("nvidia-smi"), "{error}");
    });
}

#[test]
fn memory_caps() {
    on_machine("memory_caps", "a100-80gb:2", |simulated, _| {
        let parent = Scratch::new("caps-parent");
        let (first, second) = (uuid(simulated, 0), uuid(simulated, 1));
        let share = Share::MemoryCapped { memory_mib: 2048, compute_milli: 0 };
        let no_limiter = Some("/nowhere/limiter.so".into());
        let options = MachineOptions { limiter: no_limiter, ..MachineOptions::default() };
        let mut bare = Machine::open(options.clone()).expect("the machine opens");
        let refused = bare.grant(&first, share, "a").expect_err("no cgroup is ours").to_string();
        assert!(refused.contains("cgroup") && refused.contains("the limiter library"), "{refused}");
        assert!(!device(&mut bare, 0).offers().contains(SharingKind::MemoryCapped));
        drop(bare);
        let cgroup_parent = Some(parent.path().to_owned());
        let options = MachineOptions { cgroup_parent, ..options };
        let mut machine = Machine::open(options).expect("the machine opens");
        assert_eq!(device(&mut machine, 0).backends.memory_limit, Enforcement::Hard);
        assert!(device(&mut machine, 0).offers().contains(SharingKind::MemoryCapped));
        let grants = [
            machine.grant(&first, share, "run 1/7").expect("it holds"),
            machine.grant(&second, share, "run 1/7").expect("it holds"),
        ];
        assert_eq!(grants[0].cgroup, grants[1].cgroup, "one cgroup for one holder");
        assert!(grants[0].cgroup.as_ref().is_some_and(|cgroup| cgroup.is_dir()));
        edit(simulated, |state| {
            let limits = state.gpus.iter().map(|gpu| gpu.memory_limits[0].hard_bytes);
            assert_eq!(limits.collect::<Vec<_>>(), [2048 << 20; 2]);
            Ok(())
        });
        for grant in &grants {
            machine.revoke(grant).expect("given back");
        }
        let cgroup = grants[0].cgroup.clone().expect("it has one");
        assert!(!cgroup.exists(), "the cgroup is left behind");
    });
}

#[test]
fn holds_outlive_the_process_and_can_be_taken_back() {
    on_machine("holds_outlive_the_process_and_can_be_taken_back", "t4:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        let mut machine = open();
        machine.grant(&gpu, Share::Exclusive, "run 1").expect("the whole GPU");
        machine.grant(&gpu, Share::TimeSlice { memory_mib: 10 }, "run 2").expect("a turn");
        drop(machine);
        let machine = open();
        let who: Vec<_> =
            machine.holds().expect("readable").into_iter().map(|hold| hold.who).collect();
        assert_eq!(who, ["run 1", "run 2"]);
        assert_eq!(machine.release_all("run 1").expect("written"), 1);
        assert_eq!(machine.holds().expect("readable").len(), 1);
    });
}

#[test]
fn a_profile_of_another_gpu_is_refused() {
    on_machine("a_profile_of_another_gpu_is_refused", "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        let mut machine = open();
        machine.set_mode(&gpu, SharingMode::Mig).expect("an idle GPU");
        let share = Share::Mig { profile: ProfileIndex(99), start: 0 };
        let refused = machine.grant(&gpu, share, "a").expect_err("no such profile");
        assert!(refused.to_string().contains("profile 99"), "{refused}");
        let share = instance(&mut machine, "4g.40gb", 4);
        let refused = machine.grant(&gpu, share, "a").expect_err("no such start");
        assert!(refused.to_string().contains("4g.40gb"), "{refused}");
    });
}

#[test]
fn holds_of_an_earlier_boot_are_forgotten() {
    let scratch = Scratch::new("boot");
    let journal = Journal::open(scratch.path()).expect("a new one");
    journal.hold("GPU-1", model::Share::Exclusive, "GPU-1", "a").expect("written");
    drop(journal);
    let journal = Journal::open(scratch.path()).expect("the same boot");
    assert_eq!(journal.holds().expect("readable").len(), 1);
    drop(journal);
    let connection = node::journal::open(&scratch.path().join("state.db")).expect("opens");
    connection.execute("UPDATE boot SET id = 'another'", []).expect("written");
    drop(connection);
    let journal = Journal::open(scratch.path()).expect("another boot");
    assert_eq!(journal.holds().expect("readable"), Vec::new());
}
