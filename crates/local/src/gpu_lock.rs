//! One run a GPU: a lock on a file per GPU, which the kernel lets go when its holder ends, however
//! that happens.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::error::RunError;

/// Where the locks lie: a folder that all users share and that is empty after a restart.
const FOLDER: &str = "/run/lock";

/// A GPU that is ours as long as this lives.
#[derive(Debug)]
pub(crate) struct GpuLock {
    _file: File,
}

/// Tries to take a GPU. `Err` within `Ok` says who has it.
///
/// * `who` — how this run is called in the answer that another one gets.
///
/// # Errors
/// The lock's file cannot be made.
pub(crate) fn take(uuid: &str, who: &str) -> Result<Result<GpuLock, String>, RunError> {
    let path = path(uuid);
    let failure = |error| RunError::File {
        path: path.clone(),
        what: "the GPU's lock cannot be made",
        error,
        way_out: "see who owns it, or set HOTPOT_LOCK_DIR to a folder that all users of the GPUs share",
    };
    let mut file = open(&path).map_err(failure)?;
    match file.try_lock() {
        Ok(()) => {
            let _ =
                file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{who}"));
            Ok(Ok(GpuLock { _file: file }))
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = (&file).take(200).read_to_string(&mut holder);
            let shown: String = holder.chars().filter(|c| !c.is_control()).collect();
            Ok(Err(if shown.is_empty() { "another run".to_string() } else { shown }))
        }
        Err(TryLockError::Error(error)) => Err(failure(error)),
    }
}

/// Anybody may lock; links are not followed, the folder is open to all.
fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o666);
    let file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)?;
    // Past the umask of whoever was first; only its owner can, the others need not.
    let _ = file.set_permissions(std::fs::Permissions::from_mode(0o666));
    Ok(file)
}

fn path(uuid: &str) -> PathBuf {
    let folder = std::env::var_os("HOTPOT_LOCK_DIR").map_or(PathBuf::from(FOLDER), PathBuf::from);
    let name: String = uuid.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    folder.join(format!("hotpot-{name}.lock"))
}
