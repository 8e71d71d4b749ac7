//! A lab's folder: whose it is, and writing files into it.

use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{LabError, at};

/// Sockets lie in the folder, up to 40 bytes deeper, and the kernel allows them 107 (unix(7)).
const LENGTH_MAX: usize = 64;
/// Tells that a folder is ours; locked by the process whose lab it is.
const MARKER: &str = ".hotpot-lab";

/// A lab's folder, absolute.
#[derive(Clone, Debug)]
pub struct Place(PathBuf);

impl Place {
    /// The folder, made if it is not there.
    ///
    /// # Errors
    /// Its path is too long for sockets or has letters that configurations would take for something else.
    pub fn make(folder: &Path) -> Result<Self, LabError> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let place = Self::find(folder)?;
        let text = place.0.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        if text.len() > LENGTH_MAX || !text.chars().all(plain) {
            let why = format!(
                "a lab needs a path of at most {LENGTH_MAX} letters, digits, dots, dashes and underscores"
            );
            return Err(LabError::Folder { folder: place.0, why });
        }
        Ok(place)
    }

    /// A folder that is there.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(folder: &Path) -> Result<Self, LabError> {
        fs::canonicalize(folder).map(Self).map_err(at(folder))
    }

    /// Marks the folder as this process's until the file is closed.
    ///
    /// # Errors
    /// It is neither empty nor a lab, or another process has its lab there.
    pub fn occupy(&self) -> Result<File, LabError> {
        let refuse = |why: &str| LabError::Folder { folder: self.0.clone(), why: why.into() };
        let empty = fs::read_dir(&self.0).map_err(at(&self.0))?.next().is_none();
        if !empty && !self.is_lab() {
            return Err(refuse("neither empty nor a lab"));
        }
        let path = self.0.join(MARKER);
        let marker = File::create(&path).map_err(at(&path))?;
        marker.try_lock().map_err(|_| refuse("another process has its lab there"))?;
        Ok(marker)
    }

    /// Whether a lab was ever made there.
    #[must_use]
    pub fn is_lab(&self) -> bool {
        self.0.join(MARKER).exists()
    }

    /// Removes what a lab has left, and makes the folders of a new one.
    ///
    /// * `folders` — their names.
    ///
    /// # Errors
    /// A file cannot be made or removed.
    pub fn clear(&self, folders: &[&str]) -> Result<(), LabError> {
        for entry in fs::read_dir(&self.0).map_err(at(&self.0))?.flatten() {
            let path = entry.path();
            let removed = match entry.file_type() {
                Ok(kind) if kind.is_dir() => fs::remove_dir_all(&path),
                _ if path.ends_with(MARKER) => Ok(()),
                _ => fs::remove_file(&path),
            };
            removed.map_err(at(&path))?;
        }
        // Other users read there, as jobs.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&self.0, open).map_err(at(&self.0))?;
        for name in folders {
            self.folder(name)?;
        }
        Ok(())
    }

    /// A folder in it, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn folder(&self, name: &str) -> Result<PathBuf, LabError> {
        let path = self.0.join(name);
        DirBuilder::new().recursive(true).mode(0o755).create(&path).map_err(at(&path))?;
        Ok(path)
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Writes a file that others may read and, `executable`, run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, text: &str, executable: bool) -> Result<(), LabError> {
        self.put(name, text.as_bytes(), if executable { 0o755 } else { 0o644 })
    }

    /// Writes a file for root alone.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_secret(&self, name: &str, bytes: &[u8]) -> Result<(), LabError> {
        self.put(name, bytes, 0o600)
    }

    fn put(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), LabError> {
        let path = self.path(name);
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(mode).open(&path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(at(&path))
    }

    /// Writes a new key for root alone.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_key(&self, name: &str) -> Result<(), LabError> {
        let mut key = [0; 128];
        let source = Path::new("/dev/urandom");
        File::open(source).and_then(|mut file| file.read_exact(&mut key)).map_err(at(source))?;
        self.write_secret(name, &key)
    }
}
