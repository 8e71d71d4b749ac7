//! What the kernel says of a process: parent, session, start, owner, cgroups.

use std::fs;
use std::path::{Path, PathBuf};

/// The kernel's table of processes: `/proc`, or a folder of the same form.
#[derive(Clone, Debug)]
pub struct Procfs {
    root: PathBuf,
}

/// One process as `/proc/PID/stat` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The parent; 0 for none.
    pub parent: u32,
    /// The process group, named by its first process.
    pub group: u32,
    /// The session, named by the process that opened it.
    pub session: u32,
    /// When it started, in clock ticks since boot; with the pid it names one process for good.
    pub start_ticks: u64,
}

impl Default for Procfs {
    fn default() -> Self {
        Self::at(Path::new("/proc"))
    }
}

impl Procfs {
    /// A table that lies elsewhere.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// Parent, session and start; `None` if the process has gone.
    pub fn facts(&self, pid: u32) -> Option<ProcessFacts> {
        parse_stat(&self.read(pid, "stat")?)
    }

    /// Parent, session and start; `None` if the process has gone, or has ended and its parent has not
    /// looked after it yet.
    pub fn living(&self, pid: u32) -> Option<ProcessFacts> {
        let stat = self.read(pid, "stat")?;
        let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
        (!matches!(state, 'Z' | 'X')).then(|| parse_stat(&stat))?
    }

    /// The real user; `None` if the process has gone.
    pub fn user(&self, pid: u32) -> Option<u32> {
        let status = self.read(pid, "status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    }

    /// The text of `/proc/PID/cgroup`; `None` if the process has gone.
    pub fn cgroup(&self, pid: u32) -> Option<String> {
        self.read(pid, "cgroup")
    }

    /// Names need not be UTF-8: a process chooses its own.
    fn read(&self, pid: u32, file: &str) -> Option<String> {
        let bytes = fs::read(self.root.join(pid.to_string()).join(file)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The name, second of the fields, may hold blanks and parentheses: what counts stands behind the
/// last `)` (proc_pid_stat(5): state is field 3, parent 4, group 5, session 6,
/// start 22).
fn parse_stat(text: &str) -> Option<ProcessFacts> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    Some(ProcessFacts {
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_fields() {
        let text = "7 (a) S 1 1 1 (b) R 5 6 9 0 -1 1 2 3 4 5 6 7 8 9 20 0 1 0 4711 1 2 3";
        let facts = parse_stat(text).unwrap();
        assert_eq!(facts, ProcessFacts { parent: 5, group: 6, session: 9, start_ticks: 4711 });
        assert_eq!(parse_stat("7 (a) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn who_has_ended_unreaped_is_not_living() {
        let table = std::env::temp_dir().join(format!("hotpot-procfs-{}", std::process::id()));
        let line =
            |state| format!("7 (a) {state} 1 1 1 0 -1 1 2 3 4 5 6 7 8 9 20 0 1 0 0 4711 1 2 3");
        fs::create_dir_all(table.join("7")).unwrap();
        let living = |state| {
            fs::write(table.join("7/stat"), line(state)).unwrap();
            Procfs::at(&table).living(7).is_some()
        };
        assert_eq!(["S", "Z", "X"].map(living), [true, false, false]);
        fs::remove_dir_all(&table).unwrap();
    }

    #[test]
    fn this_process_is_there() {
        let own = Procfs::default().facts(std::process::id()).unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(own.start_ticks > 0);
    }

    #[test]
    fn who_is_not_there_has_no_facts() {
        let nobody = Procfs::at(Path::new("/nonexistent"));
        assert_eq!((nobody.facts(1), nobody.user(1), nobody.cgroup(1)), (None, None, None));
    }
}
