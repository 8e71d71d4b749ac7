//! What all functions share: counting, faults, the machine, return codes.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use fake_machine::{Code, EditError, Gpu, MACHINE_VARIABLE, Machine, State};
use nvml_wrapper_sys::bindings::nvmlReturn_t;

use crate::holders::{self, Holders};

/// What one process has of the driver.
#[derive(Default)]
struct Driver {
    /// Initialisations less shutdowns.
    users: u32,
    machine: Option<Arc<Machine>>,
    /// GPUs that were seen lost since the first initialisation: they stay so until the last shutdown,
    /// whatever becomes of them.
    lost: BTreeSet<usize>,
    holders: Holders,
    /// Calls by function, and all of them.
    calls: BTreeMap<&'static str, u64>,
    total: u64,
}

static DRIVER: Mutex<Driver> = Mutex::new(Driver {
    users: 0,
    machine: None,
    lost: BTreeSet::new(),
    holders: Holders::NONE,
    calls: BTreeMap::new(),
    total: 0,
});

impl Driver {
    /// The state as this process is shown it.
    fn shown(&mut self, machine: &Machine) -> Arc<State> {
        let state = self.holders.shown(machine, machine.read());
        let indexed = || state.gpus.iter().enumerate();
        self.lost.extend(indexed().filter(|(_, gpu)| gpu.lost).map(|(index, _)| index));
        if indexed().all(|(index, gpu)| gpu.lost || !self.lost.contains(&index)) {
            return state;
        }
        let mut state = State::clone(&state);
        for (index, gpu) in state.gpus.iter_mut().enumerate() {
            gpu.lost |= self.lost.contains(&index);
        }
        Arc::new(state)
    }
}

fn driver() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

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
        let holders = driver().holders.fresh(&self.machine);
        let edited = self.machine.edit(|state| holders::with(state, &holders, change));
        edited.map_err(|error| match error {
            EditError::Refused(code) => code,
            EditError::Store(_) => Code::Unknown,
        })
    }

    /// Waits until all processes go by what has been changed.
    pub(crate) fn wait_until_seen(&self) {
        self.machine.wait_until_seen();
    }

    /// The state as it is now; for calls that wait.
    pub(crate) fn look_again(&self) -> Arc<State> {
        driver().shown(&self.machine)
    }

    /// Changes the machine, which needs privilege.
    pub(crate) fn privileged<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, Code>,
    ) -> Result<T, Code> {
        self.needs_privilege()?;
        self.edit(change)
    }

    /// Refuses an unprivileged caller who asks a GPU in MIG mode for what all its tenants do: "the API
    /// returns aggregate information, only if the caller has appropriate privileges" (nvml.h).
    pub(crate) fn may_see_all(&self, gpu: &Gpu) -> Result<(), Code> {
        if gpu.mig.current { self.needs_privilege() } else { Ok(()) }
    }

    /// Refuses an unprivileged caller.
    pub(crate) fn needs_privilege(&self) -> Result<(), Code> {
        unsafe extern "C" {
            safe fn geteuid() -> u32;
        }
        let refused = self.state.unprivileged || self.state.root_only && geteuid() != 0;
        if refused { Err(Code::NoPermission) } else { Ok(()) }
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
        let machine = driver().machine.clone().ok_or(Code::Uninitialized)?;
        let done = planned(&machine, name, calls, number).and_then(|()| {
            let state = driver().shown(&machine);
            body(&Call { machine: Arc::clone(&machine), state })
        });
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
        planned(&machine, name, calls, number)?;
        if machine.read().unloaded {
            return Err(Code::DriverNotLoaded);
        }
        let mut driver = driver();
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
        let mut driver = driver();
        driver.users = driver.users.saturating_sub(1);
        if driver.users == 0 {
            driver.machine = None;
            driver.lost.clear();
            driver.holders = Holders::NONE;
        }
        Ok(())
    })
}

/// Microseconds since 1970, as NVML counts its samples.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Period of the driver's sampling, in µs.
pub(crate) const PERIOD_US: u32 = 166_666;

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
    let mut driver = driver();
    driver.total += 1;
    let calls = driver.calls.entry(name).or_default();
    *calls += 1;
    let calls = *calls;
    (driver.total, calls)
}

/// Lets the planned fault of this call happen, if there is one.
fn planned(machine: &Machine, name: &str, calls: u64, total: u64) -> Result<(), Code> {
    let state = machine.read();
    if state.missing.iter().any(|missing| missing == name) {
        return Err(Code::FunctionNotFound);
    }
    state.fault(name, calls, total).map_or(Ok(()), |effect| machine.happen(effect, kill_self))
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
