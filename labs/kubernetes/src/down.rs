//! Taking a cluster down, and asking for its state, from its folder alone: whoever started it may be gone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lab_base::process::Process;
use lab_base::{LabError, Place};
use nix::sys::signal::Signal;

use crate::cgroup;
use crate::daemon::Daemon;

/// Ends whatever runs of the cluster in a folder. Files stay, the logs among them.
///
/// # Errors
/// The folder is no lab.
pub fn down(folder: &Path) -> Result<(), LabError> {
    let place = Place::find(folder)?;
    if !place.is_lab() {
        return Err(LabError::Folder { folder: folder.into(), why: "no lab".into() });
    }
    end(&place);
    Ok(())
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

/// What has been written down of daemons.
pub(crate) fn started(place: &Place) -> BTreeMap<Daemon, Process> {
    let entries = fs::read_dir(place.path("run")).into_iter().flatten().flatten();
    let one = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let daemon = Daemon::named(name.to_str()?.strip_suffix(".process")?)?;
        Some((daemon, Process::read(&entry.path())?))
    };
    entries.filter_map(one).collect()
}

/// Whether the cluster of a folder runs.
pub(crate) fn is_up(place: &Place) -> bool {
    first(place).is_some_and(Process::is_alive)
}

/// Ends one daemon and forgets it; nothing if it was not started.
pub(crate) fn end_daemon(place: &Place, daemon: &Daemon, signal: Signal) {
    if let Some(process) = Process::read(&daemon.record(place)) {
        process.end(signal);
    }
    let _ = fs::remove_file(daemon.record(place));
}

/// Ends the first process, and so all others; then their cgroups can go.
pub(crate) fn end(place: &Place) {
    if let Some(first) = first(place) {
        first.end(Signal::SIGKILL);
    }
    cgroup::remove(&cgroup::name_of(place));
}

fn first(place: &Place) -> Option<Process> {
    Process::read(&place.path("run/first.process"))
}
