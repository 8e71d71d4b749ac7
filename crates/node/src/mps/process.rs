//! A process that is not our child: is it still the same one, whose daemon is it, and its end.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{MARK, PID_FILE};
use crate::procfs::Procfs;

/// Where a daemon's sockets are unless it is told (NVIDIA MPS guide, `CUDA_MPS_PIPE_DIRECTORY`).
const DEFAULT_PIPES: &str = "/tmp/nvidia-mps";
/// How the names of MPS programs begin.
const PROGRAMS: &[u8] = b"nvidia-cuda-mps";

/// A process: its number alone may be given to another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Clock ticks since the machine came up.
    start: u64,
}

impl Process {
    /// The process that has this number now; `None` if there is none or it has ended unreaped.
    pub(super) fn now(pid: u32) -> Option<Self> {
        let facts = Procfs::default().living(pid)?;
        Some(Self { pid, start: facts.start_ticks })
    }

    pub(super) fn lives(self) -> bool {
        Self::now(self.pid) == Some(self)
    }

    /// Waits for its end; whether it came within `limit`.
    pub(super) fn ends_within(self, limit: Duration) -> bool {
        let begun = Instant::now();
        while self.lives() {
            if begun.elapsed() >= limit {
                return false;
            }
            sleep(Duration::from_millis(5));
        }
        true
    }

    /// TERM, `grace`, KILL; whether it is gone after all.
    pub(super) fn end(self, grace: Duration) -> bool {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            if self.lives() {
                let _may_have_ended = kill(Pid::from_raw(self.pid as i32), signal);
            }
            if self.ends_within(grace) {
                return true;
            }
        }
        false
    }

    /// The value that a variable had when it was started. `None` also for a process of another
    /// user, whose environment only root may read.
    pub(super) fn variable(self, name: &str) -> Option<OsString> {
        value(&self.environment()?, name)
    }

    fn environment(self) -> Option<Vec<u8>> {
        fs::read(format!("/proc/{}/environ", self.pid)).ok()
    }

    /// The name that it was started by, without the folder.
    fn program(self) -> Vec<u8> {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
        first.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec()
    }
}

fn value(environment: &[u8], name: &str) -> Option<OsString> {
    let before = [name.as_bytes(), b"="].concat();
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(before.as_slice()))?;
    Some(OsStr::from_bytes(value).to_owned())
}

/// The control daemons that are none of hotpot's, such as one for the whole machine, with the devices that they are
/// bound to. To find them, every process is looked at.
#[derive(Clone, Debug)]
pub struct ForeignDaemons(Vec<(Process, Option<OsString>)>);

impl ForeignDaemons {
    /// Looks for them.
    ///
    /// The environment of other users' processes cannot be read without root: of those the one in the
    /// default folder counts, and serves all GPUs.
    pub fn find() -> Self {
        Self(all().filter_map(foreign).collect())
    }

    /// One that serves a GPU.
    pub(super) fn of(&self, gpu: &str) -> Option<Process> {
        let serves = |names: &Option<OsString>| names.as_deref().is_none_or(|it| may_name(it, gpu));
        self.0.iter().find(|(_, names)| serves(names)).map(|(process, _)| *process)
    }
}

fn foreign(process: Process) -> Option<(Process, Option<OsString>)> {
    let environment = process.environment();
    let variable = |name| environment.as_deref().and_then(|all| value(all, name));
    if variable(MARK).is_some() {
        return None;
    }
    let pipes = variable("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| DEFAULT_PIPES.into());
    // Else it is a server, or the program as a command.
    let daemon = fs::read_to_string(Path::new(&pipes).join(PID_FILE)).unwrap_or_default();
    (daemon.trim() == process.pid.to_string()).then(|| (process, variable("CUDA_VISIBLE_DEVICES")))
}

/// Whether a list of devices may hold a GPU: its number is not known here, so that any number may be
/// it; a UUID may be cut short (CUDA guide, `CUDA_VISIBLE_DEVICES`).
fn may_name(names: &OsStr, gpu: &str) -> bool {
    let names = names.to_string_lossy();
    let mut names = names.split(',').map(str::trim);
    names.any(|name| match name {
        "" => false,
        name if name.starts_with("GPU-") => gpu.starts_with(name),
        name => name.parse::<u32>().is_ok(),
    })
}

/// Every MPS process, daemon or server, that uses this pipe folder.
pub(super) fn of_folder(pipes: &Path) -> Vec<Process> {
    all().filter(|process| is_mps(*process, pipes)).collect()
}

/// Every MPS process that there is.
pub(super) fn all() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::now).filter(|process| process.program().starts_with(PROGRAMS))
}

/// Whether a process is an MPS process of this pipe folder.
pub(super) fn is_mps(process: Process, pipes: &Path) -> bool {
    process.program().starts_with(PROGRAMS)
        && process.variable("CUDA_MPS_PIPE_DIRECTORY").as_deref() == Some(pipes.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_no_other() {
        let own = Process::now(std::process::id()).unwrap();
        assert!(own.lives());
        assert!(!Process { start: own.start + 1, ..own }.lives());
        assert!(!is_mps(own, Path::new("/tmp")));
        assert_eq!(own.variable("PATH"), std::env::var_os("PATH"));
        assert_eq!(own.variable("NO_SUCH_VARIABLE"), None);
    }

    #[test]
    fn devices_are_named_by_number_or_by_the_head_of_their_uuid() {
        let named = |names: &str| may_name(OsStr::new(names), "GPU-1234-56");
        assert_eq!(["GPU-1234-56", "GPU-12", "GPU-9, 0"].map(named), [true; 3]);
        assert_eq!(["", "GPU-9", "MIG-1234-56"].map(named), [false; 3]);
    }

    #[test]
    fn one_that_ended_unreaped_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let begun = Instant::now();
        while Process::now(child.id()).is_some() {
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        child.wait().unwrap();
    }
}
