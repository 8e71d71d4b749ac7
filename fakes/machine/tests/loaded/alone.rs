//! A test in a process of its own, as a driver is told its machine by the environment: the test starts
//! itself again.

use std::process::Command;

use fake_machine::{GpuSpec, MACHINE_VARIABLE, Machine, State};

/// Set in the process of a test; the name of the test.
const TEST_VARIABLE: &str = "LOADED_TEST";

/// In the test's own process: the machine, made of these GPUs and changed. Else runs that process with these
/// variables, fails if it fails, and returns nothing.
pub(crate) fn alone(
    test: &str,
    gpus: &str,
    variables: &[(&str, &str)],
    change: impl FnOnce(&mut State),
) -> Option<Machine> {
    if std::env::var(TEST_VARIABLE).is_ok_and(|name| name == test) {
        return Some(Machine::open(std::env::var_os(MACHINE_VARIABLE).unwrap()).unwrap());
    }
    let folder = std::env::temp_dir().join(format!("loaded-{}-{test}", std::process::id()));
    let machine = Machine::create(&folder, &GpuSpec::list(gpus).unwrap()).unwrap();
    let edited = machine.edit(|state| {
        change(state);
        Ok(())
    });
    edited.unwrap();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MACHINE_VARIABLE, &folder)
        .env(TEST_VARIABLE, test)
        .env_remove("CUDA_VISIBLE_DEVICES")
        .envs(variables.iter().copied())
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
