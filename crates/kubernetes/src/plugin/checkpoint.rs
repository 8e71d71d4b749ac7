//! Which claims are prepared on this node, and with what: one file, which outlives the plugin. The kubelet forgets what
//! it was answered when it starts anew; shares and those who hold them stay.
//!
//! Two plugins may serve at once during an upgrade: whoever reads or writes holds the lock beside the file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use node::grant::Grant;
use node::{state_dir, whole};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::allocation::Given;

/// The version of the file that is written here. One that is newer is not touched.
const VERSION: u32 = 1;
const FILE: &str = "claims.json";
const LOCK: &str = "claims.lock";
const MODE: u32 = 0o600;
/// Bytes of a file that is still read: a claim takes some 2 KiB, and a node runs some hundred pods.
const BYTES_MAX: u64 = 64 << 20;

/// The claims that are prepared, by UID.
pub type Claims = BTreeMap<String, Prepared>;

/// A claim as it was made real.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// Namespace and name, for people.
    pub name: String,
    /// What it was given.
    pub given: Vec<Given>,
    /// What it holds.
    pub holds: Vec<Hold>,
}

/// What a claim holds of one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Positions in [`Prepared::given`] that it stands for.
    pub of: Vec<usize>,
    /// The share; `None` for whoever only watches.
    pub grant: Option<Grant>,
}

impl Prepared {
    /// Its shares.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.holds.iter().filter_map(|hold| hold.grant.as_ref())
    }
}

/// Why it cannot be said what is prepared.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The system.
    #[error("{}: {source}; the plugin must be able to write there", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The folder.
    #[error(transparent)]
    Folder(#[from] state_dir::StateDirError),
    /// A later release has written it.
    #[error(
        "{}: written by a later release (version {found}, known here is {VERSION}); install that release again, or drain \
         the node and remove the file", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// It is no such file.
    #[error("{}: {why}; drain the node and remove the file", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// The file and its lock.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    lock: PathBuf,
}

/// What may be done while the lock is held.
#[derive(Debug)]
pub struct Locked<'a> {
    checkpoint: &'a Checkpoint,
    _file: File,
}

#[derive(Deserialize)]
struct Head {
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct Body {
    version: u32,
    claims: Claims,
}

impl Checkpoint {
    /// * `folder` — made if it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(folder: &Path) -> Result<Self, CheckpointError> {
        state_dir::make(folder)?;
        Ok(Self { path: folder.join(FILE), lock: folder.join(LOCK) })
    }

    /// Waits for whoever has the lock.
    ///
    /// # Errors
    /// The lock cannot be had.
    pub fn lock(&self) -> Result<Locked<'_>, CheckpointError> {
        let file = File::create(&self.lock).and_then(|file| file.lock().map(|()| file));
        let file =
            file.map_err(|source| CheckpointError::File { path: self.lock.clone(), source })?;
        Ok(Locked { checkpoint: self, _file: file })
    }

    /// What is prepared, for whoever only looks: it waits for nobody, as the file is replaced as a whole.
    ///
    /// # Errors
    /// As [`Locked::read`].
    pub fn look(&self) -> Result<Claims, CheckpointError> {
        read(&self.path)
    }
}

impl Locked<'_> {
    /// What is prepared; nothing without a file.
    ///
    /// # Errors
    /// It cannot be read, or is of a later release.
    pub fn read(&self) -> Result<Claims, CheckpointError> {
        read(&self.checkpoint.path)
    }

    /// Writes down what is prepared, in place of what was there, and onto the disk.
    ///
    /// # Errors
    /// It cannot be written; what was there is there still.
    pub fn write(&self, claims: &Claims) -> Result<(), CheckpointError> {
        let path = &self.checkpoint.path;
        let text = serde_json::to_string(&Body { version: VERSION, claims: claims.clone() });
        let written =
            text.map_err(io::Error::other).and_then(|text| whole::write(path, &text, MODE));
        written.map_err(|source| CheckpointError::File { path: path.clone(), source })
    }
}

fn read(path: &Path) -> Result<Claims, CheckpointError> {
    let damaged = |why: String| CheckpointError::Damaged { path: path.to_owned(), why };
    match fs::metadata(path) {
        Ok(about) if about.len() > BYTES_MAX => {
            return Err(damaged(format!("{} bytes are too many", about.len())));
        }
        _ => {}
    }
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Claims::new()),
        other => other.map_err(|source| CheckpointError::File { path: path.to_owned(), source })?,
    };
    let head: Head = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    if head.version > u64::from(VERSION) {
        return Err(CheckpointError::Newer { path: path.to_owned(), found: head.version });
    }
    let body: Body = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    Ok(body.claims)
}

#[cfg(test)]
mod tests;
