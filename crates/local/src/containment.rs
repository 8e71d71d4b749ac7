//! Keeping hold of everything that a task starts, so that nothing of it is left running.
//!
//! Where the kernel lets us, each task has a cgroup (v2; its controllers are not needed), out of which
//! no process gets by itself. Elsewhere a task is its process group, and what leaves the group is
//! caught as a child that the kernel hands to us (we are its subreaper) and known by the variables
//! it was started with.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// Folder of all our cgroups, below the one that we are in.
const OURS: &str = "hotpot";
/// Folder of the cgroups in it that carry memory caps.
const CAPPED: &str = "capped";
/// Where cgroup v2 is mounted: alone, or beside v1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// How the tasks of a run are held together.
#[derive(Debug)]
pub struct Containment {
    run: String,
    folder: Option<PathBuf>,
    /// Cgroups that others made for tasks, to hold a memory cap.
    given: BTreeMap<String, PathBuf>,
    emptied: Vec<PathBuf>,
}

impl Containment {
    /// Makes the run's cgroup, if that can be done.
    ///
    /// * `run` — its name, see [`name`].
    pub fn new(run: String) -> Self {
        let folder = parent().map(|parent| parent.join(OURS).join(&run));
        let folder = folder.filter(|folder| fs::create_dir_all(folder).is_ok());
        Self { run, folder, given: BTreeMap::new(), emptied: Vec::new() }
    }

    /// Whether a task cannot get away, or only as far as the kernel tells us of it.
    pub fn is_tight(&self) -> bool {
        self.folder.is_some()
    }

    /// Makes a task's cgroup; the file that its process is to write itself into.
    ///
    /// * `given` — the cgroup that it has already, if it has.
    pub fn prepare(&mut self, task: &str, given: Option<&Path>) -> Option<File> {
        if let Some(given) = given {
            self.given.insert(task.to_string(), given.to_path_buf());
        }
        let folder = self.of(task)?;
        match fs::create_dir(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => return None,
        }
        self.emptied.retain(|other| *other != folder);
        OpenOptions::new().write(true).open(folder.join("cgroup.procs")).ok()
    }

    /// Sends a signal to every process of a task.
    pub fn signal(&self, task: &str, leader: u32, signal: Signal) {
        if signal == Signal::SIGKILL
            && self
                .of(task)
                .is_some_and(|folder| fs::write(folder.join("cgroup.kill"), "1").is_ok())
        {
            return;
        }
        for pid in self.processes(task, leader) {
            let _ = kill(pid, signal);
        }
        let _ = killpg(pid_of(leader), signal);
    }

    /// Sends a signal to the leader alone.
    pub fn signal_leader(&self, leader: u32, signal: Signal) {
        let _ = kill(pid_of(leader), signal);
    }

    /// Whether something of the task is still running.
    pub fn is_alive(&self, task: &str, leader: u32) -> bool {
        match self.of(task).map(|folder| fs::read(folder.join("cgroup.procs"))) {
            Some(Ok(processes)) => !processes.is_empty(),
            _ => killpg(pid_of(leader), None).is_ok() || !strays(&self.run, Some(task)).is_empty(),
        }
    }

    /// Takes a finished task's cgroup away.
    pub fn clear(&mut self, task: &str) {
        let given = self.given.remove(task).is_some();
        if let Some(folder) = self.of(task).filter(|_| !given) {
            self.emptied.push(folder);
        }
        // The kernel may need a moment after the last process.
        self.emptied.retain(|folder| {
            fs::remove_dir(folder).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        });
    }

    /// Ends whatever is left of the run, and takes its cgroups away.
    pub fn close(&mut self) {
        match &self.folder {
            Some(folder) => remove(folder),
            None => strays(&self.run, None).into_iter().for_each(|pid| {
                let _ = kill(pid, Signal::SIGKILL);
            }),
        }
    }

    fn of(&self, task: &str) -> Option<PathBuf> {
        if let Some(given) = self.given.get(task) {
            return Some(given.clone());
        }
        self.folder.as_ref().map(|folder| folder.join(task))
    }

    fn processes(&self, task: &str, leader: u32) -> Vec<Pid> {
        let listed = self.of(task).map(|folder| fs::read_to_string(folder.join("cgroup.procs")));
        match listed {
            Some(Ok(text)) => {
                let pids = text.lines().filter_map(|line| line.parse().ok()).map(Pid::from_raw);
                // The group gets the signal by itself: not twice.
                pids.filter(|pid| nix::unistd::getpgid(Some(*pid)) != Ok(pid_of(leader))).collect()
            }
            _ => strays(&self.run, Some(task)),
        }
    }
}

/// A name for a run that no other run on this machine has: runs are numbered by each user.
///
/// * `pid` — the process that carries it out.
pub fn name(run: i64, pid: u32) -> String {
    format!("{run}.{pid}")
}

/// Where cgroups with a memory cap can be made; `None` if this process can make none.
pub fn for_caps() -> Option<PathBuf> {
    let folder = parent()?.join(OURS).join(CAPPED);
    fs::create_dir_all(&folder).ok().map(|()| folder)
}

/// Ends what a run that was killed has left behind; says how many tasks that were.
///
/// * `leaders` — first processes of its tasks, with their start in clock ticks since boot.
pub fn sweep(run: &str, leaders: &[(u32, u64)]) -> usize {
    let mut found = 0;
    for (pid, start_ticks) in leaders {
        if start_ticks_of(*pid) == Some(*start_ticks) {
            let _ = killpg(pid_of(*pid), Signal::SIGKILL);
            found += 1;
        }
    }
    for pid in strays(run, None) {
        let _ = kill(pid, Signal::SIGKILL);
        found += 1;
    }
    let Some(ours) = parent().map(|parent| parent.join(OURS)) else { return found };
    remove(&ours.join(run));
    let capped = fs::read_dir(ours.join(CAPPED)).into_iter().flatten().flatten();
    let prefix = format!("{}-", run.replace('.', "-"));
    let of_run = capped.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    of_run.for_each(|entry| remove(&entry.path()));
    found
}

/// When a process started, in clock ticks since boot (proc_pid_stat(5), field 22); `None` if there
/// is no such process, or a dead one that nobody has looked after yet.
pub fn start_ticks_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The cgroup that this process is in, if cgroup v2 is mounted and it may make others below it.
fn parent() -> Option<PathBuf> {
    let mount = MOUNTS.into_iter().find(|mount| Path::new(mount).join("cgroup.procs").exists())?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Inside another run's task: beside it, not below, so that it is ended with its own run only.
    let path = path.split(&format!("/{OURS}/")).next().unwrap_or(path);
    Some(Path::new(mount).join(path.trim_start_matches('/')))
}

/// Kills what is in a cgroup and the ones below it, and removes them.
fn remove(folder: &Path) {
    let _ = fs::write(folder.join("cgroup.kill"), "1");
    // Until the last process is gone a cgroup cannot be removed: a second at most.
    for _ in 0..100 {
        let below = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let _ = fs::remove_dir(entry.path());
        }
        match fs::remove_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

/// Processes that a run, or one task of it, has started and that are not in its groups: known by the
/// variables that they were started with. A process may change those; then it is found only if it
/// is in a cgroup.
fn strays(run: &str, task: Option<&str>) -> Vec<Pid> {
    let run = format!("HOTPOT_RUN={run}");
    let task = task.map(|task| format!("HOTPOT_TASK={task}"));
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_ours = |pid: &i32| {
        let Ok(env) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        let has = |wanted: &str| env.split(|byte| *byte == 0).any(|var| var == wanted.as_bytes());
        has(&run) && task.as_deref().is_none_or(has)
    };
    let own = std::process::id() as i32;
    pids.filter(|pid| *pid != own).filter(is_ours).map(Pid::from_raw).collect()
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}
