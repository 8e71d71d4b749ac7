//! The watcher: one thread of the process that sees what the GPUs have done, pays, and hands turns on.
//! While there is nothing to see it sleeps until the next launch.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use caps::turns::BEAT_US;

use super::pacer::{self, Inner, Pacer};
use super::streams::Stream;
use super::{asks, capture, clock};

/// After the last work the thread stays awake for so long, in µs: waking it costs the client some µs.
const AWAKE_US: u64 = 50_000;

/// Whether the thread has been started.
static STARTED: AtomicBool = AtomicBool::new(false);
/// 1 while the thread sleeps until it is roused.
static ASLEEP: AtomicU32 = AtomicU32::new(0);

/// The forked process has no such thread.
pub(crate) fn forked() {
    STARTED.store(false, Ordering::SeqCst);
    ASLEEP.store(0, Ordering::SeqCst);
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
    if !STARTED.swap(true, Ordering::SeqCst) {
        start();
    }
    if ASLEEP.swap(0, Ordering::SeqCst) != 0 {
        clock::wake_own(&ASLEEP);
    }
}

/// The process ends by `exit`: the driver is left before it takes itself down, and the turn is given on.
extern "C" fn ends() {
    capture::close();
    pacer::each(Pacer::leave);
}

/// Starts the thread, with all signals blocked: they are for the client's threads.
fn start() {
    static TOLD: AtomicBool = AtomicBool::new(false);
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
    let builder = std::thread::Builder::new().name("hotpot".into()).stack_size(128 << 10);
    if let Err(error) = builder.spawn(watch) {
        crate::log::line(format_args!("the watcher cannot be started: {error}"));
    }
    // SAFETY: what was set before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
}

fn watch() {
    asks::relax();
    let mut idle_since = None;
    loop {
        let now = clock::now_us();
        match look() {
            Some(next) => {
                idle_since = None;
                clock::sleep_us(next.saturating_sub(now).max(1));
            }
            None if now.saturating_sub(*idle_since.get_or_insert(now)) < AWAKE_US => {
                clock::sleep_us(BEAT_US);
            }
            None => {
                ASLEEP.store(1, Ordering::SeqCst);
                // A launch that came before is seen by this look, one that comes later wakes us.
                if look().is_none() {
                    clock::wait_own(&ASLEEP, 1, None);
                }
                ASLEEP.store(0, Ordering::SeqCst);
                idle_since = None;
            }
        }
    }
}

/// Looks after all GPUs; when to look again.
fn look() -> Option<u64> {
    let mut next: Option<u64> = None;
    pacer::each(|pacer| {
        if let Some(again) = look_at(pacer) {
            next = Some(next.map_or(again, |next| next.min(again)));
        }
    });
    next
}

fn look_at(pacer: &Pacer) -> Option<u64> {
    let mut inner = pacer.lock();
    let Inner { member, marks, .. } = &mut *inner;
    capture::asking(|| marks.look_at_all(member));
    let now_us = clock::now_us();
    let tick = pacer.tick(&mut inner, now_us);
    if let Some(stream) = tick.mark {
        let Inner { member, marks, .. } = &mut *inner;
        let stream = Stream::numbered(stream);
        capture::asking(|| marks.put_from_outside(member, stream, now_us));
    }
    tick.again_us
}
