//! Who belongs to a cluster: its daemons, by what was written down when they were started, and whatever
//! its jobs have started, by what the kernel knows of it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::error::{LabError, at};

/// Names the folder of the node's machine in what runs on a node.
pub(crate) const NODE_VARIABLE: &str = "SLURM_LAB_NODE";
/// A daemon that takes longer to end is killed.
const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(10);

/// A process, told from a later one with the same number by its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pid: i32,
    /// In ticks since the machine's start.
    started: u64,
}

impl Process {
    /// Starts a program in a process group of its own, so that a terminal's Ctrl-C passes it by.
    ///
    /// * `log` — gets what it prints; what is there stays.
    pub(crate) fn spawn(command: &mut Command, log: &Path) -> Result<Self, LabError> {
        let out = File::options().create(true).append(true).open(log).map_err(at(log))?;
        let copy = out.try_clone().map_err(at(log))?;
        let line = line(command);
        let failed = |why: String| LabError::Failed { line, why };
        let started =
            command.stdin(Stdio::null()).stdout(out).stderr(copy).process_group(0).spawn();
        // `is_alive` reaps it, whatever process of ours asks.
        let pid = match started {
            Ok(child) => i32::try_from(child.id()).unwrap_or_default(),
            Err(error) => return Err(failed(error.to_string())),
        };
        // A child stays in the table, if only as a zombie, until it is reaped.
        let stat = Stat::read(pid).ok_or_else(|| failed("it has vanished".into()))?;
        Ok(Self { pid, started: stat.started })
    }

    /// What [`Process::write`] has written.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }

    /// Writes down which process it is.
    pub(crate) fn write(self, path: &Path) -> Result<(), LabError> {
        fs::write(path, format!("{} {}\n", self.pid, self.started)).map_err(at(path))
    }

    /// Its number.
    pub(crate) fn pid(self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Whether it still runs. One that has ended is reaped if it is this process's child.
    pub(crate) fn is_alive(self) -> bool {
        let Some(stat) = Stat::read(self.pid).filter(|it| it.started == self.started) else {
            return false;
        };
        if stat.ended {
            let _ = waitpid(Pid::from_raw(self.pid), Some(WaitPidFlag::WNOHANG));
        }
        !stat.ended
    }

    /// Sends a signal and waits until it has ended; kills it if it takes long.
    pub(crate) fn end(self, signal: Signal) {
        for (signal, patience) in [(signal, PATIENCE), (Signal::SIGKILL, PATIENCE)] {
            let end = Instant::now() + patience;
            self.signal(signal);
            while self.is_alive() {
                if Instant::now() > end {
                    break;
                }
                std::thread::sleep(POLL);
            }
        }
    }

    fn signal(self, signal: Signal) {
        if self.is_alive() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

/// The processes of a cluster's jobs, prologs and epilogs: job steps' daemons that have its files open (their
/// environment they write over), whatever has its nodes' environment, `parents`, and all their descendants.
/// This process and its ancestors are never among them.
pub(crate) fn of_nodes(folder: &Path, parents: &[Process]) -> BTreeSet<Process> {
    let table = table();
    let is_root = |it: &&(Process, Stat)| {
        let (process, stat) = it;
        parents.contains(process)
            || stat.is_step && has_open(process.pid, folder)
            || is_on_node(process.pid, folder)
    };
    let mut found: BTreeSet<Process> = table.iter().filter(is_root).map(|it| it.0).collect();
    loop {
        let numbers: BTreeSet<i32> = found.iter().map(|process| process.pid).collect();
        let children = table.iter().filter(|(_, stat)| numbers.contains(&stat.parent));
        let before = found.len();
        found.extend(children.map(|it| it.0));
        if found.len() == before {
            break;
        }
    }
    let mut own = std::process::id().cast_signed();
    while own > 0 {
        found.retain(|process| process.pid != own);
        own = Stat::read(own).map_or(0, |stat| stat.parent);
    }
    found
}

/// Kills processes and waits until they have ended.
pub(crate) fn kill_all(processes: &BTreeSet<Process>) {
    processes.iter().for_each(|process| process.signal(Signal::SIGKILL));
    processes.iter().for_each(|process| process.end(Signal::SIGKILL));
}

/// The program and its arguments, for messages.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// What `/proc/PID/stat` says (proc(5)).
#[derive(Debug)]
struct Stat {
    parent: i32,
    started: u64,
    ended: bool,
    is_step: bool,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may hold anything; the state is the first field after it.
        let (name, fields) = text.split_once('(')?.1.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        Some(Self {
            is_step: name == "slurmstepd",
            ended: matches!(*fields.first()?, "Z" | "X"),
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Everybody who has not ended.
fn table() -> Vec<(Process, Stat)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let one = |pid| Stat::read(pid).map(|stat| (Process { pid, started: stat.started }, stat));
    pids.filter_map(one).filter(|(_, stat)| !stat.ended).collect()
}

/// Whether a process has a file in a folder open.
fn has_open(pid: i32, folder: &Path) -> bool {
    let mut files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.starts_with(folder)))
}

/// Whether a process was started with the environment of one of the cluster's nodes.
fn is_on_node(pid: i32, folder: &Path) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let begin = format!("{NODE_VARIABLE}={}/", folder.display());
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(begin.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(folder: &str) -> Process {
        let mut command = Command::new("sh");
        // The inner sleep is found by its parent, not by its environment.
        command.args(["-c", "env -i sleep 600; true"]).env(NODE_VARIABLE, folder);
        Process::spawn(&mut command, Path::new("/dev/null")).unwrap()
    }

    #[test]
    fn what_runs_on_a_node_is_found_with_its_children_and_ended() {
        let folder = format!("/lab-{}", std::process::id());
        let (ours, other) = (sleeper(&format!("{folder}/n1")), sleeper(&format!("{folder}x/n1")));
        let end = Instant::now() + Duration::from_secs(60);
        while of_nodes(Path::new(&folder), &[]).len() < 2 && Instant::now() < end {
            std::thread::sleep(POLL);
        }
        let found = of_nodes(Path::new(&folder), &[]);
        assert!(found.contains(&ours) && found.len() == 2, "{found:?}");
        kill_all(&found);
        assert!(!ours.is_alive());
        assert!(other.is_alive());
        kill_all(&of_nodes(Path::new("/none"), &[other]));
        assert!(!other.is_alive());
    }

    #[test]
    fn a_process_is_known_again_by_number_and_start() {
        let path = std::env::temp_dir().join(format!("slurm-lab-process-{}", std::process::id()));
        let process = sleeper("/none");
        process.write(&path).unwrap();
        assert_eq!(Process::read(&path), Some(process));
        assert!(process.is_alive());
        let later = Process { started: process.started + 1, ..process };
        assert!(!later.is_alive());
        kill_all(&of_nodes(Path::new("/none"), &[process]));
        assert!(!Process::read(&path).unwrap().is_alive());
        fs::remove_file(&path).unwrap();
    }
}
