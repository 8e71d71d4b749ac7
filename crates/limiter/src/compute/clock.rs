//! Time, sleep, and waiting for a word to change.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// `CLOCK_MONOTONIC` in µs: the same in all processes of a machine.
#[inline]
pub(crate) fn now_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(nanoseconds.wrapping_div(1000))
}

fn span(us: u64) -> libc::timespec {
    let seconds = libc::time_t::try_from(us.wrapping_div(1_000_000)).unwrap_or(1);
    let rest = us.wrapping_rem(1_000_000).saturating_mul(1000);
    libc::timespec { tv_sec: seconds, tv_nsec: rest.try_into().unwrap_or(0) }
}

/// Sleeps so long, or until a signal comes.
pub(crate) fn sleep_us(us: u64) {
    let span = span(us);
    // SAFETY: a time of ours; nobody wants to know what was left.
    unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const span, std::ptr::null_mut())
    };
}

/// The half of a shared word that holds its lowest bits.
fn low(word: &AtomicU64) -> *const u32 {
    let first = std::ptr::from_ref(word).cast::<u32>();
    if cfg!(target_endian = "little") { first } else { first.wrapping_add(1) }
}

/// Waits until a word that processes share is no longer as it was seen, at most so long.
pub(crate) fn wait_shared(word: &AtomicU64, seen: u64, us: u64) {
    futex(low(word), libc::FUTEX_WAIT, seen as u32, Some(us));
}

/// Wakes all who wait for a word that processes share.
pub(crate) fn wake_shared(word: &AtomicU64) {
    futex(low(word), libc::FUTEX_WAKE, i32::MAX as u32, None);
}

/// Waits until a word of this process is no longer as it was seen.
pub(crate) fn wait_own(word: &AtomicU32, seen: u32, us: Option<u64>) {
    futex(std::ptr::from_ref(word).cast(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, seen, us);
}

/// Wakes who waits for a word of this process.
pub(crate) fn wake_own(word: &AtomicU32) {
    futex(std::ptr::from_ref(word).cast(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1, None);
}

fn futex(word: *const u32, what: libc::c_int, value: u32, us: Option<u64>) {
    let span = us.map(span);
    let time = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a word that lives as long as the call; the kernel only reads and compares it. The client
    // must not find its errno changed.
    unsafe {
        let errno = *libc::__errno_location();
        libc::syscall(libc::SYS_futex, word, what, value, time, std::ptr::null::<u32>(), 0u32);
        *libc::__errno_location() = errno;
    }
}
