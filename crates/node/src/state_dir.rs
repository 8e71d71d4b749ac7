//! The folder that keeps hotpot's state on this machine: one for root, one for each other user.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

/// Names another folder.
pub const STATE_VARIABLE: &str = "HOTPOT_STATE_DIR";
const ROOTS: &str = "/var/lib/hotpot";

/// The folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// Nothing says where it should be.
    #[error(
        "no place for hotpot's state: neither {STATE_VARIABLE} nor HOME is set; set {STATE_VARIABLE} to a folder"
    )]
    Nowhere,
    /// It cannot be made.
    #[error(
        "cannot make the state folder `{path}`: {source}; set {STATE_VARIABLE} to a folder that can be written"
    )]
    Make {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// The folder: `HOTPOT_STATE_DIR`; else `/var/lib/hotpot` for root; else `hotpot/HOST` in
/// `XDG_STATE_HOME` or `~/.local/state`, as homes are often shared by machines. Absolute; made,
/// readable by its owner alone, if it is missing.
///
/// # Errors
/// That no place is known or that it cannot be made.
pub fn state_dir() -> Result<PathBuf, StateDirError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let path = place(variable, Uid::effective().is_root(), &host())?;
    make(&path)?;
    // Those who get it may work elsewhere.
    Ok(std::path::absolute(&path).unwrap_or(path))
}

/// Makes a folder with its parents, readable by its owner alone; one that is there is left as it is.
///
/// # Errors
/// [`StateDirError::Make`].
pub fn make(path: &Path) -> Result<(), StateDirError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| StateDirError::Make { path: path.to_owned(), source })
}

/// The machine's name without its domain: sockets lie below, and their paths must be short.
fn host() -> OsString {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy().replace('/', "-");
    let word = name.split('.').next().unwrap_or_default();
    if word.is_empty() { "unnamed".into() } else { word.into() }
}

fn place(
    variable: impl Fn(&str) -> Option<OsString>,
    root: bool,
    host: &OsStr,
) -> Result<PathBuf, StateDirError> {
    if let Some(named) = variable(STATE_VARIABLE) {
        return Ok(PathBuf::from(named));
    }
    if root {
        return Ok(PathBuf::from(ROOTS));
    }
    if let Some(state_home) = variable("XDG_STATE_HOME") {
        return Ok(Path::new(&state_home).join("hotpot").join(host));
    }
    let home = variable("HOME").ok_or(StateDirError::Nowhere)?;
    Ok(Path::new(&home).join(".local/state/hotpot").join(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_goes_first() {
        let named = |name: &str| (name == STATE_VARIABLE).then(|| OsString::from("/elsewhere"));
        let found = place(named, false, OsStr::new("node1"));
        assert_eq!(found.expect("a place"), PathBuf::from("/elsewhere"));
    }

    #[test]
    fn machines_with_one_home_have_their_own_folders() {
        let at = |host: &str, variable: &str, root| {
            let is_set = |name: &str| (name == variable).then(|| OsString::from("/home/a"));
            place(is_set, root, OsStr::new(host)).expect("a place")
        };
        assert_eq!(at("n1", "HOME", false), PathBuf::from("/home/a/.local/state/hotpot/n1"));
        assert_eq!(at("n2", "XDG_STATE_HOME", false), PathBuf::from("/home/a/hotpot/n2"));
        assert_eq!(at("n1", "HOME", true), PathBuf::from(ROOTS));
        assert!(!host().is_empty());
    }
}
