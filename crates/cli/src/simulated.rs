//! `--simulate-gpus`: a machine that this command makes, or that another one has made ([`joined`]), seen
//! through a simulated driver library.
//!
//! A library and its state are named by the environment, which a program cannot change for itself in
//! safety: it is set, and the program started anew in its own place.

mod joined;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_machine::{GpuSpec, MACHINE_VARIABLE, layout};
use node::companion;
use node::mps::Mps;
use node::procfs::Procfs;

use crate::failure::Failure;
use crate::screen;

/// Folders of simulated machines begin with it; the number of their process follows.
const PREFIX: &str = "hotpot-simulated-";
/// Set in the program that has been started anew: the number of its process, which it keeps. No other
/// process that finds it in its environment has that number.
const ANEW_VARIABLE: &str = "HOTPOT_SIMULATED";
/// In the folder: which GPUs were asked for.
const GPUS: &str = "gpus";

/// The simulated machine that this command was started on. The last one that uses it takes it away.
#[derive(Debug)]
pub(crate) struct Simulated {
    folder: PathBuf,
    /// Keeps a machine there that another command has made.
    guest: Option<File>,
}

impl Simulated {
    /// Where the machine's state lies.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        match self.guest.take() {
            None => take_away(&self.folder),
            Some(guest) => {
                drop(guest);
                // Its maker may have left it to us.
                sweep();
            }
        }
    }
}

/// Ends the simulated daemons of a machine and removes it, unless somebody else uses it.
fn take_away(folder: &Path) {
    let Some(_alone) = joined::alone(folder) else { return };
    for daemon in fs::read_dir(folder.join("mps")).into_iter().flatten().flatten() {
        let _ = Mps::clear(&daemon.path());
    }
    let _ = fs::remove_dir_all(folder);
}

/// Takes machines away that processes have left which were killed.
fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let pid = maker(&entry.path());
        let ours = entry
            .metadata()
            .is_ok_and(|it| it.is_dir() && it.uid() == nix::unistd::geteuid().as_raw());
        if ours && pid.is_some_and(|pid| Procfs::default().living(pid).is_none()) {
            take_away(&entry.path());
        }
    }
}

/// The process that has made the machine in a folder, by the folder's name.
fn maker(folder: &Path) -> Option<u32> {
    folder.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()
}

/// Sees to the simulated machine, if one is asked for. The first time this starts the program anew
/// and does not come back.
///
/// * `asked` — a list of GPUs, or the folder of a machine that another command has made.
pub(crate) fn machine(asked: Option<&str>) -> Result<Option<Simulated>, Failure> {
    let Some(text) = asked else { return Ok(None) };
    let joined = joined::is_folder(text).then(|| joined::find(text)).transpose()?;
    let own = std::process::id().to_string();
    let is_anew = std::env::var(ANEW_VARIABLE).is_ok_and(|pid| pid == own);
    match (is_anew, joined) {
        (true, None) => Ok(Some(Simulated { folder: own_folder(), guest: None })),
        (true, Some(folder)) => {
            let guest = Some(joined::stay(&folder)?);
            Ok(Some(Simulated { folder, guest }))
        }
        (false, None) => Err(make_and_start(text)),
        (false, Some(folder)) => {
            let (error, folder) = (again(&folder), folder.display());
            Err(Failure::Machine(format!(
                "{folder}: this program cannot be started there: {error}"
            )))
        }
    }
}

/// The GPUs that are asked for, as a list also where a folder is named: another time it may be gone.
pub(crate) fn as_list(asked: &str) -> String {
    let read = || fs::read_to_string(Path::new(asked).join(GPUS)).ok();
    let listed = joined::is_folder(asked).then(read).flatten();
    listed.unwrap_or_else(|| asked.to_owned())
}

/// Makes a machine and starts the program anew on it; comes back only with what went wrong.
fn make_and_start(gpus: &str) -> Failure {
    let specs = match GpuSpec::list(gpus) {
        Ok(specs) => specs,
        Err(error) => return Failure::Usage(error.to_string()),
    };
    let parts = match parts() {
        Ok(parts) => parts,
        Err(failure) => return failure,
    };
    sweep();
    let machine = Simulated { folder: own_folder(), guest: None };
    let made = make(&machine.folder, &specs, &parts)
        .and_then(|()| fs::write(machine.folder.join(GPUS), gpus));
    if let Err(error) = made {
        return failure(&machine.folder, &error.to_string());
    }
    screen::note("GPUs are simulated: what runs really runs, but computes nothing on a GPU");
    let error = again(&machine.folder);
    failure(&machine.folder, &error.to_string())
}

/// The folder of this process's machine.
fn own_folder() -> PathBuf {
    std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()))
}

/// Where the simulated driver is, beside this program or where it is installed.
fn parts() -> Result<PathBuf, Failure> {
    companion::folder_with(layout::LIBRARIES[0].0).map_err(|error| {
        let way_out = "build it with `cargo build --workspace`, in the same profile";
        Failure::Machine(format!("the simulated driver: {error}; {way_out}"))
    })
}

fn make(folder: &Path, gpus: &[GpuSpec], parts: &Path) -> io::Result<()> {
    // A folder of that name is left over from a process that is gone.
    let _ = fs::remove_dir_all(folder);
    fs::DirBuilder::new().mode(0o700).create(folder)?;
    layout::lay_out(folder, gpus, parts).map(drop)
}

/// Starts this program in its own place, with the simulated driver in front of any other.
fn again(folder: &Path) -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let before = |new: PathBuf, variable: &str| {
        let mut paths = vec![new];
        paths.extend(std::env::var_os(variable).iter().flat_map(std::env::split_paths));
        std::env::join_paths(paths).unwrap_or_default()
    };
    Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(ANEW_VARIABLE, std::process::id().to_string())
        .env(MACHINE_VARIABLE, folder.join(layout::STATE))
        .env("HOTPOT_NVML", layout::nvml(folder))
        .env("HOTPOT_LOCK_DIR", folder)
        .env("LD_LIBRARY_PATH", before(folder.join(layout::LIB), "LD_LIBRARY_PATH"))
        .env("PATH", before(folder.join(layout::BIN), "PATH"))
        .exec()
}

fn failure(folder: &Path, why: &str) -> Failure {
    let way_out = "set TMPDIR to a folder that can be written and executed from";
    Failure::Machine(format!("{}: no simulated machine: {why}; {way_out}", folder.display()))
}
