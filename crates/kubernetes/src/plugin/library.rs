//! The limiter library where containers can be given it: a copy in the state folder, which the machine has too if the
//! plugin itself runs in a container. Each release has its own place: who started under one keeps it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use node::limiter::{LIBRARY, Limiter};

/// Where containers find it.
pub(super) const INSIDE: &str = "/run/hotpot/libhotpot_limiter.so";
/// In the state folder.
const FOLDER: &str = "lib";
/// Beside the library: names it for the loader.
const PRELOAD: &str = "ld.so.preload";
/// Copies that stay although nobody has been given them.
const KEPT: usize = 4;
const LIBRARY_MODE: u32 = 0o755;
const PRELOAD_MODE: u32 = 0o644;

/// Puts a copy of the library in its place, and says where; `None` where there is no library to be had.
///
/// * `named` — as for [`Limiter::find`].
///
/// # Errors
/// The copy cannot be made.
pub(super) fn install(state: &Path, named: Option<&Path>) -> io::Result<Option<PathBuf>> {
    let Ok(limiter) = Limiter::find(named) else { return Ok(None) };
    let bytes = fs::read(limiter.path())?;
    let folder = state.join(FOLDER).join(format!("{:016x}", crate::names::fingerprint(&bytes)));
    fs::create_dir_all(&folder)?;
    let library = folder.join(LIBRARY);
    if fs::read(&library).ok().as_ref() != Some(&bytes) {
        put(&library, &bytes, LIBRARY_MODE)?;
    }
    put(&folder.join(PRELOAD), format!("{INSIDE}\n").as_bytes(), PRELOAD_MODE)?;
    Ok(Some(library))
}

/// The file that names a library for the loader.
pub(super) fn preload(library: &Path) -> PathBuf {
    library.with_file_name(PRELOAD)
}

/// Removes copies that nobody has been given, but for the newest: another plugin may be serving by one of those.
///
/// * `used` — libraries that are in use.
pub(super) fn sweep(state: &Path, used: &BTreeSet<PathBuf>) {
    let kept: BTreeSet<&Path> = used.iter().filter_map(|library| library.parent()).collect();
    let entries = fs::read_dir(state.join(FOLDER)).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let written = |folder: &PathBuf| {
        fs::metadata(folder.join(PRELOAD)).and_then(|about| about.modified()).ok()
    };
    folders.sort_by_cached_key(|folder| std::cmp::Reverse(written(folder)));
    for folder in folders.iter().skip(KEPT).filter(|folder| !kept.contains(folder.as_path())) {
        // What cannot be removed now is tried again at the next start.
        let _left = fs::remove_dir_all(folder);
    }
}

fn put(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let fresh = path.with_extension(format!("new-{}", std::process::id()));
    let written = fs::write(&fresh, bytes)
        .and_then(|()| fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // The error tells more than one of clearing up would.
        let _left = fs::remove_file(&fresh);
    }
    written
}
