//! The cgroups of a cluster's pods: made for its nodes, removed when it is gone. Of v1 each controller has a tree; v2 is one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use lab_base::{LabError, Place, at};

const ROOT: &str = "/sys/fs/cgroup";
/// Without these a new cpuset takes no process.
const OF_CPUSETS: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];

/// A name that no other cluster has.
pub(crate) fn new_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("hotpot-lab-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// That of the cluster in a folder; empty if there is none.
pub(crate) fn name_of(place: &Place) -> String {
    fs::read_to_string(place.path("run/cgroup")).unwrap_or_default()
}

/// Makes the cgroup of a node.
pub(crate) fn make(cgroup: &str, node: &str) -> Result<(), LabError> {
    for root in roots() {
        let mut path = root.clone();
        for name in [cgroup, node] {
            path.push(name);
            fs::create_dir_all(&path).map_err(at(&path))?;
            inherit(&path)?;
        }
    }
    Ok(())
}

/// Empties that of a node, as a start of the machine does: a kubelet that finds cgroups of pods without containerd knowing of their
/// containers waits 3 s for each. Processes must be gone.
pub(crate) fn renew(cgroup: &str, node: &str) -> Result<(), LabError> {
    if !cgroup.is_empty() {
        roots().into_iter().for_each(|root| remove_tree(&root.join(cgroup).join(node)));
    }
    make(cgroup, node)
}

/// Removes all of a cluster's, deepest first; processes must be gone.
pub(crate) fn remove(cgroup: &str) {
    if cgroup.is_empty() {
        return;
    }
    roots().into_iter().for_each(|root| remove_tree(&root.join(cgroup)));
}

/// The trees: of v1 one for each controller and one for systemd, of v2 one.
fn roots() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut roots: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() && !path.is_symlink())
        .collect();
    roots.sort();
    roots
}

fn inherit(path: &Path) -> Result<(), LabError> {
    for name in OF_CPUSETS {
        let (own, above) = (path.join(name), path.with_file_name(name));
        // In v2 they are inherited as they are.
        if own.exists() && above.exists() {
            let value = fs::read_to_string(&above).map_err(at(&above))?;
            fs::write(&own, value).map_err(at(&own))?;
        }
    }
    Ok(())
}

fn remove_tree(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}
