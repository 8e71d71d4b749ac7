//! Files on disk, whole or not at all: written beside their place, made durable, then renamed into it.
//!
//! A name that is not a plain file (`/dev/stdout`, a pipe) is written to directly, since a rename would
//! replace it. A symbolic link is followed: its target is replaced, not the link.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// Temporary names tried before giving up; another process may hold, or have left behind, some.
const NAMES_MAX: u32 = 100;

/// A file could not be written; what stood at its path before still does.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {attempt}: {source}; {}", path.display(), way_out(source.kind()))]
pub struct WriteError {
    /// The file asked for.
    pub path: PathBuf,
    /// The step that failed.
    pub attempt: &'static str,
    /// The system's answer.
    pub source: io::Error,
}

/// Says early what [`write_whole`] would stumble over later: a `path` that is a folder or lies in none.
///
/// # Errors
/// [`WriteError`]; without one, writing can still fail.
pub fn check_place(path: &Path) -> Result<(), WriteError> {
    let failed = |(attempt, source)| WriteError { path: path.to_owned(), attempt, source };
    let ends_in_slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if ends_in_slash || path.is_dir() {
        return Err(failed(("it is a folder", ErrorKind::IsADirectory.into())));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.map(fs::metadata) {
        Some(Err(error)) => Err(failed(("looking at its folder", error))),
        Some(Ok(found)) if !found.is_dir() => {
            Err(failed(("looking at its folder", ErrorKind::NotADirectory.into())))
        }
        None | Some(Ok(_)) => Ok(()),
    }
}

/// Writes `contents` to `path`, replacing what is there in one step.
///
/// After success the file is whole and on disk. Its permissions are those of the file it replaces, or
/// the process's default.
///
/// # Errors
/// [`WriteError`] if the folder is missing or read-only, the disk is full, or `path` is a folder; the
/// old file stays and nothing is left beside it.
pub fn write_whole(path: &Path, contents: &[u8]) -> Result<(), WriteError> {
    let failed = |(attempt, source)| WriteError { path: path.to_owned(), attempt, source };
    match fs::metadata(path) {
        Ok(old) if old.is_dir() => Err(failed(("it is a folder", ErrorKind::IsADirectory.into()))),
        Ok(old) if !old.is_file() => write_through(path, contents).map_err(failed),
        Ok(old) => {
            let target = fs::canonicalize(path).map_err(|e| failed(("following its links", e)))?;
            replace(&target, contents, Some(old.permissions())).map_err(failed)
        }
        Err(_) => replace(path, contents, None).map_err(failed),
    }
}

type Attempt<T> = Result<T, (&'static str, io::Error)>;

trait At<T> {
    fn at(self, attempt: &'static str) -> Attempt<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, attempt: &'static str) -> Attempt<T> {
        self.map_err(|source| (attempt, source))
    }
}

fn write_through(path: &Path, contents: &[u8]) -> Attempt<()> {
    let mut file = OpenOptions::new().write(true).open(path).at("opening it")?;
    file.write_all(contents).and_then(|()| file.flush()).at("writing to it")
}

fn replace(path: &Path, contents: &[u8], permissions: Option<fs::Permissions>) -> Attempt<()> {
    let (mut file, temporary) = create_beside(path).at("creating a temporary file beside it")?;
    let written = fill(&mut file, contents, permissions)
        .and_then(|()| fs::rename(&temporary, path).at("renaming the temporary file to it"));
    drop(file);
    if written.is_err() {
        // The first failure is the one to report; a second one here adds nothing to do.
        let _unreported = fs::remove_file(&temporary);
        return written;
    }
    make_rename_durable(path);
    Ok(())
}

fn fill(file: &mut File, contents: &[u8], permissions: Option<fs::Permissions>) -> Attempt<()> {
    file.write_all(contents).at("writing the temporary file beside it")?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions).at("giving the temporary file its permissions")?;
    }
    file.sync_all().at("bringing the temporary file to disk")
}

fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the path names no file"));
    };
    let mut attempt = 0;
    loop {
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(format!(".{}-{attempt}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary_name);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < NAMES_MAX => {
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The file is whole either way; some file systems cannot sync a folder, and that is no failure.
fn make_rename_durable(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let _best_effort =
        File::open(folder.unwrap_or_else(|| Path::new("."))).and_then(|folder| folder.sync_all());
}

#[expect(clippy::wildcard_enum_match_arm, reason = "ErrorKind is open: most kinds have no way out")]
fn way_out(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StorageFull => "free some space or name a file on another disk",
        ErrorKind::QuotaExceeded => "free some of your quota or name a file on another disk",
        ErrorKind::FileTooLarge => "raise the file size limit (ulimit -f) or name another disk",
        ErrorKind::NotFound => "create the folder first (mkdir -p) or name another",
        ErrorKind::NotADirectory => "a part of the path is a file: name another folder",
        ErrorKind::IsADirectory => "name a file inside it",
        ErrorKind::ReadOnlyFilesystem => "name a file on a disk that can be written",
        ErrorKind::PermissionDenied => "name a folder you may write to",
        ErrorKind::InvalidFilename => "name a shorter file",
        ErrorKind::BrokenPipe => "the reader has gone: keep it open until the end",
        _ => "name another file, or see to the cause and run again",
    }
}
