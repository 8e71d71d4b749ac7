//! Processes on a simulated GPU. They are injected; whether one still lives is asked of the kernel.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// In which of the driver's lists a process stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    /// It has a CUDA context of its own.
    #[default]
    Compute,
    /// It draws.
    Graphics,
    /// It is a client of an MPS server.
    Mps,
}

/// One process on one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process.
    pub pid: u32,
    /// Device memory that it uses.
    pub memory_mib: u64,
    /// Its part of SM time, 0 to 100.
    pub sm_percent: u32,
    /// In which list it stands.
    pub kind: ProcessKind,
    /// GPU instance and compute instance that it is on, in MIG mode.
    pub instance: Option<(u32, u32)>,
    /// Shown although no such process may exist.
    pub phantom: bool,
    /// When it came, in ms since 1970; set when it is added if 0.
    pub since_ms: u64,
}

impl Process {
    /// A process with a CUDA context and nothing running.
    pub fn compute(pid: u32, memory_mib: u64) -> Self {
        Self {
            pid,
            memory_mib,
            sm_percent: 0,
            kind: ProcessKind::Compute,
            instance: None,
            phantom: false,
            since_ms: 0,
        }
    }

    /// The same, using that part of SM time, 0 to 100.
    #[must_use]
    pub fn busy(self, sm_percent: u32) -> Self {
        Self { sm_percent, ..self }
    }

    /// The same, on a MIG device.
    #[must_use]
    pub fn on(self, gpu_instance: u32, compute_instance: u32) -> Self {
        Self { instance: Some((gpu_instance, compute_instance)), ..self }
    }

    /// The same, shown although no such process may exist.
    #[must_use]
    pub fn phantom(self) -> Self {
        Self { phantom: true, ..self }
    }

    /// Whether the driver shows it: a process that has ended, reaped or not, holds no device. That it
    /// has ended may be seen 1 ms late.
    pub fn is_shown(&self) -> bool {
        self.phantom || was_alive(self.pid)
    }

    /// As [`Process::is_shown`], at this very moment.
    pub(crate) fn is_there(&self) -> bool {
        self.phantom || is_alive(self.pid)
    }
}

/// The processes of the cgroup whose folder is `folder`, and of those below it.
pub(crate) fn pids_of_cgroup(folder: &Path) -> BTreeSet<u32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let mut pids: BTreeSet<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for below in fs::read_dir(folder).into_iter().flatten().flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            pids.extend(pids_of_cgroup(&below.path()));
        }
    }
    pids
}

/// How long an answer of the kernel is good: a program that measures asks for each process at nearly
/// each call.
const FRESH: Duration = Duration::from_millis(1);

thread_local! {
    /// What the kernel has said since a moment, by pid.
    static SEEN: RefCell<(Option<Instant>, BTreeMap<u32, bool>)> =
        const { RefCell::new((None, BTreeMap::new())) };
}

fn was_alive(pid: u32) -> bool {
    SEEN.with_borrow_mut(|(since, seen)| {
        if since.is_none_or(|since| since.elapsed() >= FRESH) {
            seen.clear();
            *since = Some(Instant::now());
        }
        *seen.entry(pid).or_insert_with(|| is_alive(pid))
    })
}

fn is_alive(pid: u32) -> bool {
    // A process that has ended has no program any more, reaped or not. One link is much cheaper to
    // read than `stat`; that of another user's process may be denied.
    match fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_shown_until_it_ends_even_if_nobody_has_reaped_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::compute(child.id(), 100);
        assert!(process.is_shown());
        child.kill().unwrap();
        while process.is_shown() {
            std::thread::yield_now();
        }
        assert!(fs::exists(format!("/proc/{}", child.id())).unwrap(), "still a zombie");
        child.wait().unwrap();
        assert!(process.phantom().is_shown());
    }
}
