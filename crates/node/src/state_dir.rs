//! The folder that keeps hotpot's state on this machine: one for root, one for each other user.

use std::ffi::OsString;
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

/// The folder: `HOTPOT_STATE_DIR`; else `/var/lib/hotpot` for root; else `hotpot` in
/// `XDG_STATE_HOME` or `~/.local/state`. Made, readable by its owner alone, if it is missing.
///
/// # Errors
/// That no place is known or that it cannot be made.
pub fn state_dir() -> Result<PathBuf, StateDirError> {
    let path = place(|name| std::env::var_os(name).filter(|value| !value.is_empty()))?;
    make(&path)?;
    Ok(path)
}

/// Makes a folder with its parents, readable by its owner alone; one that is there is left as it is.
///
/// # Errors
/// [`StateDirError::Make`].
pub fn make(path: &Path) -> Result<(), StateDirError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| StateDirError::Make { path: path.to_owned(), source })
}

fn place(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, StateDirError> {
    if let Some(named) = variable(STATE_VARIABLE) {
        return Ok(PathBuf::from(named));
    }
    if Uid::effective().is_root() {
        return Ok(PathBuf::from(ROOTS));
    }
    if let Some(state_home) = variable("XDG_STATE_HOME") {
        return Ok(Path::new(&state_home).join("hotpot"));
    }
    let home = variable("HOME").ok_or(StateDirError::Nowhere)?;
    Ok(Path::new(&home).join(".local/state/hotpot"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_goes_first() {
        let named = |name: &str| (name == STATE_VARIABLE).then(|| OsString::from("/elsewhere"));
        assert_eq!(place(named).expect("a place"), PathBuf::from("/elsewhere"));
    }
}
