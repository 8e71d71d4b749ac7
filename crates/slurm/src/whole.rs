//! Files that nobody sees half written.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file in place of one that may be there, and onto the disk.
///
/// * `mode` — its rights.
///
/// # Errors
/// It cannot be written; what was there is there still.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".new-{}", std::process::id()));
    let fresh = path.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&fresh)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let written = written.and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // The error tells more than one of clearing up would.
        let _ = fs::remove_file(&fresh);
    }
    written
}
