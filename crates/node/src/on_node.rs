//! Programs of the driver for a caller in a container: they run in the node's mounts, and in the cgroup of its first process, so
//! that a daemon of theirs outlives the container. Folders that they share with the caller must be at the same place for both.
//!
//! The way there leads through this program itself ([`exec`]): only a process with a single thread may change its mounts.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::{CloneFlags, setns};

/// Names the root below which the node has the driver; set where the caller is in a container that sees the node's processes.
pub const ROOT_VARIABLE: &str = "HOTPOT_NODE_DRIVER_ROOT";
/// The words that make this program call [`exec`].
pub const VERB: [&str; 2] = ["kubernetes", "on-node"];

/// The node's files, by its first process.
const NODE: &str = "/proc/1/root";
const CGROUPS: &str = "/sys/fs/cgroup";
const PROGRAMS: [&str; 3] = ["usr/bin", "bin", "usr/local/bin"];
const LIBRARIES: [&str; 4] = ["usr/lib/x86_64-linux-gnu", "usr/lib64", "lib64", "lib"];

/// The driver's root on the node; `None` for a caller that is on the node itself.
pub(crate) fn root() -> Option<PathBuf> {
    std::env::var_os(ROOT_VARIABLE).filter(|root| !root.is_empty()).map(PathBuf::from)
}

/// Where the node has a program of the driver.
///
/// A driver container's programs are left alone: they need its C library, and see none of the node's folders.
pub(crate) fn program(root: &Path, name: &str) -> Option<PathBuf> {
    let is_there = |path: &Path| fs::symlink_metadata(on_node(path)).is_ok_and(|it| !it.is_dir());
    let is_a_system = root != Path::new("/") && on_node(&root.join("etc")).is_dir();
    let programs = PROGRAMS.iter().map(|folder| root.join(folder).join(name));
    programs.filter(|_| !is_a_system).find(|path| is_there(path))
}

fn on_node(path: &Path) -> PathBuf {
    Path::new(NODE).join(path.strip_prefix("/").unwrap_or(path))
}

/// Becomes a program of the node; comes back only with what went wrong.
///
/// * `program` — as the node has it.
pub fn exec(program: &Path, words: &[OsString]) -> io::Error {
    let root = root().unwrap_or_else(|| "/".into());
    if let Err(error) = enter().and_then(|()| join_first()) {
        let text = format!("{}: cannot be run on the node: {error}", program.display());
        return io::Error::new(error.kind(), text);
    }
    let mut command = Command::new(program);
    if root != Path::new("/") {
        let folders =
            LIBRARIES.map(|folder| root.join(folder)).into_iter().filter(|it| it.is_dir());
        let folders: Vec<String> = folders.map(|folder| folder.display().to_string()).collect();
        command.env("LD_LIBRARY_PATH", folders.join(":"));
    }
    let error = command.args(words).exec();
    io::Error::new(error.kind(), format!("{}: {error}", program.display()))
}

/// Goes into the cgroups' and the mounts' namespace of the node's first process.
fn enter() -> io::Result<()> {
    let [cgroups, mounts] = ["cgroup", "mnt"].map(|name| File::open(format!("/proc/1/ns/{name}")));
    setns(cgroups?, CloneFlags::CLONE_NEWCGROUP)?;
    setns(mounts?, CloneFlags::CLONE_NEWNS)?;
    std::env::set_current_dir("/")
}

/// Leaves the container's cgroups for those of the node's first process: the runtime ends all that is in a container's.
fn join_first() -> io::Result<()> {
    let text = fs::read_to_string("/proc/1/cgroup")?;
    let files: Vec<PathBuf> = text.lines().flat_map(members).filter(|file| file.exists()).collect();
    for file in &files {
        // 0 is whoever writes it (cgroups(7)).
        OpenOptions::new().write(true).open(file)?.write_all(b"0")?;
    }
    let none = || io::Error::new(io::ErrorKind::NotFound, "no cgroup of the node's first process");
    if files.is_empty() { Err(none()) } else { Ok(()) }
}

/// Where the file of a cgroup's members is, by a line of `/proc/PID/cgroup` (cgroups(7)): one of these, as version 2 may
/// have a folder beside the trees of version 1.
fn members(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let trees = if controllers.is_empty() { vec!["", "unified"] } else { vec![controllers] };
    let file = |tree: &str| {
        let tree = Path::new(CGROUPS).join(tree.trim_start_matches("name="));
        tree.join(path.trim_start_matches('/')).join("cgroup.procs")
    };
    trees.into_iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_of_either_version_has_its_members_in_a_file() {
        for (line, files) in [
            ("0::/init.scope", &["init.scope", "unified/init.scope"][..]),
            ("0::/", &["", "unified"][..]),
            ("5:cpu,cpuacct:/a/b", &["cpu,cpuacct/a/b"][..]),
            ("1:name=systemd:/a:b", &["systemd/a:b"][..]),
            ("no line", &[][..]),
        ] {
            let wanted = files.iter().map(|it| Path::new(CGROUPS).join(it).join("cgroup.procs"));
            assert_eq!(members(line), wanted.collect::<Vec<_>>(), "{line}");
        }
    }
}
