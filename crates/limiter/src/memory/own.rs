//! What NVML says that this process holds of a GPU, and what of that is in nobody's books: code that is
//! loaded when it is first used, the heap of kernels, local memory. All that is booked as one figure.
//!
//! NVML names processes by their numbers as the machine has them, and newer drivers by those of the
//! caller's pid namespace. A process of such a namespace believes it only if its number appears when it
//! makes its first context: else the number may be another one's.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use caps::Kind;

use crate::abi::{Code, Handle, SUCCESS};
use crate::tenant::{Gpu, Tenant};
use crate::{compute, driver};

/// It is not known whether NVML shows this process.
const UNKNOWN: u8 = 0;
/// It shows it under its own number.
const SHOWN: u8 = 1;
/// It does not, or cannot be asked.
const HIDDEN: u8 = 2;

/// How often the books are compared while memory is taken, in ms.
const EVERY_MS: u64 = 1000;
/// Figures of NVML may be some ms old, so it is not asked more often, in ms; the clock is coarse too.
const OLD_MS: u64 = 25;
/// How often a figure that must change is asked for again.
const LOOKS: u32 = 10;

/// What is not this process's alone counts as no more, in bytes.
const SEEN_MOST: u64 = 64 << 20;

/// Number of the first pid namespace's file (`PROC_PID_INIT_INO`, `linux/proc_ns.h`).
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

/// What is known of one GPU's figures.
pub(crate) struct Own {
    state: AtomicU8,
    /// NVML's handle, as a number; 0 while not asked for.
    device: AtomicU64,
    /// When NVML was asked last, in ms of the coarse clock; 0 for never.
    asked_ms: AtomicU64,
    /// When it is to be asked next.
    due_ms: AtomicU64,
    /// What is booked as held beyond the books.
    beyond: Mutex<u64>,
}

impl Own {
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU8::new(UNKNOWN),
            device: AtomicU64::new(0),
            asked_ms: AtomicU64::new(0),
            due_ms: AtomicU64::new(u64::MAX),
            beyond: Mutex::new(0),
        }
    }

    /// NVML's handle of the GPU.
    pub(crate) fn handle(&self, gpu: &Gpu) -> Option<Handle> {
        let known = self.device.load(Ordering::Relaxed);
        if known != 0 {
            return Some(std::ptr::with_exposed_provenance_mut(known as usize));
        }
        let device = driver::nvml_device(gpu.uuid())?;
        self.device.store(device.expose_provenance() as u64, Ordering::Relaxed);
        Some(device)
    }

    /// What NVML says now, in bytes: 0 if this process is not in its list; `None` if it cannot be asked.
    fn figure(&self, gpu: &Gpu) -> Option<u64> {
        let device = self.handle(gpu)?;
        let now = now_ms();
        self.asked_ms.store(now, Ordering::Relaxed);
        self.due_ms.store(now.saturating_add(EVERY_MS), Ordering::Relaxed);
        driver::used_by_process(device, std::process::id())
    }

    fn ask_soon(&self) {
        let asked = self.asked_ms.load(Ordering::Relaxed);
        self.due_ms.store(asked.saturating_add(OLD_MS), Ordering::Relaxed);
    }

    fn is_shown(&self) -> bool {
        self.state.load(Ordering::Relaxed) == SHOWN
    }
}

/// Coarse: some ms, for next to nothing.
fn now_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    // From 1, for 0 means never.
    seconds.saturating_mul(1000).saturating_add(nanoseconds.wrapping_div(1_000_000)).max(1)
}

fn in_first_namespace() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|about| about.ino() == FIRST_NAMESPACE)
}

/// A context is about to be made; to be asked afterwards what it has taken.
pub(crate) struct Making {
    /// What NVML said before, and what was booked then without contexts.
    before: Option<(u64, u64)>,
}

impl Making {
    pub(crate) fn begin(gpu: &Gpu) -> Self {
        let own = &gpu.own_use;
        if own.state.load(Ordering::Relaxed) == HIDDEN {
            return Self { before: None };
        }
        // Twice within its period NVML would say the same, whatever has become of it.
        let asked = own.asked_ms.load(Ordering::Relaxed);
        if asked != 0 && now_ms().saturating_sub(asked) < OLD_MS {
            std::thread::sleep(Duration::from_millis(OLD_MS));
        }
        let before = own.figure(gpu);
        let known = match before {
            None => HIDDEN,
            // There before its first context: one from before this library, or another process.
            Some(bytes) if bytes > 0 && !own.is_shown() && !in_first_namespace() => HIDDEN,
            Some(_) => own.state.load(Ordering::Relaxed),
        };
        own.state.store(known, Ordering::Relaxed);
        Self { before: before.filter(|_| known != HIDDEN).map(|bytes| (bytes, booked(gpu))) }
    }

    /// What the context has taken, in bytes; `None` if NVML does not show it.
    pub(crate) fn taken(self, gpu: &Gpu) -> Option<u64> {
        let (before, booked_before) = self.before?;
        for look in 0..LOOKS {
            if look > 0 {
                std::thread::sleep(Duration::from_millis(3));
            }
            let Some(now) = gpu.own_use.figure(gpu) else { break };
            // There is no context that takes none: the same figure is one of before.
            if now > before {
                gpu.own_use.state.store(SHOWN, Ordering::Relaxed);
                let others = booked(gpu).saturating_sub(booked_before);
                return Some(now.saturating_sub(before).saturating_sub(others))
                    .filter(|it| *it > 0);
            }
        }
        if !gpu.own_use.is_shown() {
            gpu.own_use.state.store(HIDDEN, Ordering::Relaxed);
        }
        None
    }
}

/// What this process has in the books beside contexts and what is beyond them, in bytes.
fn booked(gpu: &Gpu) -> u64 {
    let (contexts, modules) = (gpu.own(Kind::Context), gpu.own(Kind::Module));
    gpu.explained().saturating_sub(contexts).saturating_sub(modules)
}

/// Whether NVML shows this process, so that what code takes is found by [`look`].
pub(crate) fn is_known(gpu: &Gpu) -> bool {
    gpu.own_use.is_shown()
}

/// Something has been done that may take memory beside the books, or give it back: they are compared at
/// once or, if NVML has just been asked, at the next allocation.
///
/// * `seen` — how much the GPU's free memory has shrunk in that time, in bytes: counted until then.
pub(crate) fn changed(gpu: &Gpu, seen: u64) {
    let own = &gpu.own_use;
    if !own.is_shown() || look_again(gpu) {
        return;
    }
    own.ask_soon();
    if let Ok(mut beyond) = own.beyond.try_lock() {
        let now = beyond.saturating_add(seen);
        gpu.settle(Kind::Module, *beyond, now);
        *beyond = now;
    }
}

/// Does something that may take memory beside the books, on the GPU of the thread's context.
pub(crate) fn beside(tenant: &Tenant, call: impl Fn() -> Code) -> Code {
    let gpu = driver::device().and_then(|device| tenant.gpu(device));
    let Some(gpu) = gpu.filter(|gpu| is_known(gpu) && !compute::any_capturing()) else {
        return call();
    };
    let (code, seen) = shrunk(gpu, call);
    if code == SUCCESS {
        changed(gpu, seen);
    }
    code
}

/// Does something, and sees how much the GPU's free memory has shrunk beyond the tenant's books meanwhile,
/// in bytes. Others may have taken that, so it is no more than [`SEEN_MOST`].
pub(crate) fn shrunk(gpu: &Gpu, call: impl Fn() -> Code) -> (Code, u64) {
    let shown = || Some((driver::free_memory()?, gpu.ledger().0.total()));
    let before = shown();
    let code = call();
    let seen = before.zip(shown()).map_or(0, |((free, held), (free_now, held_now))| {
        free.saturating_sub(free_now).saturating_sub(held_now.saturating_sub(held))
    });
    (code, seen.min(SEEN_MOST))
}

/// A context is gone, and with it what was beyond the books.
pub(crate) fn context_gone(gpu: &Gpu) {
    let own = &gpu.own_use;
    if own.is_shown() {
        own.ask_soon();
        if let Ok(mut beyond) = own.beyond.try_lock() {
            gpu.settle(Kind::Module, *beyond, 0);
            *beyond = 0;
        }
    }
}

/// Compares the books if it is time. For the way of every allocation: a look at the clock.
#[inline]
pub(crate) fn look_if_due(gpu: &Gpu) {
    if gpu.own_use.is_shown() && now_ms() >= gpu.own_use.due_ms.load(Ordering::Relaxed) {
        look(gpu);
    }
}

/// Compares the books unless NVML has just been asked; whether it was asked.
pub(crate) fn look_again(gpu: &Gpu) -> bool {
    let asked = gpu.own_use.asked_ms.load(Ordering::Relaxed);
    let may = gpu.own_use.is_shown() && now_ms().saturating_sub(asked) >= OLD_MS;
    may && look(gpu)
}

/// Books as held what NVML shows beyond the books; whether that is known. If they change meanwhile nothing
/// can be said, and it is tried again soon.
#[cold]
fn look(gpu: &Gpu) -> bool {
    if compute::any_capturing() {
        return false;
    }
    let Ok(mut beyond) = gpu.own_use.beyond.try_lock() else { return false };
    let (changes, booked) = (gpu.changes(), gpu.explained().saturating_sub(*beyond));
    let figure = gpu.own_use.figure(gpu).filter(|figure| *figure > 0);
    let Some(figure) = figure.filter(|_| gpu.changes() == changes) else {
        gpu.own_use.ask_soon();
        return false;
    };
    let now = figure.saturating_sub(booked);
    gpu.settle(Kind::Module, *beyond, now);
    *beyond = now;
    true
}
