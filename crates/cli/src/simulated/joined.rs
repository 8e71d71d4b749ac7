//! `--simulate-gpus FOLDER`: a simulated machine that another command has made and still keeps up.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use node::procfs::Procfs;

use fake_machine::layout;

use super::maker;
use crate::failure::Failure;

const WAY_OUT: &str = "write MODEL:COUNT such as a100-80gb:8 for a new machine, or the folder that \
                       `hotpot run --simulate-gpus MODEL:COUNT` has told and that is in use still";

/// Whether a folder is meant, and no list of GPUs.
pub(super) fn is_folder(asked: &str) -> bool {
    asked.contains('/')
}

/// The machine's folder, absolute.
///
/// # Errors
/// It is not there, it is none, it is another user's, or the command that made it has ended.
pub(super) fn find(asked: &str) -> Result<PathBuf, Failure> {
    let no = |why: &str| Failure::Usage(format!("--simulate-gpus {asked}: {why}; {WAY_OUT}"));
    let folder = fs::canonicalize(asked).map_err(|error| no(&error.to_string()))?;
    let about = fs::metadata(&folder).map_err(|error| no(&error.to_string()))?;
    let Some(pid) = maker(&folder).filter(|_| about.is_dir()) else {
        return Err(no("no folder of a simulated machine"));
    };
    // Programs and libraries of the machine are started from there.
    let (own, of) = (nix::unistd::geteuid().as_raw(), about.uid());
    if own != of || about.mode() & 0o022 != 0 {
        return Err(no(&format!("it is the machine of user {of}, and this is user {own}")));
    }
    if Procfs::default().living(pid).is_none() || !folder.join(layout::STATE).exists() {
        return Err(no(&format!("the command that made it (process {pid}) has ended")));
    }
    Ok(folder)
}

/// Keeps the machine there as long as the file is open, even when the command that made it ends.
///
/// # Errors
/// It is being taken away at this moment.
pub(super) fn stay(folder: &Path) -> Result<File, Failure> {
    let stay = || {
        let file = File::open(folder).ok()?;
        file.try_lock_shared().ok()?;
        folder.join(layout::STATE).exists().then_some(file)
    };
    stay().ok_or_else(|| {
        let folder = folder.display();
        Failure::Usage(format!("--simulate-gpus {folder}: it is being taken away; {WAY_OUT}"))
    })
}

/// Has nobody else join a machine from now on; `None` if somebody is there.
pub(super) fn alone(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    file.try_lock().ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(asked: &str) -> String {
        find(asked).expect_err("it cannot be joined").to_string()
    }

    #[test]
    fn what_cannot_be_joined_is_told_with_the_way_out() {
        let place = std::env::temp_dir().join(format!("joined-{}", std::process::id()));
        let named = |pid: u32| place.join(format!("{}{pid}", super::super::PREFIX));
        // Beyond the largest number of a process (proc(5), pid_max).
        let (own, gone) = (named(std::process::id()), named(1 << 22));
        for folder in [&own, &gone] {
            fs::create_dir_all(folder.join(layout::STATE)).unwrap();
        }
        let text = |folder: &Path| folder.display().to_string();
        assert!(why(&text(&place.join("none"))).contains("No such file or directory"));
        assert!(why(&text(&place)).contains("no folder of a simulated machine"));
        assert!(why(&text(&gone)).contains("(process 4194304) has ended; write MODEL:COUNT"));
        assert_eq!(find(&format!("{}/", own.display())).unwrap(), fs::canonicalize(&own).unwrap());
        fs::remove_dir(own.join(layout::STATE)).unwrap();
        assert!(why(&text(&own)).contains("has ended"));
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_machine_stays_as_long_as_somebody_is_there() {
        let folder = std::env::temp_dir().join(format!("stay-{}", std::process::id()));
        fs::create_dir_all(folder.join(layout::STATE)).unwrap();
        let guests = [stay(&folder).unwrap(), stay(&folder).unwrap()];
        assert!(alone(&folder).is_none());
        drop(guests);
        let last = alone(&folder).unwrap();
        assert!(stay(&folder).is_err());
        drop(last);
        fs::remove_dir_all(&folder).unwrap();
    }
}
