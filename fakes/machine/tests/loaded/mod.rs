//! The fake driver, loaded as programs load it. The driver is told its machine by the environment, so
//! that each test runs in a process of its own: the test starts itself again.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a part of tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fake_machine::{GpuSpec, MACHINE_VARIABLE, Machine, State};
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t};

/// Set in the process of a test; the name of the test.
const TEST_VARIABLE: &str = "LOADED_TEST";

/// A machine and a driver that shows it, initialised.
pub(crate) struct Loaded {
    pub(crate) machine: Machine,
    pub(crate) nvml: NvmlLib,
}

/// In the test's own process: the machine, made of these GPUs, and its driver. Else runs that process,
/// fails if it fails, and returns nothing.
pub(crate) fn alone(test: &str, gpus: &str) -> Option<Loaded> {
    if std::env::var(TEST_VARIABLE).is_ok_and(|name| name == test) {
        return Some(Loaded::open(std::env::var_os(MACHINE_VARIABLE).unwrap().as_ref()));
    }
    let folder = std::env::temp_dir().join(format!("loaded-{}-{test}", std::process::id()));
    Machine::create(&folder, &GpuSpec::list(gpus).unwrap()).unwrap();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MACHINE_VARIABLE, &folder)
        .env(TEST_VARIABLE, test)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    // A test that does not exist would pass too.
    let ran = String::from_utf8_lossy(&done.stdout).contains("1 passed");
    assert!(ran, "the name given to `alone` is not that of the test");
    eprintln!("{said}");
    std::fs::remove_dir_all(folder).unwrap();
    None
}

/// The fake driver that lies in the target folder.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("libhotpot_fake_nvml.so");
    assert!(path.exists(), "{}: build it first: cargo build -p fake-nvml", path.display());
    path
}

impl Loaded {
    /// The machine in a folder, which the environment names too, and its driver.
    pub(crate) fn open(folder: &Path) -> Self {
        let machine = Machine::open(folder).unwrap();
        // SAFETY: the fake driver's initialisers do nothing.
        let nvml = unsafe { NvmlLib::new(library()) }.unwrap();
        // SAFETY: takes nothing.
        assert_eq!(unsafe { nvml.nvmlInit_v2() }, 0);
        Self { machine, nvml }
    }

    /// Changes the machine and waits until the driver knows.
    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        let edited = self.machine.edit(|state| {
            change(state);
            Ok(())
        });
        edited.unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }

    /// The handle of a GPU.
    pub(crate) fn gpu(&self, index: u32) -> nvmlDevice_t {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is good for the call.
        assert_eq!(unsafe { self.nvml.nvmlDeviceGetHandleByIndex_v2(index, &raw mut handle) }, 0);
        handle
    }
}
