//! Turns among the hotpot processes of one machine: whoever changes GPUs holds the lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::MachineError;

/// A re-layout takes about a second for each instance on hardware.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
const WAIT_STEP: Duration = Duration::from_millis(20);

/// The lock file. The kernel lets go of it when a process dies, however it dies.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

/// The lock, held until this is dropped.
pub(super) struct Held<'a>(&'a File);

impl Lock {
    pub(super) fn open(folder: &Path) -> Result<Self, MachineError> {
        let path = folder.join("change.lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        match file {
            Ok(file) => Ok(Self { file, path }),
            Err(source) => Err(MachineError::Lock { path, source }),
        }
    }

    /// The same lock by another handle of the same open file.
    pub(super) fn again(&self) -> Result<Self, MachineError> {
        match self.file.try_clone() {
            Ok(file) => Ok(Self { file, path: self.path.clone() }),
            Err(source) => Err(MachineError::Lock { path: self.path.clone(), source }),
        }
    }

    pub(super) fn take(&self) -> Result<Held<'_>, MachineError> {
        let began = Instant::now();
        loop {
            match self.file.try_lock() {
                Ok(()) => return Ok(Held(&self.file)),
                Err(TryLockError::Error(source)) => {
                    return Err(MachineError::Lock { path: self.path.clone(), source });
                }
                Err(TryLockError::WouldBlock) if began.elapsed() < WAIT_LIMIT => {
                    std::thread::sleep(WAIT_STEP);
                }
                Err(TryLockError::WouldBlock) => {
                    let waited_s = WAIT_LIMIT.as_secs();
                    return Err(MachineError::Locked { path: self.path.clone(), waited_s });
                }
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Closing the file would let go as well; there is nothing to be done about a failure here.
        let _ = self.0.unlock();
    }
}
