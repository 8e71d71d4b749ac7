//! The watcher: one thread of the process that sees what the GPUs have done, pays, and hands turns on.
//! While there is nothing to see it sleeps until the next launch.
//!
//! The driver may hold it up, for instance while another thread loads code. Then a second thread shows
//! that the process lives and looks after its turns; it never calls the driver.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use caps::turns::BEAT_US;

use super::pacer::{self, Pacer};
use super::{asks, capture, clock, door};

/// After the last work the thread stays awake for so long, in µs: waking it costs the client some µs.
const AWAKE_US: u64 = 50_000;
/// Stack of a thread: what the driver needs, and the thread-locals of all libraries, lie on it too.
const STACK_BYTES: usize = 1 << 20;
/// How soon after a thread could not be started it is tried again, in µs.
const RETRY_US: u64 = 1_000_000;
/// How often the second thread looks whether the first is held up, in µs: several times within the time after
/// which a silent holder loses its turn ([`caps::turns::OVERDUE_MS`]).
const HELD_UP_LOOK_US: u64 = 15_000;
/// A call of the driver that lasts longer holds the first thread up, in µs.
const HELD_UP_US: u64 = 10_000;
/// How often recordings are reviewed, in µs.
const REVIEW_US: u64 = 1_000_000;

/// Whether the thread has been started.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Before this time it is not tried again.
static RETRY_AT_US: AtomicU64 = AtomicU64::new(0);
/// When a launching thread looks next, as long as there is no watcher.
static LOOK_AT_US: AtomicU64 = AtomicU64::new(0);
/// 1 while the thread sleeps until it is roused.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
/// 1 while the second thread is needed.
static AWAKE: AtomicU32 = AtomicU32::new(0);
/// Since when the thread is in the driver; 0 while it is not.
static ASKING_SINCE_US: AtomicU64 = AtomicU64::new(0);

/// The forked process has no such threads.
pub(crate) fn forked() {
    STARTED.store(false, Ordering::SeqCst);
    RETRY_AT_US.store(0, Ordering::SeqCst);
    ASLEEP.store(0, Ordering::SeqCst);
    AWAKE.store(0, Ordering::SeqCst);
    ASKING_SINCE_US.store(0, Ordering::SeqCst);
}

/// There is work: the watcher must be awake.
#[inline]
pub(crate) fn rouse() {
    if ASLEEP.load(Ordering::SeqCst) != 0 || !STARTED.load(Ordering::Relaxed) {
        rouse_slowly();
    }
}

#[cold]
fn rouse_slowly() {
    if !STARTED.load(Ordering::SeqCst) && !started() {
        // Nobody else looks.
        if is_due(&LOOK_AT_US, BEAT_US) {
            look();
        }
        return;
    }
    if ASLEEP.swap(0, Ordering::SeqCst) != 0 {
        clock::wake_own(&ASLEEP);
    }
}

/// Whether a time has come; if so, this thread's alone, and the next is so much later.
fn is_due(at: &AtomicU64, again_us: u64) -> bool {
    let (now_us, due_us) = (clock::now_us(), at.load(Ordering::Relaxed));
    let next_us = now_us.saturating_add(again_us);
    let (order, failed) = (Ordering::SeqCst, Ordering::Relaxed);
    due_us <= now_us && at.compare_exchange(due_us, next_us, order, failed).is_ok()
}

/// The process ends by `exit`: the driver is left before it takes itself down, and the turn is given on.
extern "C" fn ends() {
    std::mem::forget(door::shut());
    pacer::each(Pacer::leave);
}

/// Starts the thread, with all signals blocked: they are for the client's threads. Whether it runs.
fn started() -> bool {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !is_due(&RETRY_AT_US, RETRY_US) {
        return false;
    }
    if !TOLD.swap(true, Ordering::Relaxed) {
        // SAFETY: the function stays, for this library is never unloaded.
        unsafe { libc::atexit(ends) };
    }
    // SAFETY: sets of ours.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let runs = spawned(watch);
    STARTED.store(runs, Ordering::SeqCst);
    // SAFETY: what was set before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    runs
}

fn spawned(what: fn()) -> bool {
    let builder = std::thread::Builder::new().name("hotpot".into()).stack_size(STACK_BYTES);
    let error = builder.spawn(what).err();
    if let Some(error) = &error {
        crate::log::line(format_args!("a watcher cannot be started: {error}"));
    }
    error.is_none()
}

fn watch() {
    asks::relax();
    let mut idle_since = None;
    // It inherits the blocked signals.
    let mut beats = spawned(beat);
    let mut retry_at_us = 0;
    AWAKE.store(1, Ordering::SeqCst);
    clock::wake_own(&AWAKE);
    loop {
        let now = clock::now_us();
        if !beats && now >= retry_at_us {
            beats = spawned(beat);
            retry_at_us = now.saturating_add(RETRY_US);
        }
        match look() {
            Some(next) => {
                idle_since = None;
                clock::sleep_us(next.saturating_sub(now).max(1));
            }
            None if now.saturating_sub(*idle_since.get_or_insert(now)) < AWAKE_US => {
                clock::sleep_us(BEAT_US);
            }
            None => {
                sleep();
                idle_since = None;
            }
        }
    }
}

/// Sleeps until a launch.
fn sleep() {
    ASLEEP.store(1, Ordering::SeqCst);
    // A launch that came before is seen by this look, one that comes later wakes us.
    if look().is_none() {
        AWAKE.store(0, Ordering::SeqCst);
        clock::wait_own(&ASLEEP, 1, None);
        AWAKE.store(1, Ordering::SeqCst);
        clock::wake_own(&AWAKE);
    }
    ASLEEP.store(0, Ordering::SeqCst);
}

/// What the second thread does.
fn beat() {
    loop {
        if AWAKE.load(Ordering::SeqCst) == 0 {
            clock::wait_own(&AWAKE, 0, None);
            continue;
        }
        clock::sleep_us(HELD_UP_LOOK_US);
        let since_us = ASKING_SINCE_US.load(Ordering::SeqCst);
        if since_us != 0 && clock::now_us().saturating_sub(since_us) > HELD_UP_US {
            pacer::each(|pacer| {
                pacer.tick(&mut pacer.lock(), clock::now_us());
            });
        }
    }
}

/// Looks after all GPUs; when to look again.
fn look() -> Option<u64> {
    static REVIEW_AT_US: AtomicU64 = AtomicU64::new(0);
    if capture::any() && is_due(&REVIEW_AT_US, REVIEW_US) {
        asking(capture::review);
    }
    let mut next: Option<u64> = None;
    pacer::each(|pacer| {
        if let Some(again) = look_at(pacer) {
            next = Some(next.map_or(again, |next| next.min(again)));
        }
    });
    next
}

/// Does what may be held up in the driver.
fn asking<T>(what: impl FnOnce() -> T) -> T {
    ASKING_SINCE_US.store(clock::now_us(), Ordering::SeqCst);
    let result = what();
    ASKING_SINCE_US.store(0, Ordering::SeqCst);
    result
}

fn look_at(pacer: &Pacer) -> Option<u64> {
    asking(|| door::asking(|| pacer.look_at_all()));
    let tick = pacer.tick(&mut pacer.lock(), clock::now_us());
    if let Some(stream) = tick.mark {
        asking(|| door::asking(|| pacer.put_by_number(stream)));
    }
    tick.again_us
}
