//! Who belongs to a cluster besides its daemons: whatever its jobs have started, by what the kernel knows of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use lab_base::process::{Process, Stat, table};

/// Names the folder of the node's machine in what runs on a node.
pub(crate) const NODE_VARIABLE: &str = "SLURM_LAB_NODE";

/// The processes of a cluster's jobs, prologs and epilogs: job steps' daemons that have its files open (their
/// environment they write over), whatever has its nodes' environment, `parents`, and all their descendants.
/// This process and its ancestors are never among them.
pub(crate) fn of_nodes(folder: &Path, parents: &[Process]) -> BTreeSet<Process> {
    let table = table();
    let is_root = |it: &&(Process, Stat)| {
        let (process, stat) = it;
        parents.contains(process)
            || stat.name == "slurmstepd" && has_open(*process, folder)
            || is_on_node(*process, folder)
    };
    let mut found: BTreeSet<Process> = table.iter().filter(is_root).map(|it| it.0).collect();
    loop {
        let numbers: BTreeSet<i32> =
            found.iter().map(|process| process.pid().cast_signed()).collect();
        let children = table.iter().filter(|(_, stat)| numbers.contains(&stat.parent));
        let before = found.len();
        found.extend(children.map(|it| it.0));
        if found.len() == before {
            break;
        }
    }
    let mut own = std::process::id().cast_signed();
    while own > 0 {
        found.retain(|process| process.pid().cast_signed() != own);
        own = Stat::read(own).map_or(0, |stat| stat.parent);
    }
    found
}

/// Whether a process has a file in a folder open.
fn has_open(process: Process, folder: &Path) -> bool {
    let mut files =
        fs::read_dir(format!("/proc/{}/fd", process.pid())).into_iter().flatten().flatten();
    files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.starts_with(folder)))
}

/// Whether a process was started with the environment of one of the cluster's nodes.
fn is_on_node(process: Process, folder: &Path) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", process.pid())).unwrap_or_default();
    let begin = format!("{NODE_VARIABLE}={}/", folder.display());
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(begin.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use lab_base::process::kill_all;

    use super::*;

    fn sleeper(folder: &str) -> Process {
        let mut command = Command::new("sh");
        // The inner sleep is found by its parent, not by its environment.
        command.args(["-c", "env -i sleep 600; true"]).env(NODE_VARIABLE, folder);
        Process::spawn(&mut command, Path::new("/dev/null")).unwrap()
    }

    #[test]
    fn what_runs_on_a_node_is_found_with_its_children_and_ended() {
        let folder = format!("/lab-{}", std::process::id());
        let (ours, other) = (sleeper(&format!("{folder}/n1")), sleeper(&format!("{folder}x/n1")));
        let end = Instant::now() + Duration::from_secs(60);
        while of_nodes(Path::new(&folder), &[]).len() < 2 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let found = of_nodes(Path::new(&folder), &[]);
        assert!(found.contains(&ours) && found.len() == 2, "{found:?}");
        kill_all(&found);
        assert!(!ours.is_alive());
        assert!(other.is_alive());
        kill_all(&of_nodes(Path::new("/none"), &[other]));
        assert!(!other.is_alive());
    }
}
