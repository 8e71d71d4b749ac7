//! Taking a GPU: a lock on a file per GPU, which the kernel lets go when its holder ends, however
//! that happens. All users of a machine share the folder, whatever state folders they have.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

/// Names another folder for the locks.
pub const FOLDER_VARIABLE: &str = "HOTPOT_LOCK_DIR";
/// Where the locks lie: a folder that all users share and that is empty after a restart.
const FOLDER: &str = "/run/lock";
/// What stands behind the name of a holder that has a GPU for a moment only.
const MOMENT: &str = ", for a moment";
/// How long such a holder may have a GPU, and how long one that has not yet written who it is.
const WAIT: Duration = Duration::from_secs(60);
const WAIT_UNKNOWN: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(10);
/// Bytes of the holder's name that are read.
const HOLDER_MAX: u64 = 200;

/// A GPU that is ours as long as this lives.
#[derive(Debug)]
pub struct GpuLock {
    _file: File,
}

/// What became of an attempt to take a GPU.
#[derive(Debug)]
pub enum Taken {
    /// It is ours.
    Ours(GpuLock),
    /// Another one has it, who calls itself so.
    By(String),
}

/// The lock's file cannot be had.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: the GPU's lock cannot be had: {source}; see who owns it, or set {FOLDER_VARIABLE} to a folder that all users of the GPUs share",
    path.display()
)]
pub struct GpuLockError {
    /// The file.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

/// Tries to take a GPU, without waiting. Taking one twice in one process fails like any other.
///
/// * `uuid` — of the physical GPU.
/// * `who` — what others are told who want it too.
///
/// # Errors
/// The lock's file cannot be made or opened.
pub fn take(uuid: &str, who: &str) -> Result<Taken, GpuLockError> {
    take_in(&folder(), uuid, who)
}

fn folder() -> PathBuf {
    let folder = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty());
    folder.map_or(PathBuf::from(FOLDER), PathBuf::from)
}

/// Takes a GPU for a moment, in which a share of it is given or taken back; others who have it for a moment too
/// are waited for.
///
/// * `who` — what others are told who want it too.
///
/// # Errors
/// As [`take`], also after what is in the lock's place was put aside ([`GpuLockError::clear`]).
pub fn take_for_a_moment(uuid: &str, who: &str) -> Result<Taken, GpuLockError> {
    wait_in(&folder(), uuid, who)
}

fn wait_in(folder: &Path, uuid: &str, who: &str) -> Result<Taken, GpuLockError> {
    let who = format!("{who}{MOMENT}");
    let begun = Instant::now();
    loop {
        let taken = match take_in(folder, uuid, &who) {
            Err(error) if begun.elapsed() < WAIT && error.clear() => continue,
            taken => taken?,
        };
        match &taken {
            Taken::By(other) if begun.elapsed() < patience(other) => thread::sleep(STEP),
            Taken::By(_) | Taken::Ours(_) => return Ok(taken),
        }
    }
}

/// How long a holder is waited for. One that has just got the lock has not yet written who it is.
fn patience(holder: &str) -> Duration {
    if holder.ends_with(MOMENT) { WAIT } else { WAIT_UNKNOWN }
}

impl GpuLockError {
    /// Puts out of the way what is no file, as far as we may: root may in a folder of everybody's, where any user can
    /// have put a folder or a link to keep others from the GPU. Whether it is worth another try.
    pub fn clear(&self) -> bool {
        let is_file = std::fs::symlink_metadata(&self.path).is_ok_and(|it| it.is_file());
        let aside = self.path.with_extension(format!("not-a-lock-{}", std::process::id()));
        !is_file && std::fs::rename(&self.path, aside).is_ok()
    }
}

fn take_in(folder: &Path, uuid: &str, who: &str) -> Result<Taken, GpuLockError> {
    let name: String = uuid.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let path = folder.join(format!("hotpot-{name}.lock"));
    let failure = |source| GpuLockError { path: path.clone(), source };
    let mut file = open(&path).map_err(failure)?;
    match file.try_lock() {
        Ok(()) => {
            // The name is for people; the lock holds without it.
            let _unnamed =
                file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{who}"));
            Ok(Taken::Ours(GpuLock { _file: file }))
        }
        Err(TryLockError::WouldBlock) => Ok(Taken::By(holder(&file))),
        Err(TryLockError::Error(error)) => Err(failure(error)),
    }
}

/// What the holder wrote; the file is anybody's to write.
fn holder(file: &File) -> String {
    let mut bytes = Vec::new();
    let _unread = file.take(HOLDER_MAX).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let shown: String = text.chars().filter(|letter| !letter.is_control()).collect();
    if shown.is_empty() { "another run".to_owned() } else { shown }
}

/// Opens the file or makes it. One that is there is opened without `O_CREAT`: with it, the kernel
/// refuses files of other users in a folder such as this (`fs.protected_regular`, sysctl/fs).
fn open(path: &Path) -> io::Result<File> {
    let no_link = OFlag::O_NOFOLLOW.bits();
    let mut existing = OpenOptions::new();
    existing.read(true).write(true).custom_flags(no_link);
    match existing.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        other => return other,
    }
    let mut new = OpenOptions::new();
    new.read(true).write(true).create_new(true).mode(0o666).custom_flags(no_link);
    match new.open(path) {
        Ok(file) => {
            // Past the umask: anybody may lock.
            file.set_permissions(Permissions::from_mode(0o666))?;
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => existing.open(path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("hotpot-{name}-{}", std::process::id()));
        let _left_over = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn one_has_it_until_it_lets_go_and_the_next_hears_who() {
        let folder = folder("gpu-lock");
        let take = |who| take_in(&folder, "GPU-1", who).unwrap();
        let first = take("run 1\u{1b}[2J");
        assert!(matches!(&first, Taken::Ours(_)));
        assert!(matches!(take("run 2"), Taken::By(who) if who == "run 1[2J"));
        assert!(matches!(take_in(&folder, "GPU-2", "run 2").unwrap(), Taken::Ours(_)));
        drop(first);
        assert!(matches!(take("run 2"), Taken::Ours(_)));
        let mode = std::fs::metadata(folder.join("hotpot-GPU-1.lock")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o666, "others must be able to lock it");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn who_has_it_for_a_moment_is_waited_for_and_a_run_is_not() {
        let folder = folder("gpu-lock-moment");
        let first = wait_in(&folder, "GPU-1", "a plugin").unwrap();
        let other = folder.clone();
        let waits = thread::spawn(move || wait_in(&other, "GPU-1", "a Prolog").unwrap());
        thread::sleep(WAIT_UNKNOWN + 20 * STEP);
        assert!(!waits.is_finished());
        drop(first);
        drop(waits.join().unwrap());
        let _run = take_in(&folder, "GPU-1", "run 1").unwrap();
        let taken = wait_in(&folder, "GPU-1", "a plugin").unwrap();
        assert!(matches!(taken, Taken::By(who) if who == "run 1"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_link_is_not_followed_and_an_error_names_the_file() {
        let folder = folder("gpu-lock-link");
        std::os::unix::fs::symlink("elsewhere", folder.join("hotpot-GPU-1.lock")).unwrap();
        let error = take_in(&folder, "GPU-1", "run 1").unwrap_err().to_string();
        assert!(error.contains("hotpot-GPU-1.lock") && error.contains(FOLDER_VARIABLE), "{error}");
        assert!(!folder.join("elsewhere").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_file_is_put_aside_and_a_file_stays() {
        let folder = folder("gpu-lock-aside");
        let path = folder.join("hotpot-GPU-1.lock");
        for aside in 1..=2 {
            std::fs::create_dir_all(path.join("full")).unwrap();
            let error = take_in(&folder, "GPU-1", "run 1").unwrap_err();
            assert_eq!(error.clear(), aside == 1, "only once");
        }
        std::fs::remove_dir_all(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", folder.join("hotpot-GPU-2.lock")).unwrap();
        let error = take_in(&folder, "GPU-2", "run 1").unwrap_err();
        assert!(error.clear() && matches!(take_in(&folder, "GPU-2", "x"), Ok(Taken::Ours(_))));
        assert!(!error.clear(), "a lock stays");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
