//! Many processes on one machine: no edit is lost, a kill breaks nothing, and everybody sees what the
//! others have done.
#![allow(clippy::unwrap_used, reason = "a part of tests")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fake_machine::{Code, GpuSpec, MACHINE_VARIABLE, Machine};

/// Set in a child: how often it edits; 0 for without end.
const EDITS_VARIABLE: &str = "SHARED_FILE_EDITS";

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("shared-file-{}-{name}", std::process::id()))
}

/// A process that edits, and that does not outlive the test.
struct Editor(Child);

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This test program again, as a process that edits.
fn editor(folder: &Path, edits: u32) -> Editor {
    let started = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "editing_process", "--ignored"])
        .env(MACHINE_VARIABLE, folder)
        .env(EDITS_VARIABLE, edits.to_string())
        .stdout(Stdio::null())
        .spawn();
    Editor(started.unwrap())
}

/// Counts up in the machine; run by the tests below in processes of their own.
#[test]
#[ignore = "a part of the other tests"]
fn editing_process() {
    let Some(folder) = std::env::var_os(MACHINE_VARIABLE) else { return };
    let edits: u32 = std::env::var(EDITS_VARIABLE).unwrap().parse().unwrap();
    let machine = Machine::open(folder).unwrap();
    let mut done = 0;
    while edits == 0 || done < edits {
        machine
            .edit(|state| {
                state.gpu_mut(0)?.pcie_replays += 1;
                state.report_xid(0, 13);
                Ok(())
            })
            .unwrap();
        done += 1;
    }
}

#[test]
fn two_processes_that_edit_at_once_lose_nothing() {
    let folder = folder("two");
    let machine = Machine::create(&folder, &GpuSpec::list("a100-80gb:2").unwrap()).unwrap();
    let children = [editor(&folder, 300), editor(&folder, 300)];
    for mut child in children {
        assert!(child.0.wait().unwrap().success());
    }
    machine.edit(|_| Ok(())).unwrap();
    assert_eq!(machine.read().gpus[0].pcie_replays, 600);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_kill_in_an_edit_leaves_a_whole_file_and_no_lock() {
    let folder = folder("kill");
    let machine = Machine::create(&folder, &GpuSpec::list("a100-80gb:8").unwrap()).unwrap();
    let mut last = 0;
    for round in 0..40_u64 {
        let child = editor(&folder, 0);
        let started = Instant::now();
        while machine.read().gpus[0].pcie_replays == last {
            assert!(started.elapsed() < Duration::from_secs(20), "the child does not edit");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(round * 137));
        drop(child);
        let fresh = Machine::open(&folder).expect("the file is whole");
        let state = fresh.read();
        let (count, xids) = (state.gpus[0].pcie_replays, state.xids.last().unwrap().sequence);
        assert_eq!(u64::from(count), xids, "an edit is done whole or not at all");
        machine.edit(|_| Ok(())).unwrap();
        last = count;
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_change_by_another_is_seen_within_a_millisecond_and_ones_own_at_once() {
    let folder = folder("seen");
    let one = Machine::create(&folder, &GpuSpec::list("t4").unwrap()).unwrap();
    let other = Machine::open(&folder).unwrap();
    for count in 1..500 {
        one.edit(|state| {
            state.gpu_mut(0)?.pcie_replays = count;
            Ok(())
        })
        .unwrap();
        assert_eq!(one.read().gpus[0].pcie_replays, count);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(other.read().gpus[0].pcie_replays, count);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_refused_edit_changes_nothing() {
    let folder = folder("refused");
    let machine = Machine::create(&folder, &GpuSpec::list("t4").unwrap()).unwrap();
    let before = std::fs::read(folder.join("machine.json")).unwrap();
    let refused: Result<(), _> = machine.edit(|state| {
        state.gpu_mut(0)?.pcie_replays = 7;
        Err(Code::NoPermission)
    });
    assert_eq!(refused.unwrap_err().to_string(), "NVML error 4 (NoPermission)");
    assert_eq!(std::fs::read(folder.join("machine.json")).unwrap(), before);
    assert_eq!(machine.read().gpus[0].pcie_replays, 0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_without_a_machine_says_how_to_make_one() {
    let said = Machine::open("/nowhere").unwrap_err().to_string();
    assert!(said.contains("/nowhere/machine.json") && said.contains("Machine::create"), "{said}");
}

#[test]
fn energy_follows_the_clock_and_never_falls() {
    let folder = folder("energy");
    let machine = Machine::create(&folder, &GpuSpec::list("a100-80gb").unwrap()).unwrap();
    let start = machine.read().created_ms;
    let idle = machine.read().gpus[0].energy_mj(start + 10_000);
    assert_eq!(idle, 10 * 80_000, "80 W, the fifth of 400 W, for 10 s");
    machine
        .edit(|state| {
            state.gpu_mut(0)?.load.power_mw = Some(1_000);
            Ok(())
        })
        .unwrap();
    let later = |ms| machine.read().gpus[0].energy_mj(start + ms);
    assert!(later(60_000) >= 59 * 1_000 && later(60_000) < 60 * 80_000 / 10);
    std::fs::remove_dir_all(folder).unwrap();
}
