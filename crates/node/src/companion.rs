//! Files that come with this program: beside it as cargo builds them, or in `../lib/hotpot` as they are
//! installed.

use std::io;
use std::path::{Path, PathBuf};

/// Where the libraries lie when installed, seen from the program's folder.
const INSTALLED: &str = "../lib/hotpot";

/// This program's own file, as the kernel has it: it can be started again also after a newer one was put in its
/// place.
pub const OWN: &str = "/proc/self/exe";

/// The folder in which a file of that name came with this program.
///
/// # Errors
/// It is in neither place ([`io::ErrorKind::NotFound`]; the text names the program's folder), or this
/// program's own file cannot be found.
pub fn folder_with(name: &str) -> io::Result<PathBuf> {
    // Its folder is enough: the file itself may have been replaced by a newer one since.
    let program = std::env::current_exe()?;
    let beside = program.parent().unwrap_or(Path::new("."));
    let mut places = [beside.to_owned(), beside.join(INSTALLED)].into_iter();
    places.find(|place| place.join(name).exists()).ok_or_else(|| {
        let text = format!("{name} is not in {} or {INSTALLED} there", beside.display());
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}
