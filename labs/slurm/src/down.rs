//! Taking a cluster down, and asking for its state, from its folder alone: whoever started it may be gone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use lab_base::process::{self, Process, done};
use lab_base::{LabError, Place};

use crate::cgroup;
use crate::conf;
use crate::daemon::{Daemon, program};
use crate::on_nodes;

/// How long jobs get to end, epilogs included.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends whatever runs of the cluster in a folder: jobs first, so that their epilogs run, then the daemons,
/// then what is left on its nodes. Files stay, the logs among them.
///
/// # Errors
/// The folder is no lab, or something cannot be ended.
pub fn down(folder: &Path) -> Result<(), LabError> {
    let place = Place::find(folder)?;
    if !place.is_lab() {
        return Err(LabError::Folder { folder: folder.into(), why: "no lab".into() });
    }
    end(&place)
}

/// The daemons that have been started in a folder and not been stopped, with the number of the process;
/// `None` for one that has died.
///
/// # Errors
/// The folder is not there.
pub fn status(folder: &Path) -> Result<Vec<(Daemon, Option<u32>)>, LabError> {
    let started = started(&Place::find(folder)?);
    let number = |process: Process| process.is_alive().then(|| process.pid());
    Ok(started.into_iter().map(|(daemon, process)| (daemon, number(process))).collect())
}

/// What has been written down of daemons, in the order to end them.
pub(crate) fn started(place: &Place) -> BTreeMap<Daemon, Process> {
    let entries = fs::read_dir(place.path("run")).into_iter().flatten().flatten();
    let one = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let daemon = Daemon::named(name.to_str()?.strip_suffix(".process")?)?;
        Some((daemon, Process::read(&entry.path())?))
    };
    entries.filter_map(one).collect()
}

/// Ends one daemon and forgets it; nothing if it was not started.
pub(crate) fn end_daemon(place: &Place, daemon: &Daemon, signal: Signal) {
    if let Some(process) = Process::read(&place.path(&daemon.record())) {
        process.end(signal);
    }
    let _ = fs::remove_file(place.path(&daemon.record()));
}

/// As [`down`].
pub(crate) fn end(place: &Place) -> Result<(), LabError> {
    let daemons = started(place);
    if daemons.get(&Daemon::Slurmctld).is_some_and(|process| process.is_alive()) {
        end_jobs(place);
    }
    let parents: Vec<Process> = daemons.values().copied().collect();
    let before = on_nodes::of_nodes(place.root(), &parents);
    for daemon in daemons.keys() {
        end_daemon(place, daemon, Signal::SIGTERM);
    }
    process::kill_all(&before);
    // What a prolog or a step has started meanwhile.
    process::kill_all(&on_nodes::of_nodes(place.root(), &[]));
    if place.path("etc/cgroup.conf").exists() {
        cgroup::remove(&nodes(place));
    }
    let left = on_nodes::of_nodes(place.root(), &parents);
    if left.is_empty() {
        return Ok(());
    }
    let why = format!("processes cannot be ended: {left:?}");
    Err(LabError::Folder { folder: place.root().into(), why })
}

/// The nodes that a cluster was made with.
fn nodes(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.path("machines")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Cancels all jobs and waits for their end. A step's daemon outlives slurmd, and without slurmctld nobody
/// ends it.
fn end_jobs(place: &Place) {
    let ask = |name: &str, words: &[&str]| {
        done(program(name, words).env("SLURM_CONF", conf::path(place))).unwrap_or_default()
    };
    let end = Instant::now() + PATIENCE;
    let mut cancelled = false;
    loop {
        let jobs = ask("squeue", &["--noheader", "--format=%A"]);
        let jobs: Vec<&str> = jobs.lines().map(str::trim).collect();
        if jobs.is_empty() || Instant::now() > end {
            break;
        }
        if !cancelled {
            ask("scancel", &[&["--quiet"], &jobs[..]].concat());
            cancelled = true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
