//! What can be done without root, and what an admin's settings allow.

mod simulated;
#[allow(dead_code, reason = "only the tools' folder is asked for here")]
mod tools;

use fake_machine::{Code, Machine as Simulated};
use model::{Share, SharingMode};
use node::machine::{Machine, MachineError, MachineOptions};
use node::mig::MigError;
use simulated::{Scratch, edit, on_machine};

/// NVML's numbers.
const EXCLUSIVE_PROCESS: u32 = 3;
const PROHIBITED: u32 = 2;

fn open() -> Machine {
    Machine::open(MachineOptions::default()).expect("the machine opens")
}

fn uuid(simulated: &Simulated) -> String {
    simulated.read().gpu(0).expect("a GPU").uuid.clone()
}

fn set(simulated: &Simulated, compute_mode: u32, unprivileged: bool) {
    edit(simulated, |state| {
        state.unprivileged = unprivileged;
        state.gpu_mut(0)?.compute_mode = compute_mode;
        Ok(())
    });
}

#[test]
fn without_root_a_gpu_in_exclusive_mode_can_be_had_whole() {
    let test = "without_root_a_gpu_in_exclusive_mode_can_be_had_whole";
    on_machine(test, "l40s:1", |simulated, _| {
        let gpu = uuid(simulated);
        set(simulated, EXCLUSIVE_PROCESS, true);
        let mut machine = open();
        machine.set_mode(&gpu, SharingMode::Exclusive).expect("one process is all that is wanted");
        let shared = SharingMode::TimeSlice { tenants_max: 4 };
        let refused = machine.set_mode(&gpu, shared).expect_err("it admits one process");
        assert!(refused.to_string().contains("root"), "{refused}");
    });
}

#[test]
fn without_root_there_is_mps() {
    tools::folder();
    on_machine("without_root_there_is_mps", "l40s:1", |simulated, _| {
        let gpu = uuid(simulated);
        set(simulated, 0, true);
        let mut machine = open();
        let mode = SharingMode::Mps { tenants_max: 8 };
        machine.set_mode(&gpu, mode).expect("compute mode is tolerated");
        let share = Share::Mps { compute_milli: 250, memory_mib: 4096 };
        let grant = machine.grant(&gpu, share, "a").expect("room");
        machine.set_mode(&gpu, mode).expect("it is so already");
        machine.revoke(&grant).expect("given back");
        let restored = machine.restore(&[gpu]).expect("written");
        assert!(restored.left.is_empty(), "{restored:?}");
    });
}

#[test]
fn our_mode_is_gone_for_one_alone() {
    let test = "our_mode_is_gone_for_one_alone";
    tools::folder();
    on_machine(test, "l40s:1", |simulated, _| {
        let gpu = uuid(simulated);
        let mut machine = open();
        machine.set_mode(&gpu, SharingMode::Mps { tenants_max: 8 }).expect("it comes up");
        assert_eq!(compute_mode(simulated), EXCLUSIVE_PROCESS);
        machine.set_mode(&gpu, SharingMode::Exclusive).expect("idle");
        assert_eq!(compute_mode(simulated), 0);
        machine.restore(&[gpu]).expect("written");
    });
}

fn compute_mode(simulated: &Simulated) -> u32 {
    let state = Simulated::open(simulated.folder()).expect("the machine").read();
    state.gpu(0).expect("a GPU").compute_mode
}

#[test]
fn what_an_admin_prohibits_is_not_overruled() {
    on_machine("what_an_admin_prohibits_is_not_overruled", "l40s:1", |simulated, _| {
        let gpu = uuid(simulated);
        set(simulated, PROHIBITED, false);
        let mut machine = open();
        let refused = machine.set_mode(&gpu, SharingMode::Exclusive).expect_err("prohibited");
        assert!(refused.to_string().contains("prohibited"), "{refused}");
        assert_eq!(compute_mode(simulated), PROHIBITED);
        let engine = machine.inventory().expect("it answers").to_engine().expect("fits");
        assert!(engine.gpus.is_empty());
        assert!(engine.left_out[0].1.contains("-c DEFAULT"), "{:?}", engine.left_out);
    });
}

#[test]
fn a_gpu_that_a_monitor_has_open_is_not_told_to_be_reset() {
    let test = "a_gpu_that_a_monitor_has_open_is_not_told_to_be_reset";
    on_machine(test, "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated);
        edit(simulated, |state| {
            state.gpu_mut(0)?.blocked_by_client = true;
            Ok(())
        });
        let mut machine = open();
        let error = machine.set_mode(&gpu, SharingMode::Mig).expect_err("open elsewhere");
        assert!(matches!(error, MachineError::Mig(MigError::Open { .. })), "{error:?}");
        assert!(error.to_string().contains("DCGM"), "{error}");
        let mode = node::mig::mode(machine.driver(), &gpu).expect("it answers");
        assert_eq!(mode, Some((false, false)), "a mode is left that waits for a reset");
        edit(simulated, |state| {
            let gpu = state.gpu_mut(0)?;
            (gpu.blocked_by_client, gpu.needs_reset) = (false, true);
            Ok(())
        });
        let error = machine.set_mode(&gpu, SharingMode::Mig).expect_err("a reset is needed");
        assert!(matches!(error, MachineError::Mig(MigError::NeedsReset { .. })), "{error:?}");
        let restored = machine.restore(std::slice::from_ref(&gpu)).expect("written");
        assert_eq!(restored.forgotten, [], "it is our own mode that waits");
    });
}

#[test]
fn a_memory_cap_that_fails_holds_nothing() {
    on_machine("a_memory_cap_that_fails_holds_nothing", "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated);
        let parent = Scratch::new("caps-fail");
        let cgroup_parent = Some(parent.path().to_owned());
        let options = MachineOptions { cgroup_parent, ..MachineOptions::default() };
        let mut machine = Machine::open(options).expect("the machine opens");
        let share = Share::MemoryCapped { memory_mib: 2048, compute_milli: 0 };
        let grant = machine.grant(&gpu, share, "a").expect("it holds");
        edit(simulated, |state| {
            state.fail("nvmlDeviceSetMemoryLimits_v1", 0, Code::GpuIsLost);
            Ok(())
        });
        machine.grant(&gpu, share, "b").expect_err("lost");
        assert!(!parent.path().join("b").exists(), "its cgroup is left behind");
        machine.revoke(&grant).expect_err("lost");
        assert_eq!(machine.holds().expect("readable"), [], "a lost GPU is held for ever");
        assert!(!parent.path().join("a").exists(), "its cgroup is left behind");
    });
}
