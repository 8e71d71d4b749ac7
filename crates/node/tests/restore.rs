//! What is put back at the end and what is not: others' GPUs, what others have made since, what has to
//! wait for something else.

mod simulated;

use fake_machine::Machine as Simulated;
use model::{Share, SharingMode};
use node::gpu_lock::{self, Taken};
use node::journal::{Change, Journal};
use node::machine::{Machine, MachineOptions, Restored};
use simulated::{Scratch, edit, lay_out, on_machine, standing};

/// NVML's numbers.
const EXCLUSIVE_PROCESS: u32 = 3;
const PROHIBITED: u32 = 2;

fn open() -> Machine {
    Machine::open(MachineOptions::default()).expect("the machine opens")
}

fn uuid(simulated: &Simulated, gpu: u32) -> String {
    simulated.read().gpu(gpu).expect("a GPU").uuid.clone()
}

fn restore(machine: &mut Machine, gpu: &str) -> Restored {
    machine.restore(&[gpu.to_owned()]).expect("the journal can be written")
}

/// MIG mode and compute mode of a GPU, without asking the driver.
fn modes(simulated: &Simulated, gpu: u32) -> (bool, u32) {
    let state = Simulated::open(simulated.folder()).expect("the machine").read();
    let gpu = state.gpu(gpu).expect("a GPU");
    (gpu.mig.current, gpu.compute_mode)
}

fn set_compute_mode(simulated: &Simulated, mode: u32) {
    edit(simulated, |state| {
        state.gpu_mut(0)?.compute_mode = mode;
        Ok(())
    });
}

#[test]
fn a_run_puts_back_its_own_gpus_only() {
    on_machine("a_run_puts_back_its_own_gpus_only", "a100-80gb:2", |simulated, _| {
        let (first, second) = (uuid(simulated, 0), uuid(simulated, 1));
        let (mut one, mut other) = (open(), open());
        one.set_mode(&first, SharingMode::Mig).expect("idle");
        other.set_mode(&second, SharingMode::Mig).expect("idle");
        let restored = restore(&mut one, &first);
        assert_eq!(restored.done.len(), 1, "{restored:?}");
        assert!(!modes(simulated, 0).0);
        assert!(modes(simulated, 1).0, "the other run's GPU was put back under its hands");
        restore(&mut other, &second);
        assert!(!modes(simulated, 1).0);
    });
}

#[test]
fn a_change_of_a_gpu_that_another_one_uses_is_left_for_later() {
    let test = "a_change_of_a_gpu_that_another_one_uses_is_left_for_later";
    on_machine(test, "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        let (on, off) = (Change::MigMode { on: true }, Change::MigMode { on: false });
        open().journal().begin(&gpu, &on, &off).expect("written");
        let Taken::Ours(lock) = gpu_lock::take(&gpu, "another").expect("a lock") else {
            panic!("nobody has it");
        };
        assert!(open().resumed().is_empty());
        assert!(!modes(simulated, 0).0, "it was changed under its user's hands");
        drop(lock);
        assert_eq!(open().resumed().len(), 1);
        assert!(modes(simulated, 0).0);
    });
}

#[test]
fn a_layout_waits_for_its_mig_mode() {
    on_machine("a_layout_waits_for_its_mig_mode", "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        lay_out(simulated, 0, &[("3g.40gb".to_owned(), 4)], &[]);
        let mut machine = open();
        machine.set_mode(&gpu, SharingMode::Exclusive).expect("idle");
        edit(simulated, |state| {
            state.gpu_mut(0)?.needs_reset = true;
            Ok(())
        });
        let restored = restore(&mut machine, &gpu);
        assert_eq!((restored.done.len(), restored.left.len()), (0, 2), "{restored:?}");
        assert!(restored.left[0].2.contains("gpu-reset"), "{restored:?}");
        edit(simulated, |state| {
            state.gpu_mut(0)?.needs_reset = false;
            state.gpu_mut(0)?.reset()
        });
        let restored = restore(&mut machine, &gpu);
        assert_eq!((restored.done.len(), restored.left.len()), (2, 0), "{restored:?}");
        assert_eq!(standing(simulated, 0).len(), 1, "the instance did not come back");
    });
}

#[test]
fn compute_mode_comes_back_though_mig_mode_has_wiped_it() {
    let test = "compute_mode_comes_back_though_mig_mode_has_wiped_it";
    on_machine(test, "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        set_compute_mode(simulated, EXCLUSIVE_PROCESS);
        let mut machine = open();
        machine.set_mode(&gpu, SharingMode::Mig).expect("idle");
        assert_eq!(modes(simulated, 0), (true, 0));
        let restored = restore(&mut machine, &gpu);
        assert!(restored.left.is_empty() && restored.forgotten.is_empty(), "{restored:?}");
        assert_eq!(modes(simulated, 0), (false, EXCLUSIVE_PROCESS));
    });
}

#[test]
fn instances_that_an_admin_has_made_since_stay() {
    on_machine("instances_that_an_admin_has_made_since_stay", "a100-80gb:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        let mut machine = open();
        machine.set_mode(&gpu, SharingMode::Mig).expect("idle");
        let mig = machine.inventory().expect("it answers").devices.remove(0).mig.expect("MIG");
        let profile = mig.geometry.find("1g.10gb").expect("a profile");
        let grant = machine.grant(&gpu, Share::Mig { profile, start: 0 }, "a").expect("room");
        machine.revoke(&grant).expect("given back");
        lay_out(simulated, 0, &[("3g.40gb".to_owned(), 0)], &[]);
        let restored = restore(&mut machine, &gpu);
        assert!(restored.left.is_empty() && !restored.forgotten.is_empty(), "{restored:?}");
        assert_eq!(standing(simulated, 0).len(), 1, "the admin's instance is gone");
        assert_eq!(restore(&mut machine, &gpu), Restored::default(), "it is told once");
    });
}

#[test]
fn a_compute_mode_that_an_admin_has_set_since_stays() {
    on_machine("a_compute_mode_that_an_admin_has_set_since_stays", "t4:1", |simulated, _| {
        let gpu = uuid(simulated, 0);
        set_compute_mode(simulated, EXCLUSIVE_PROCESS);
        let mut machine = open();
        machine.set_mode(&gpu, SharingMode::TimeSlice { tenants_max: 4 }).expect("it can be had");
        assert_eq!(modes(simulated, 0).1, 0);
        set_compute_mode(simulated, PROHIBITED);
        let restored = restore(&mut machine, &gpu);
        assert_eq!((restored.left.len(), restored.forgotten.len()), (0, 1), "{restored:?}");
        assert_eq!(modes(simulated, 0).1, PROHIBITED);
    });
}

#[test]
fn a_gpu_that_was_taken_out_is_forgotten() {
    on_machine("a_gpu_that_was_taken_out_is_forgotten", "t4:1", |_, _| {
        let mut machine = open();
        let (on, off) = (Change::MigMode { on: true }, Change::MigMode { on: false });
        let id = machine.journal().begin("GPU-gone", &on, &off).expect("written");
        machine.journal().end(id, None).expect("written");
        let restored = restore(&mut machine, "GPU-gone");
        assert!(restored.left.is_empty() && restored.forgotten.len() == 1, "{restored:?}");
        assert_eq!(restore(&mut machine, "GPU-gone"), Restored::default());
    });
}

#[test]
fn what_a_start_of_the_machine_has_undone_is_forgotten() {
    let scratch = Scratch::new("boot-modes");
    let journal = Journal::open(scratch.path()).expect("a new one");
    let mode = |on| Change::MigMode { on };
    let layout = Change::Layout { instances: Vec::new() };
    journal.begin("GPU-1", &mode(true), &mode(false)).expect("written");
    journal.begin("GPU-1", &layout, &layout).expect("written");
    drop(journal);
    let connection = node::journal::open(&scratch.path().join("state.db")).expect("opens");
    connection.execute("UPDATE boot SET id = 'another'", []).expect("written");
    drop(connection);
    let journal = Journal::open(scratch.path()).expect("another boot");
    assert_eq!(journal.before().expect("readable"), [("GPU-1".to_owned(), mode(false))]);
    let open = journal.open_changes().expect("readable");
    assert_eq!(open.into_iter().map(|change| change.what).collect::<Vec<_>>(), [mode(true)]);
}
