//! Keeping hold of everything that a task starts, so that nothing of it is left running.
//!
//! Where the kernel lets us, each task has a cgroup (v2; no controllers are needed). What it starts is
//! in there with it, unless a process of the same user moves itself out on purpose. Elsewhere a task
//! is its process group, and what leaves the group is known by the variables that it was started
//! with, as long as it keeps them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use node::procfs::Procfs;

/// Folder of all our cgroups, below the one that we are in.
const OURS: &str = "hotpot";
/// Where cgroup v2 is mounted: alone, or beside v1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// How long processes may take to be gone after KILL: a driver frees a GPU's memory on the way.
const DYING: Duration = Duration::from_secs(10);

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
        forget_the_dead();
        Self { folder: folder(&run), run, given: BTreeMap::new(), emptied: Vec::new() }
    }

    /// The run's cgroup.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Makes a task's cgroup; the file that its process is to write itself into.
    ///
    /// * `given` — the cgroup that it has already, if it has.
    pub fn prepare(&mut self, task: &str, given: Option<&Path>) -> Option<File> {
        if let Some(given) = given {
            self.given.insert(task.to_string(), given.to_path_buf());
        }
        let folder = self.of(task)?;
        fs::create_dir_all(&folder).ok()?;
        self.emptied.retain(|other| *other != folder);
        OpenOptions::new().write(true).open(folder.join("cgroup.procs")).ok()
    }

    /// Sends a signal to every process of a task.
    pub fn signal(&self, task: &str, leader: u32, signal: Signal) {
        self.send(task, leader, signal, true);
    }

    /// Sends a signal to every process of a task but its first.
    pub fn signal_steps(&self, task: &str, leader: u32, signal: Signal) {
        self.send(task, leader, signal, false);
    }

    /// Sends a signal to the first process alone.
    pub fn signal_leader(&self, leader: u32, signal: Signal) {
        let _ = kill(pid_of(leader), signal);
    }

    /// One that has moved out of its cgroup is still the leader, or of its group.
    fn send(&self, task: &str, leader: u32, signal: Signal, to_leader: bool) {
        let folder = self.of(task).filter(|folder| folder.exists());
        let mut pids: BTreeSet<Pid> = group(leader).into_iter().collect();
        match &folder {
            Some(folder) if signal == Signal::SIGKILL && kill_all(folder) => {}
            Some(folder) => pids.extend(members(folder)),
            None => pids.extend(strays(&self.run, Some(task))),
        }
        for pid in pids.into_iter().filter(|pid| to_leader || *pid != pid_of(leader)) {
            let _ = kill(pid, signal);
        }
    }

    /// Whether something of the task is still running.
    pub fn is_alive(&self, task: &str, leader: u32) -> bool {
        match self.of(task).and_then(|folder| is_populated(&folder)) {
            Some(populated) => populated,
            None => !group(leader).is_empty() || !strays(&self.run, Some(task)).is_empty(),
        }
    }

    /// Takes a finished task's cgroup away.
    pub fn clear(&mut self, task: &str) {
        let given = self.given.remove(task).is_some();
        if let Some(folder) = self.of(task).filter(|_| !given) {
            self.emptied.push(folder);
        }
        // The kernel may need a moment after the last process.
        self.emptied.retain(|folder| !remove_empty(folder));
    }

    /// Ends whatever is left of the run, and takes its cgroups away.
    pub fn close(&mut self) {
        if let Some(folder) = &self.folder {
            // The common folder stays: another run may be about to use it.
            end(folder);
        }
        end_strays(&self.run);
    }

    fn of(&self, task: &str) -> Option<PathBuf> {
        let given = self.given.get(task).cloned();
        given.or_else(|| self.folder.as_ref().map(|folder| folder.join(task)))
    }
}

/// A name for a run that no other run on this machine has: runs are numbered by each user.
///
/// * `pid` — the process that carries it out.
pub fn name(run: i64, pid: u32) -> String {
    format!("{run}.{pid}")
}

/// The cgroup of a run, made if it is missing; `None` if this process can make none.
pub fn folder(run: &str) -> Option<PathBuf> {
    let folder = folder_of_runs()?.join(run);
    fs::create_dir_all(&folder).ok().map(|()| folder)
}

/// The folder that the cgroups of runs are in, made if it is missing.
pub fn folder_of_runs() -> Option<PathBuf> {
    let folder = parent()?.join(OURS);
    fs::create_dir_all(&folder).ok().map(|()| folder)
}

/// Removes the cgroups of runs that were killed and never continued, as far as nothing is in them.
fn forget_the_dead() {
    for folder in folder_of_runs().iter().flat_map(|folder| below(folder)) {
        let name = folder.file_name().and_then(|name| name.to_str()?.rsplit_once('.'));
        let runner = name.and_then(|(_, pid)| pid.parse::<u32>().ok());
        if runner.is_some_and(|pid| start_ticks_of(pid).is_none()) {
            remove_empty(&folder);
        }
    }
}

/// Ends what a run that was killed has left behind, and waits until it is gone; says how many
/// processes that were.
///
/// * `cgroup` — that of the run, if it had one.
/// * `leaders` — first processes of its tasks, with their start in clock ticks since boot.
pub fn sweep(run: &str, cgroup: Option<&Path>, leaders: &[(u32, u64)]) -> usize {
    let mut found = 0;
    if let Some(cgroup) = cgroup.filter(|cgroup| is_cgroup_of_ours(cgroup)) {
        found += members(cgroup).len();
        end(cgroup);
    }
    for (pid, _) in leaders.iter().filter(|(pid, ticks)| start_ticks_of(*pid) == Some(*ticks)) {
        found += group(*pid).len();
        let _ = killpg(pid_of(*pid), Signal::SIGKILL);
    }
    found += strays(run, None).len();
    end_strays(run);
    found
}

/// When a process started, in clock ticks since boot; `None` if there is no such process, or a dead
/// one that nobody has looked after yet.
pub fn start_ticks_of(pid: u32) -> Option<u64> {
    Procfs::default().living(pid).map(|process| process.start_ticks)
}

/// The cgroup that this process is in, if cgroup v2 is mounted.
fn parent() -> Option<PathBuf> {
    let mount =
        MOUNTS.into_iter().find(|mount| Path::new(mount).join("cgroup.controllers").exists())?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Path::new(mount).join(path.trim_start_matches('/')))
}

/// Whether a path out of the journal is a cgroup that we could have made.
fn is_cgroup_of_ours(path: &Path) -> bool {
    let mounted = MOUNTS.iter().any(|mount| path.starts_with(mount));
    let plain = path.components().all(|part| part != std::path::Component::ParentDir);
    let ours = path.parent().and_then(Path::file_name).is_some_and(|name| name == OURS);
    mounted && plain && ours
}

/// Whether a cgroup or one below it has processes; `None` if there is no such cgroup.
fn is_populated(folder: &Path) -> Option<bool> {
    let events = fs::read_to_string(folder.join("cgroup.events")).ok()?;
    events.lines().find_map(|line| line.strip_prefix("populated ")).map(|value| value != "0")
}

/// The processes of a cgroup and of those below it.
fn members(folder: &Path) -> Vec<Pid> {
    let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let own = listed.lines().filter_map(|line| line.parse().ok()).map(Pid::from_raw);
    own.chain(below(folder).iter().flat_map(|child| members(child))).collect()
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Kills all of a cgroup at once (Linux 5.14); whether that could be done.
fn kill_all(folder: &Path) -> bool {
    fs::write(folder.join("cgroup.kill"), "1").is_ok()
}

/// Kills what is in a cgroup and those below it, waits until it is gone, and removes them.
fn end(folder: &Path) {
    if !kill_all(folder) {
        members(folder).into_iter().for_each(|pid| {
            let _ = kill(pid, Signal::SIGKILL);
        });
    }
    until(|| remove_empty(folder));
}

/// Removes a cgroup and those below it if they have no process; whether it is gone.
fn remove_empty(folder: &Path) -> bool {
    for child in below(folder) {
        remove_empty(&child);
    }
    fs::remove_dir(folder).err().is_none_or(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Waits until something is so, not for ever.
fn until(mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() && begun.elapsed() < DYING {
        thread::sleep(Duration::from_millis(5));
    }
}

/// The living processes of a group.
fn group(leader: u32) -> Vec<Pid> {
    if killpg(pid_of(leader), None).is_err() {
        return Vec::new();
    }
    let processes = Procfs::default();
    let is_of = |pid: &u32| processes.living(*pid).is_some_and(|facts| facts.group == leader);
    pids().into_iter().filter(is_of).map(pid_of).collect()
}

/// Processes that a run, or one task of it, has started, known by the variables that they were
/// started with.
fn strays(run: &str, task: Option<&str>) -> Vec<Pid> {
    let run = format!("HOTPOT_RUN={run}");
    let task = task.map(|task| format!("HOTPOT_TASK={task}"));
    let is_ours = |pid: &u32| {
        let Ok(env) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        let has = |wanted: &str| env.split(|byte| *byte == 0).any(|var| var == wanted.as_bytes());
        has(&run) && task.as_deref().is_none_or(has)
    };
    let own = std::process::id();
    pids().into_iter().filter(|pid| *pid != own).filter(is_ours).map(pid_of).collect()
}

fn end_strays(run: &str) {
    until(|| {
        let left = strays(run, None);
        left.iter().for_each(|pid| {
            let _ = kill(*pid, Signal::SIGKILL);
        });
        left.is_empty()
    });
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}
