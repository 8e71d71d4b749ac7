//! Processes: which one this is, and whether another still lives.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::atomic::Ordering;

use crate::shared::Myself;

/// A process, told from a later one with the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// In clock ticks since the machine started, as the kernel tells it.
    pub(crate) start: u64,
}

impl Owner {
    /// The calling process.
    pub(crate) fn myself(memory: &Myself) -> Self {
        let pid = memory.pid.load(Ordering::Acquire);
        if pid != 0 {
            return Self { pid, start: memory.start.load(Ordering::Relaxed) };
        }
        let pid = std::process::id();
        let start = if let Seen::Running(start) = look(pid) { start } else { 0 };
        memory.start.store(start, Ordering::Relaxed);
        memory.pid.store(pid, Ordering::Release);
        Self { pid, start }
    }

    /// Whether it has not ended; one that nobody has reaped has. What cannot be read counts as alive.
    pub(crate) fn lives(self) -> bool {
        match look(self.pid) {
            Seen::Running(start) => start == self.start,
            Seen::Ended => false,
            Seen::Hidden => true,
        }
    }
}

enum Seen {
    /// It runs, and started then.
    Running(u64),
    Ended,
    /// The kernel does not tell.
    Hidden,
}

/// Fields of `/proc/PID/stat` after the name in parentheses: the first is the state, and the one that
/// proc_pid_stat(5) numbers 22 is the start.
const STATE: usize = 0;
const START: usize = 22 - 3;

fn look(pid: u32) -> Seen {
    let mut text = [0; 1024];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut text));
    let length = match read {
        Ok(length) => length,
        // ESRCH comes if it ends between the two calls.
        Err(error) if error.kind() == ErrorKind::NotFound => return Seen::Ended,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Seen::Ended,
        Err(_) => return Seen::Hidden,
    };
    let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
    let Some((_, after)) = text.rsplit_once(')') else { return Seen::Hidden };
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    if matches!(fields.get(STATE), Some(&("Z" | "X" | "x"))) {
        return Seen::Ended;
    }
    fields.get(START).and_then(|text| text.parse().ok()).map_or(Seen::Hidden, Seen::Running)
}
