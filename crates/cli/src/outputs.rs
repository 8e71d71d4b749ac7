//! Files that a verb writes beside what it prints: looked at before the work, written whole after it.

use std::path::{Path, PathBuf};

use simulator::report;

use crate::failure::{Answer, Failure};
use crate::screen;

const STDOUT: &str = "/dev/stdout";

/// Finds out before the work, not after it, that its result has no place to go, or would replace a
/// file that is read.
///
/// * `written` — options with their files, those that are given.
pub(crate) fn check(read: &[&Path], written: &[(&str, &Path)]) -> Result<(), Failure> {
    let mut taken: Vec<PathBuf> = read.iter().map(|path| place(path)).collect();
    for (option, path) in written {
        if path.as_os_str() == "-" {
            let text = format!("{option} -: for standard output write {STDOUT}");
            return Err(Failure::Usage(text));
        }
        report::check_place(path)?;
        let place = place(path);
        if taken.contains(&place) && !is_special(path) {
            let path = path.display();
            let text = format!("{option} {path}: is read or written already; name another file");
            return Err(Failure::Usage(text));
        }
        taken.push(place);
    }
    Ok(())
}

/// The path without links and dots, as far as it exists.
fn place(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let new = || {
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(new).unwrap_or_else(|| path.to_path_buf())
}

/// Whether the path names a pipe, a terminal or a device.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file())
}

/// Writes a file, all of it or nothing, and says so.
pub(crate) fn write(path: &Path, contents: &str, what: &str) -> Result<Answer, Failure> {
    if path == Path::new(STDOUT) {
        // Through the stream that the table takes: a second opening would begin at its start again.
        return screen::print(contents);
    }
    report::write_whole(path, contents.as_bytes())?;
    screen::note(&format!("{what}: {}", path.display()));
    Ok(Answer::Yes)
}
