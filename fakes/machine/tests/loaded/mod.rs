//! The fake driver, loaded as programs load it.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a part of tests")]

mod alone;

use std::path::{Path, PathBuf};
use std::time::Duration;

use fake_machine::{Machine, State};
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t};

/// A machine and a driver that shows it, initialised.
pub(crate) struct Loaded {
    pub(crate) machine: Machine,
    pub(crate) nvml: NvmlLib,
}

/// In the test's own process: the machine, made of these GPUs, and its driver. Else runs that process,
/// fails if it fails, and returns nothing.
pub(crate) fn alone(test: &str, gpus: &str) -> Option<Loaded> {
    alone::alone(test, gpus, &[], |_| ()).map(|machine| Loaded::open(machine.folder()))
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
