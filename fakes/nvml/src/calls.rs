//! What all functions share: counting, faults, the machine, return codes.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fake_machine::{Code, EditError, Effect, MACHINE_VARIABLE, Machine, State};
use nvml_wrapper_sys::bindings::nvmlReturn_t;

/// What one process has of the driver.
#[derive(Default)]
struct Driver {
    /// Initialisations less shutdowns.
    users: u32,
    machine: Option<Arc<Machine>>,
    /// Calls by function, and all of them.
    calls: BTreeMap<&'static str, u64>,
    total: u64,
}

static DRIVER: Mutex<Driver> =
    Mutex::new(Driver { users: 0, machine: None, calls: BTreeMap::new(), total: 0 });

/// A call under way: the state as it was when it began.
pub(crate) struct Call {
    machine: Arc<Machine>,
    pub(crate) state: Arc<State>,
}

impl Call {
    /// Changes the machine.
    pub(crate) fn edit<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, Code>,
    ) -> Result<T, Code> {
        self.machine.edit(change).map_err(|error| match error {
            EditError::Refused(code) => code,
            EditError::Store(_) => Code::Unknown,
        })
    }

    /// The state as it is now; for calls that wait.
    pub(crate) fn look_again(&self) -> Arc<State> {
        self.machine.read()
    }

    /// Changes the machine, which needs privilege.
    pub(crate) fn privileged<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, Code>,
    ) -> Result<T, Code> {
        self.needs_privilege()?;
        self.edit(change)
    }

    /// Refuses an unprivileged caller.
    pub(crate) fn needs_privilege(&self) -> Result<(), Code> {
        if self.state.unprivileged { Err(Code::NoPermission) } else { Ok(()) }
    }
}

/// Carries a function out.
pub(crate) fn call(
    name: &'static str,
    body: impl FnOnce(&Call) -> Result<(), Code>,
) -> nvmlReturn_t {
    answer(|| {
        let (number, calls) = count(name);
        kill_at("HOTPOT_FAKE_KILL_BEFORE", number);
        let machine = {
            let driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
            driver.machine.clone().ok_or(Code::Uninitialized)?
        };
        let state = machine.read();
        let done = planned(&state, name, calls, number)
            .and_then(|()| body(&Call { machine: Arc::clone(&machine), state }));
        kill_at("HOTPOT_FAKE_KILL_AFTER", number);
        done
    })
}

/// Initialises the library.
pub(crate) fn init(name: &'static str) -> nvmlReturn_t {
    answer(|| {
        let (number, calls) = count(name);
        kill_at("HOTPOT_FAKE_KILL_BEFORE", number);
        let folder = std::env::var_os(MACHINE_VARIABLE).ok_or(Code::DriverNotLoaded)?;
        let machine = Machine::open(folder).map_err(|_| Code::DriverNotLoaded)?;
        let state = machine.read();
        planned(&state, name, calls, number)?;
        if state.unloaded {
            return Err(Code::DriverNotLoaded);
        }
        let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
        driver.users += 1;
        driver.machine.get_or_insert(Arc::new(machine));
        drop(driver);
        kill_at("HOTPOT_FAKE_KILL_AFTER", number);
        Ok(())
    })
}

/// Undoes one initialisation.
pub(crate) fn shut_down(name: &'static str) -> nvmlReturn_t {
    call(name, |_| {
        let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
        driver.users = driver.users.saturating_sub(1);
        if driver.users == 0 {
            driver.machine = None;
        }
        Ok(())
    })
}

/// Microseconds since 1970, as NVML counts its samples.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A return code; whatever goes wrong in here must not unwind into C.
fn answer(body: impl FnOnce() -> Result<(), Code>) -> nvmlReturn_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code as nvmlReturn_t,
        Err(_) => Code::Unknown as nvmlReturn_t,
    }
}

/// The number of this call among all, and among those of its function.
fn count(name: &'static str) -> (u64, u64) {
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    driver.total += 1;
    let calls = driver.calls.entry(name).or_default();
    *calls += 1;
    let calls = *calls;
    (driver.total, calls)
}

/// Lets the planned fault of this call happen, if there is one.
fn planned(state: &State, name: &str, calls: u64, total: u64) -> Result<(), Code> {
    if state.missing.iter().any(|missing| missing == name) {
        return Err(Code::FunctionNotFound);
    }
    match state.fault(name, calls, total) {
        None => Ok(()),
        Some(Effect::Fail(code)) => Err(code),
        Some(Effect::SleepMs(ms)) => {
            std::thread::sleep(Duration::from_millis(ms));
            Ok(())
        }
        Some(Effect::Kill) => {
            kill_self();
            Err(Code::Unknown)
        }
    }
}

fn kill_at(variable: &str, number: u64) {
    if std::env::var(variable).is_ok_and(|text| text.parse() == Ok(number)) {
        kill_self();
    }
}

fn kill_self() {
    unsafe extern "C" {
        fn kill(pid: i32, signal: i32) -> i32;
    }
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    // SAFETY: plain numbers; 9 is SIGKILL. A pid of 0 would mean the group, and cannot be.
    unsafe { kill(pid, 9) };
}

/// Defines exported functions; the body is a closure over the [`Call`].
macro_rules! nvml {
    ($(fn $name:ident($($arg:ident: $kind:ty),* $(,)?) |$call:pat_param| $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $kind),*) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
            $crate::calls::call(stringify!($name), |$call| $body)
        }
    )*};
}

/// Defines exported functions that are other functions under an older or newer name.
macro_rules! also {
    ($(fn $name:ident($($arg:ident: $kind:ty),* $(,)?) is $other:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $kind),*) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
            $other($($arg),*)
        }
    )*};
}

pub(crate) use {also, nvml};
