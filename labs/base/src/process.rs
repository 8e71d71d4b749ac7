//! Processes that outlive the one that started them, known again by what was written down at their start.

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

/// A daemon that takes longer to end is killed.
const PATIENCE: Duration = Duration::from_secs(15);
/// Lines of a log in a message.
const TAIL: usize = 12;
const POLL: Duration = Duration::from_millis(10);

/// A process, told from a later one with the same number by its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pid: i32,
    /// In ticks since the machine's start.
    started: u64,
}

impl Process {
    /// Starts a program in a process group of its own, so that a terminal's Ctrl-C passes it by.
    ///
    /// * `log` — gets what it prints; what is there stays.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(command: &mut Command, log: &Path) -> Result<Self, LabError> {
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

    /// The process with a number.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        Some(Self { pid, started: Stat::read(pid)?.started })
    }

    /// Those that it has started and that have not ended.
    #[must_use]
    pub fn children(self) -> Vec<(Self, Stat)> {
        table().into_iter().filter(|(_, stat)| stat.parent == self.pid).collect()
    }

    /// What [`Process::write`] has written.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }

    /// Writes down which process it is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(self, path: &Path) -> Result<(), LabError> {
        fs::write(path, format!("{} {}\n", self.pid, self.started)).map_err(at(path))
    }

    /// Its number.
    #[must_use]
    pub fn pid(self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Whether it still runs. One that has ended is reaped if it is this process's child.
    #[must_use]
    pub fn is_alive(self) -> bool {
        let Some(stat) = Stat::read(self.pid).filter(|it| it.started == self.started) else {
            return false;
        };
        if stat.ended {
            let _ = waitpid(Pid::from_raw(self.pid), Some(WaitPidFlag::WNOHANG));
        }
        !stat.ended
    }

    /// Sends a signal and waits until it has ended; kills it if it takes long.
    pub fn end(self, signal: Signal) {
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

/// Kills processes and waits until they have ended.
pub fn kill_all(processes: &BTreeSet<Process>) {
    processes.iter().for_each(|process| process.signal(Signal::SIGKILL));
    processes.iter().for_each(|process| process.end(Signal::SIGKILL));
}

/// The program and its arguments, for messages.
#[must_use]
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// It cannot be started, or failed; the error has all that it said.
pub fn done(command: &mut Command) -> Result<String, LabError> {
    let line = line(command);
    let failed = |why: String| LabError::Failed { line: line.clone(), why };
    let ended = command.output().map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    if ended.status.success() {
        return Ok(text);
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(failed(format!("{}\n{text}{}", ended.status, said.trim_end())))
}

/// The last lines of a log; nothing if it is not there.
#[must_use]
pub fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

/// What `/proc/PID/stat` says (proc(5)).
#[derive(Debug)]
pub struct Stat {
    /// Its name, of at most 15 bytes.
    pub name: String,
    /// Its parent's number.
    pub parent: i32,
    started: u64,
    ended: bool,
}

impl Stat {
    /// Of the process with a number, if there is one.
    #[must_use]
    pub fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may hold anything; the state is the first field after it.
        let (name, fields) = text.split_once('(')?.1.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        Some(Self {
            name: name.to_owned(),
            // The first thread may be over while others still have files and ports open.
            ended: matches!(*fields.first()?, "Z" | "X")
                && fields.get(17)?.parse::<u32>().ok()? <= 1,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Everybody who has not ended.
#[must_use]
pub fn table() -> Vec<(Process, Stat)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let one = |pid| Stat::read(pid).map(|stat| (Process { pid, started: stat.started }, stat));
    pids.filter_map(one).filter(|(_, stat)| !stat.ended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_again_by_number_and_start() {
        let path = std::env::temp_dir().join(format!("hotpot-lab-process-{}", std::process::id()));
        let mut command = Command::new("sleep");
        let process = Process::spawn(command.arg("600"), Path::new("/dev/null")).unwrap();
        process.write(&path).unwrap();
        assert_eq!(Process::read(&path), Some(process));
        assert!(process.is_alive());
        let later = Process { started: process.started + 1, ..process };
        assert!(!later.is_alive());
        kill_all(&BTreeSet::from([process]));
        assert!(!Process::read(&path).unwrap().is_alive());
        fs::remove_file(&path).unwrap();
    }
}
