//! Who may change the books: one thread of one process, and after its death whoever comes next.
//!
//! The word holds the process. Inside the lock nothing calls the driver or the kernel, allocates or
//! waits, so that it is held for some µs at most; a process that dies inside is found out and its lock
//! broken, after which the sums are made anew from the members. A process that cannot be judged from
//! here is given [`PATIENCE`].

use std::time::{Duration, Instant};

use super::books::Alive;
use crate::process::ProcessId;
use crate::sync::{AtomicU64, Ordering, pause};

/// Turns in which a lock is expected to come free by itself.
const SPINS: u32 = if cfg!(loom) { 1 } else { 200 };

/// How long a waiter sleeps between tries, and after how many it looks whether the holder lives.
const REST: Duration = Duration::from_micros(100);
const LOOK_AFTER: u32 = if cfg!(loom) { 1 } else { 20 };

/// How long a holder is waited for that cannot be judged. Far above anything that a scheduler does to
/// a process that runs, so only a stopped one would be wronged.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes the lock; whether it was broken, so that sums have to be made anew.
pub(super) fn take(word: &AtomicU64, own: ProcessId, alive: Alive<'_>) -> bool {
    let (mut spins, mut rests) = (0_u32, 0_u32);
    let mut begun: Option<Instant> = None;
    loop {
        let seen = match free(word, own) {
            Ok(()) => return false,
            Err(seen) => seen,
        };
        spins = spins.wrapping_add(1);
        if spins % SPINS != 0 {
            pause();
            continue;
        }
        rest();
        rests = rests.wrapping_add(1);
        let (Some(holder), 0) = (ProcessId::from_word(seen), rests % LOOK_AFTER) else { continue };
        let begun = *begun.get_or_insert_with(Instant::now);
        // Another thread of this process gives it back; but not if it was inside when the process became
        // another program, which has the same number and start.
        let gone = holder != own && !alive(holder) || begun.elapsed() > PATIENCE;
        if gone && exchange(word, seen, own.word()).is_ok() {
            return true;
        }
    }
}

/// Takes the lock if nobody has it; else who has.
fn free(word: &AtomicU64, own: ProcessId) -> Result<(), u64> {
    exchange(word, 0, own.word())
}

fn exchange(word: &AtomicU64, from: u64, to: u64) -> Result<(), u64> {
    word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).map(|_| ())
}

/// Gives the lock back, unless it was broken meanwhile.
pub(super) fn give(word: &AtomicU64, own: ProcessId) {
    let _broken = word.compare_exchange(own.word(), 0, Ordering::Release, Ordering::Relaxed);
}

fn rest() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::sleep(REST);
}
