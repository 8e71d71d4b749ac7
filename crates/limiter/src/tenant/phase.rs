//! When a process becomes its tenant's, and that a forked one is a new process.

use std::hint;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::{Now, Tenant, devices};
use crate::abi::Code;

/// The driver has not begun, as far as we know.
const BEFORE: u32 = 0;
/// A thread reads the caps now.
const READING: u32 = 1;
/// There are no caps.
const FREE: u32 = 2;
/// [`REFUSAL`] is the answer to everything.
const REFUSED: u32 = 3;
/// [`TENANT`] is whose process it is.
const CAPPED: u32 = 4;

static PHASE: AtomicU32 = AtomicU32::new(BEFORE);
static TENANT: AtomicPtr<Tenant> = AtomicPtr::new(null_mut());
static REFUSAL: AtomicI32 = AtomicI32::new(0);
/// The thread that reads, by `pthread_self`; 0 for none.
static READER: AtomicUsize = AtomicUsize::new(0);

/// How the process stands to caps now.
#[inline]
pub(crate) fn now() -> Now {
    match PHASE.load(Ordering::Acquire) {
        CAPPED => capped(),
        FREE => Now::Free,
        _ => decided(),
    }
}

/// Whether it is known how the process stands to caps, for as long as it lives.
pub(crate) fn has_begun() -> bool {
    PHASE.load(Ordering::Acquire) > READING
}

fn capped() -> Now {
    // SAFETY: null, or made by `begin` and never freed.
    match unsafe { TENANT.load(Ordering::Acquire).as_ref() } {
        Some(tenant) => Now::Capped(tenant),
        None => Now::Free,
    }
}

/// For a driver that has begun behind our back the caps are read now; one that has not begun has
/// nothing to give.
#[cold]
fn decided() -> Now {
    match PHASE.load(Ordering::Acquire) {
        REFUSED => Now::Refused(REFUSAL.load(Ordering::Relaxed)),
        BEFORE if devices() <= 0 => Now::Free,
        _ => match begin() {
            Ok(()) if PHASE.load(Ordering::Acquire) == CAPPED => capped(),
            Ok(()) => Now::Free,
            Err(code) => Now::Refused(code),
        },
    }
}

/// Reads the caps of a process whose driver has begun, once.
///
/// # Errors
/// There are caps and they cannot be kept: the code for the client.
pub(crate) fn begin() -> Result<(), Code> {
    watch_forks();
    loop {
        match PHASE.compare_exchange(BEFORE, READING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            // The driver has called the program back (a profiler's function), and that the driver again.
            Err(READING) if READER.load(Ordering::Relaxed) == this_thread() => return Ok(()),
            Err(READING) => {
                hint::spin_loop();
                std::thread::yield_now();
            }
            Err(REFUSED) => return Err(REFUSAL.load(Ordering::Relaxed)),
            Err(_) => return Ok(()),
        }
    }
    READER.store(this_thread(), Ordering::Relaxed);
    let (phase, result) = match Tenant::load() {
        Ok(None) => (FREE, Ok(())),
        Ok(Some(tenant)) => {
            TENANT.store(Box::into_raw(Box::new(tenant)), Ordering::Release);
            (CAPPED, Ok(()))
        }
        Err(code) => {
            REFUSAL.store(code, Ordering::Relaxed);
            (REFUSED, Err(code))
        }
    };
    READER.store(0, Ordering::Relaxed);
    PHASE.store(phase, Ordering::Release);
    result
}

fn this_thread() -> usize {
    // SAFETY: asks for nothing but a number.
    unsafe { libc::pthread_self() as usize }
}

/// Registers [`forked`], once.
fn watch_forks() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: the function stays, for this library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}

/// A forked process holds nothing and is in nobody's books. What it has inherited of ours may be locked
/// by threads that it has not, so it is left alone and made anew if the driver lets the process begin.
unsafe extern "C" fn forked() {
    let before = TENANT.swap(null_mut(), Ordering::Relaxed);
    // SAFETY: null, or made by `begin` and never freed.
    if let Some(tenant) = unsafe { before.as_ref() } {
        // Else the locks by which others see that the parent lives would live on with the child.
        tenant.gpus().for_each(|gpu| gpu.ledger().0.forget_in_child());
    }
    READER.store(0, Ordering::Relaxed);
    PHASE.store(BEFORE, Ordering::Release);
    crate::compute::forked();
}
