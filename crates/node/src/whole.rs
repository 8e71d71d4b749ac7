//! Files that nobody sees half written.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

/// Writes a file in place of one that may be there, and onto the disk.
///
/// * `mode` — its rights.
///
/// # Errors
/// It cannot be written; what was there is there still.
pub fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    put(path, text, mode, None)
}

/// The same with rights and owner of another file, which may be the one that is replaced.
///
/// * `mode` — its rights if there is no such file.
///
/// # Errors
/// As [`write()`].
pub fn write_like(path: &Path, text: &str, like: &Path, mode: u32) -> io::Result<()> {
    match fs::metadata(like) {
        Ok(like) => put(path, text, like.mode() & 0o7777, Some(&like)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => put(path, text, mode, None),
        Err(error) => Err(error),
    }
}

fn put(path: &Path, text: &str, mode: u32, like: Option<&Metadata>) -> io::Result<()> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".new-{}", std::process::id()));
    let fresh = path.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&fresh)?;
    let belongs = like.map_or(Ok(()), |like| give(&file, like));
    let written = belongs.and_then(|()| file.write_all(text.as_bytes()));
    let written = written.and_then(|()| file.sync_all()).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // The error tells more than one of clearing up would.
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// Rights last, which a change of the owner takes away in part.
fn give(file: &File, like: &Metadata) -> io::Result<()> {
    fchown(file, Some(like.uid()), Some(like.gid()))?;
    file.set_permissions(fs::Permissions::from_mode(like.mode() & 0o7777))
}
