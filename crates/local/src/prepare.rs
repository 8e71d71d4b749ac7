//! Getting a run ready: scripts are put away, places for output looked at, the surroundings noted.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use formats::job::Program;

use crate::environment::Surroundings;
use crate::error::RunError;
use crate::files;
use crate::work::Work;

/// Output folders looked at before a run, to say at once that one is missing.
const LOOKED_AT_MAX: usize = 1000;

/// The surroundings of a run, as they are now; its name is not known yet.
pub fn surroundings() -> Surroundings {
    let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    let uid = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    Surroundings {
        inherited: std::env::vars_os().collect(),
        host: host.split('.').next().unwrap_or_default().to_string(),
        user: user.unwrap_or_else(|| uid.to_string()),
        uid: uid.as_raw(),
        run: String::new(),
        stand_ins: None,
    }
}

/// The folder of a run in the state folder.
pub fn folder(state: &Path, run: i64) -> PathBuf {
    state.join("runs").join(run.to_string())
}

/// `srun` inside a script starts its command here. Also where there is Slurm, whose own would ask it for
/// another job.
const SRUN: &str = include_str!("srun.sh");

/// Puts the scripts away as they were read, so that a later change of the file changes no task, and
/// stand-ins for what of Slurm they call.
///
/// # Errors
/// The folder cannot be written.
pub fn spool(work: &mut Work, around: &mut Surroundings, folder: &Path) -> Result<(), RunError> {
    let failure = |path: &Path, error: io::Error| RunError::File {
        path: path.to_path_buf(),
        what: "scripts cannot be put away",
        error,
        way_out: "free some space, or set HOTPOT_STATE_DIR to a folder that can be written",
    };
    for at in 0..work.jobs.len() {
        let number = work.job_number(work.jobs[at].first);
        let posted = &mut work.jobs[at];
        let Program::Script(text) = &posted.job.launch.program else { continue };
        let path = folder.join(format!("job{}.sh", number));
        put_away(&path, text).map_err(|error| failure(&path, error))?;
        posted.script = Some(path);
    }
    let scripts = work.jobs.iter().any(|posted| posted.script.is_some());
    if scripts {
        let bin = folder.join("bin");
        put_away(&bin.join("srun"), SRUN).map_err(|error| failure(&bin, error))?;
        around.stand_ins = Some(bin);
    }
    Ok(())
}

/// Writes a program that only its owner can read and run, whatever the umask.
pub(crate) fn put_away(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o700).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o700))?;
    file.write_all(text.as_bytes())
}

/// Looks whether tasks will be able to write their output.
///
/// # Errors
/// A folder that is not there: nobody makes it, on Slurm neither.
pub fn look_at_folders(work: &Work, around: &Surroundings, base: &Path) -> Result<(), RunError> {
    let mut seen = BTreeSet::new();
    for id in (0..work.tasks.len()).take(LOOKED_AT_MAX) {
        let paths = files::of_task(work, id, around, base);
        let outputs = [Some(&paths.output), paths.error.as_ref()].into_iter().flatten();
        let folders = outputs.filter_map(|path| path.parent()).map(Path::to_path_buf);
        for folder in folders.chain([paths.folder.clone()]) {
            if seen.insert(folder.clone()) && !folder.is_dir() {
                let path = folder;
                let error = io::Error::from(io::ErrorKind::NotFound);
                let what = "a folder of a task";
                return Err(RunError::File { path, what, error, way_out: "make it first" });
            }
        }
    }
    Ok(())
}
