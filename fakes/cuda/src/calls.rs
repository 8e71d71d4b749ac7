//! What all functions share: counting, planned faults, the state of the process, and the macro that
//! defines exported functions together with their entries for `cuGetProcAddress`.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use fake_gpu::Gpus;
use fake_machine::{Machine, State};

use crate::driver::Driver;
use crate::result::{CALL_REQUIRES_NEWER_DRIVER, Error, NOT_INITIALIZED, NOT_PERMITTED};
use crate::result::{Outcome, UNKNOWN, of_code};

/// What one process has of the driver, from `cuInit` to its end.
pub(crate) struct Process {
    pub(crate) machine: Machine,
    pub(crate) gpus: Gpus,
    pub(crate) driver: Mutex<Driver>,
    /// Wakes the thread that runs what streams have put off.
    pub(crate) wake: Condvar,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// This is a child that was forked from a process with a driver: nothing works in it.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Calls of all functions.
static TOTAL: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The thread is inside a host function of a stream, where no calls are allowed.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// How often a function has been called.
pub(crate) struct Counter {
    name: &'static str,
    calls: AtomicU64,
}

impl Counter {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, calls: AtomicU64::new(0) }
    }

    /// Counts a call.
    pub(crate) fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        TOTAL.fetch_add(1, Ordering::Relaxed);
    }
}

/// A call under way.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) process: &'static Process,
    /// The machine as it was when the call began.
    pub(crate) state: Arc<State>,
    /// Stream 0 is the thread's own: the function was called by its `_ptsz` or `_ptds` name.
    pub(crate) per_thread: bool,
}

impl Call {
    /// The tables of the process. Never kept while waiting.
    pub(crate) fn lock(&self) -> MutexGuard<'static, Driver> {
        self.process.lock()
    }
}

impl Process {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process's driver, if it has been initialised and this is not a forked child of it.
pub(crate) fn process() -> Result<&'static Process, Error> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(NOT_INITIALIZED);
    }
    PROCESS.get().ok_or(NOT_INITIALIZED)
}

/// Keeps the driver of the process. Later children of a fork are told that they have none.
pub(crate) fn set_process(process: Process) {
    extern "C" fn forked() {
        FORKED.store(true, Ordering::Relaxed);
    }
    if PROCESS.set(process).is_ok() {
        // SAFETY: the handler lives as long as the library, which is never unloaded by clients, and
        // only writes an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}

/// Whether this is a child that was forked from a process with a driver.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Runs a client's function in which calls are refused.
pub(crate) fn in_host_function(run: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    run();
    IN_HOST_FUNCTION.set(false);
}

/// Carries a function out that needs the driver.
pub(crate) fn call(
    counter: &Counter,
    per_thread: bool,
    body: impl FnOnce(&Call) -> Outcome,
) -> u32 {
    counter.count();
    bare(counter, per_thread, |()| {
        let process = process()?;
        if IN_HOST_FUNCTION.get() {
            return Err(NOT_PERMITTED);
        }
        let state = process.machine.read();
        planned(&process.machine, &state, counter)?;
        body(&Call { process, state, per_thread })
    })
}

/// Carries a function out that works without initialisation; such are not counted.
pub(crate) fn bare(_counter: &Counter, _per_thread: bool, body: impl FnOnce(()) -> Outcome) -> u32 {
    // Whatever goes wrong in here must not unwind into C.
    match catch_unwind(AssertUnwindSafe(|| body(()))) {
        Ok(Ok(())) => 0,
        Ok(Err(Error(number))) => number,
        Err(_) => UNKNOWN.0,
    }
}

/// Lets the planned fault of this call happen, if there is one. A fault for `NAME=NUMBER` fails that
/// function with any `CUresult`, whatever code stands in its effect.
pub(crate) fn planned(machine: &Machine, state: &State, counter: &Counter) -> Outcome {
    if state.faults.is_empty() && state.missing.is_empty() {
        return Ok(());
    }
    if state.missing.iter().any(|missing| missing == counter.name) {
        return Err(CALL_REQUIRES_NEWER_DRIVER);
    }
    let calls = counter.calls.load(Ordering::Relaxed);
    for fault in &state.faults {
        let number = fault.call.strip_prefix(counter.name).and_then(|rest| rest.strip_prefix('='));
        let number = number.and_then(|text| text.parse().ok());
        if let Some(number) = number.filter(|_| fault.nth == 0 || fault.nth == calls) {
            return Err(Error(number));
        }
    }
    // SAFETY: plain numbers; the signal ends this process.
    let kill = || unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
    };
    let effect = state.fault(counter.name, calls, TOTAL.load(Ordering::Relaxed));
    effect.map_or(Ok(()), |effect| machine.happen(effect, kill).map_err(of_code))
}

/// A function as `cuGetProcAddress` knows it.
pub(crate) struct Entry {
    /// The name without version and stream suffix.
    pub(crate) base: &'static str,
    /// The exported symbol.
    pub(crate) symbol: &'static str,
    /// The CUDA version from which on `base` means this function; thousands are the major number.
    pub(crate) since: i32,
    /// It takes stream 0 as the thread's own.
    pub(crate) per_thread: bool,
    pub(crate) address: Address,
    /// The same function at an address that is not exported.
    pub(crate) thunk: Address,
}

/// Where a function is.
pub(crate) struct Address(pub(crate) *const ());

// SAFETY: the address of a function is the same for all threads and never written.
unsafe impl Sync for Address {}

/// Defines exported functions and the table of their entries. For each: the name without suffixes, the
/// CUDA version since which that name means this function, whether it needs the driver (`call`) or
/// works without initialisation (`bare`), in brackets the symbol and version of its twin that takes
/// stream 0 as the thread's own, and the symbol. The body is a closure over the [`Call`].
macro_rules! exports {
    ($table:ident; $(
        $base:literal $since:literal $how:ident $([$twin:ident $later:literal])?
        fn $name:ident $args:tt |$call:tt| $body:block
    )*) => {
        $(
            $crate::calls::exports! { @one $how $name $name false $args $call $body }
            $($crate::calls::exports! { @one $how $name $twin true $args $call $body })?
        )*
        /// The functions of this file.
        pub(crate) static $table: &[$crate::calls::Entry] = &[$(
            $crate::calls::Entry {
                base: $base,
                symbol: stringify!($name),
                since: $since,
                per_thread: false,
                address: $crate::calls::Address($name as *const ()),
                thunk: $crate::calls::exports! { @thunk $name $args },
            },
            $($crate::calls::Entry {
                base: $base,
                symbol: stringify!($twin),
                since: $later,
                per_thread: true,
                address: $crate::calls::Address($twin as *const ()),
                thunk: $crate::calls::exports! { @thunk $twin $args },
            },)?
        )*];
    };
    (@thunk $symbol:ident ($($arg:ident: $kind:ty),* $(,)?)) => {{
        extern "C" fn thunk($($arg: $kind),*) -> u32 {
            $symbol($($arg),*)
        }
        $crate::calls::Address(thunk as *const ())
    }};
    (@one $how:ident $name:ident $symbol:ident $per_thread:literal
        ($($arg:ident: $kind:ty),* $(,)?) $call:tt $body:block
    ) => {
        #[unsafe(no_mangle)]
        extern "C" fn $symbol($($arg: $kind),*) -> u32 {
            static COUNTER: $crate::calls::Counter = $crate::calls::Counter::new(stringify!($name));
            $crate::calls::$how(&COUNTER, $per_thread, |$call| $body)
        }
    };
}

pub(crate) use exports;
