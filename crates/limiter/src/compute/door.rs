//! The door to the driver. Threads of ours that ask it something on behalf of this folder go in here, and
//! whoever begins a recording, or ends what may be asked about, closes it first and waits until all are out.
//!
//! The driver may call back into the process from inside a call of ours (tools see each call that way), and
//! what is called then may be hooked. Such calls pass straight: [`inside`].

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{capture, clock};

/// Threads of ours in the driver.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Reasons, beside recordings, for which nobody goes in.
static SHUT: AtomicU32 = AtomicU32::new(0);

/// Nobody waits longer for threads of ours that are in the driver, in µs: one may be held up there behind a
/// thread that waits for us.
const PATIENCE_US: u64 = 1_000_000;
/// So often it is looked anew at once; then after a pause, in µs.
const SPINS: u32 = 100;
const PAUSE_US: u64 = 20;

thread_local! {
    /// The thread is inside.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a call of ours of the driver.
#[inline]
pub(crate) fn inside() -> bool {
    INSIDE.load(Ordering::Relaxed) != 0 && HERE.get()
}

/// Asks the driver something. `None`: the door is closed, so nothing was asked. No lock of ours is held
/// meanwhile, as the driver may keep the thread for as long as another one loads code.
pub(crate) fn asking<T>(what: impl FnOnce() -> T) -> Option<T> {
    let is_open = || !capture::any() && SHUT.load(Ordering::SeqCst) == 0;
    enter(is_open, what)
}

/// Asks about a recording, which may be done while it is on.
pub(crate) fn reviewing<T>(what: impl FnOnce() -> T) -> Option<T> {
    enter(|| SHUT.load(Ordering::SeqCst) == 0, what)
}

fn enter<T>(may: impl FnOnce() -> bool, what: impl FnOnce() -> T) -> Option<T> {
    if inside() {
        return None;
    }
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let result = if may() {
        HERE.set(true);
        let result = what();
        HERE.set(false);
        Some(result)
    } else {
        None
    };
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    result
}

/// The door is closed as long as this lives.
pub(crate) struct Shut(());

/// Closes the door, and waits until nobody is inside.
pub(crate) fn shut() -> Shut {
    SHUT.fetch_add(1, Ordering::SeqCst);
    wait_outside();
    Shut(())
}

impl Shut {
    /// Who has closed the door may go in, unless a stream is recorded.
    pub(crate) fn asking<T>(&self, what: impl FnOnce() -> T) -> Option<T> {
        enter(|| !capture::any(), what)
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        SHUT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until no thread of ours is in the driver.
pub(crate) fn wait_outside() {
    // What is called from inside does not wait for itself.
    if INSIDE.load(Ordering::SeqCst) == 0 || inside() {
        return;
    }
    let until = clock::now_us().saturating_add(PATIENCE_US);
    let mut looks = 0u32;
    while INSIDE.load(Ordering::SeqCst) != 0 && clock::now_us() < until {
        if looks < SPINS {
            std::thread::yield_now();
        } else {
            clock::sleep_us(PAUSE_US);
        }
        looks = looks.saturating_add(1);
    }
}

/// The forked process has neither our threads nor a driver that works.
pub(crate) fn forked() {
    INSIDE.store(0, Ordering::SeqCst);
    SHUT.store(0, Ordering::SeqCst);
    HERE.set(false);
}
