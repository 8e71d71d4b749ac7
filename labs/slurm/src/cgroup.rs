//! The cgroups of a cluster's nodes (v1): `slurm_NODE` in every hierarchy.

use std::fs;
use std::path::{Path, PathBuf};

use lab_base::LabError;

const ROOT: &str = "/sys/fs/cgroup";

/// Refuses where devices cannot be constrained.
pub(crate) fn check() -> Result<(), LabError> {
    if Path::new(ROOT).join("devices/devices.list").exists() {
        return Ok(());
    }
    Err(LabError::Options("there is no cgroup v1 controller `devices` at /sys/fs/cgroup".into()))
}

/// The cgroups that are there of those nodes.
pub(crate) fn of(nodes: &[String]) -> Vec<PathBuf> {
    let hierarchies: Vec<PathBuf> = folders(Path::new(ROOT));
    let named = |node: &String| format!("slurm_{node}");
    let all = hierarchies.iter().flat_map(|at| nodes.iter().map(move |node| at.join(named(node))));
    all.filter(|path| path.exists()).collect()
}

/// Removes the cgroups of nodes, innermost first; what has a process in it stays.
pub(crate) fn remove(nodes: &[String]) {
    for path in of(nodes) {
        remove_tree(&path);
    }
}

fn remove_tree(path: &Path) {
    for folder in folders(path) {
        remove_tree(&folder);
    }
    let _ = fs::remove_dir(path);
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let real = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    real.map(|entry| entry.path()).collect()
}
