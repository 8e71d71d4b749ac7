//! Which process, in one word that is not given out twice: number, start and namespace.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Bits of a process number: Linux gives out none above 2^22.
const PID_BITS: u32 = 22;
/// Bits of the namespace that the number belongs to.
const SPACE_BITS: u32 = 10;

/// A process: 32 bits of its start in clock ticks since boot, 10 of its pid namespace, 22 of its number.
/// Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(u64);

impl ProcessId {
    /// The calling process; asks the kernel, some 20 µs. Without `/proc` its start counts as 0.
    pub fn own() -> Self {
        let pid = std::process::id();
        Self::of(pid, start_ticks(pid).unwrap_or(0), space())
    }

    /// A process of our pid namespace by its number; `None` if it does not live.
    pub fn living(pid: u32) -> Option<Self> {
        Some(Self::of(pid, start_ticks(pid)?, space()))
    }

    fn of(pid: u32, start_ticks: u64, space: u64) -> Self {
        let pid = u64::from(pid) & ((1 << PID_BITS) - 1);
        let space = space & ((1 << SPACE_BITS) - 1);
        Self((start_ticks & 0xffff_ffff) << 32 | space << PID_BITS | pid)
    }

    /// From a word of a page; `None` for 0.
    pub fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// As a word for a page.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Its number, in its own namespace.
    pub fn pid(self) -> u32 {
        (self.0 & ((1 << PID_BITS) - 1)) as u32
    }

    /// The pid namespace that we are in, as the kernel numbers it; 0 without `/proc`.
    pub fn space_here() -> u64 {
        space()
    }

    /// Whether it lives. One of another pid namespace cannot be seen from here and counts as alive.
    pub fn is_alive(self) -> bool {
        if self.space() != space() & ((1 << SPACE_BITS) - 1) {
            return true;
        }
        start_ticks(self.pid()).is_some_and(|ticks| ticks & 0xffff_ffff == self.0 >> 32)
    }

    fn space(self) -> u64 {
        self.0 >> PID_BITS & ((1 << SPACE_BITS) - 1)
    }
}

/// When a living process started, in clock ticks since boot; `None` for one that is gone or a zombie. One
/// whose first thread has ended while others go on looks like a zombie but for its number of threads.
/// Fields 3, 20 and 22 of `/proc/PID/stat`, counted after the name, which may hold anything (proc(5)).
fn start_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = text.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    if matches!(state, "X" | "x") || state == "Z" && threads <= 1 {
        return None;
    }
    fields.nth(1)?.parse().ok()
}

/// The number of our pid namespace.
fn space() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_while_it_lives_and_not_under_a_number_given_again() {
        let own = ProcessId::own();
        assert_eq!(own.pid(), std::process::id());
        assert!(own.is_alive());
        let earlier = ProcessId(own.word() ^ 1 << 40);
        assert!(!earlier.is_alive(), "another start is another process");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let ticks = start_ticks(child.id()).unwrap();
        let it = ProcessId::of(child.id(), ticks, space());
        assert!(it.is_alive());
        child.kill().unwrap();
        while it.is_alive() {
            std::thread::yield_now();
        }
        // A zombie, which is not waited for yet.
        assert!(!it.is_alive());
        child.wait().unwrap();
        assert!(!it.is_alive());
    }

    #[test]
    fn of_another_namespace_counts_as_alive() {
        let other = ProcessId::of(1 << 21, 7, space() ^ 1);
        assert!(other.is_alive());
    }
}
