//! Whose a process is: found from what the kernel says of it (cgroup, ancestry), never from what
//! the process says of itself.

mod cgroup;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::live::{self, Published};
use crate::procfs::{ProcessFacts, Procfs};

/// Generations looked up; a tenant that hides deeper is its user's.
const ANCESTORS_MAX: usize = 64;

/// Who answers for a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tenant {
    /// A task that hotpot started on this machine.
    Task {
        /// The run.
        run: String,
        /// The task in it, as its owner names it.
        task: String,
    },
    /// A Slurm job.
    SlurmJob(u64),
    /// A Kubernetes pod, by its UID.
    Pod(String),
    /// A process that nobody here has started, by its user.
    User(u32),
    /// The process has gone or cannot be looked at.
    Unknown,
}

/// Finds out whose processes are, as of its last [`Tenants::refresh`].
#[derive(Debug)]
pub struct Tenants {
    procfs: Procfs,
    /// Where runs are published.
    live: PathBuf,
    /// First processes of tasks, by pid.
    roots: BTreeMap<u32, Vec<Root>>,
}

#[derive(Debug)]
struct Root {
    start_ticks: u64,
    /// Who says so; believed only of that user's processes, root's word of all.
    user: u32,
    tenant: Tenant,
}

impl Tenants {
    /// Knows the runs that publish themselves below a state folder.
    pub fn new(state: &Path) -> Self {
        Self::with_processes(Procfs::default(), state)
    }

    /// As [`Tenants::new`], with another table of processes.
    pub fn with_processes(procfs: Procfs, state: &Path) -> Self {
        Self { procfs, live: live::folder(state), roots: BTreeMap::new() }
    }

    /// Reads again which runs are going on.
    pub fn refresh(&mut self) {
        self.roots.clear();
        for Published { user, run } in live::published(&self.live) {
            for task in run.tasks {
                let tenant = Tenant::Task { run: run.run.clone(), task: task.task };
                let root = Root { start_ticks: task.start_ticks, user, tenant };
                self.roots.entry(task.pid).or_default().push(root);
            }
        }
    }

    /// Whose a process is.
    pub fn of(&self, pid: u32) -> Tenant {
        let Some(facts) = self.procfs.facts(pid) else { return Tenant::Unknown };
        let by_cgroup = || cgroup::tenant(&self.procfs.cgroup(pid)?);
        let by_user = || self.procfs.user(pid).map(Tenant::User);
        by_cgroup()
            .or_else(|| self.by_ancestry(pid, facts))
            .or_else(by_user)
            .unwrap_or(Tenant::Unknown)
    }

    /// The task whose first process is the process, one of its ancestors, or the one that opened its
    /// session: a child that outlived its parents keeps the session.
    fn by_ancestry(&self, pid: u32, facts: ProcessFacts) -> Option<Tenant> {
        if self.roots.is_empty() {
            return None;
        }
        let user = self.procfs.user(pid)?;
        let (mut at, mut here) = (pid, facts);
        for _ in 0..ANCESTORS_MAX {
            if let Some(tenant) = self.root(at, user, |root| root.start_ticks == here.start_ticks) {
                return Some(tenant);
            }
            at = here.parent;
            match self.procfs.facts(at) {
                // A parent that is younger than its child is another process with the same pid.
                Some(parent) if parent.start_ticks <= here.start_ticks => here = parent,
                _ => break,
            }
        }
        self.by_session(user, facts)
    }

    /// The kernel gives no pid anew while a session is called by it, so the process that opened the
    /// session is either gone or still the one that carries the number.
    fn by_session(&self, user: u32, facts: ProcessFacts) -> Option<Tenant> {
        let opener = self.procfs.facts(facts.session);
        self.root(facts.session, user, |root| match opener {
            Some(opener) => root.start_ticks == opener.start_ticks,
            None => root.start_ticks <= facts.start_ticks,
        })
    }

    fn root(&self, pid: u32, user: u32, is_it: impl Fn(&Root) -> bool) -> Option<Tenant> {
        let believed = |root: &&Root| (root.user == 0 || root.user == user) && is_it(root);
        Some(self.roots.get(&pid)?.iter().find(believed)?.tenant.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::live::{LiveRun, LiveTask};

    /// A table of processes and a state folder, both on disk.
    struct World(PathBuf);

    impl World {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("tenant-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            Self(root)
        }

        /// Adds a process: pid, parent, session, start.
        fn process(&self, pid: u32, parent: u32, session: u32, start: u64) -> &Self {
            self.owned(pid, parent, session, start, nix::unistd::getuid().as_raw())
        }

        fn owned(&self, pid: u32, parent: u32, session: u32, start: u64, user: u32) -> &Self {
            let folder = self.0.join("proc").join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            let zeros = "0 ".repeat(15);
            let stat = format!("{pid} (a b) S {parent} {pid} {session} {zeros}{start} 0 0");
            fs::write(folder.join("stat"), stat).unwrap();
            fs::write(folder.join("status"), format!("Name:\tx\nUid:\t{user}\t0\t0\t0\n")).unwrap();
            fs::write(folder.join("cgroup"), "0::/user.slice\n").unwrap();
            self
        }

        fn task(&self, pid: u32, start_ticks: u64) -> &Self {
            let task = LiveTask { task: "t".into(), pid, start_ticks, shares: Vec::new() };
            let run = LiveRun { run: "r".into(), pid: 1, start_ticks: 1, tasks: vec![task] };
            run.publish(&live::folder(&self.0)).unwrap();
            self
        }

        fn of(&self, pid: u32) -> Tenant {
            let procfs = Procfs::at(&self.0.join("proc"));
            let mut tenants = Tenants::with_processes(procfs, &self.0);
            tenants.refresh();
            tenants.of(pid)
        }
    }

    fn task() -> Tenant {
        Tenant::Task { run: "r".into(), task: "t".into() }
    }

    fn user() -> Tenant {
        Tenant::User(nix::unistd::getuid().as_raw())
    }

    #[test]
    fn a_grandchild_of_a_task_is_the_tasks() {
        let world = World::new("grandchild");
        world.process(1, 0, 1, 0).process(10, 1, 10, 50).process(11, 10, 10, 60);
        world.process(12, 11, 12, 70).process(20, 1, 20, 55).task(10, 50);
        assert_eq!((world.of(10), world.of(12)), (task(), task()));
        assert_eq!(world.of(20), user());
    }

    #[test]
    fn a_child_that_outlived_its_parents_is_known_by_its_session() {
        let world = World::new("orphan");
        world.process(1, 0, 1, 0).process(12, 1, 10, 70).task(10, 50);
        assert_eq!(world.of(12), task());
    }

    #[test]
    fn a_pid_that_was_given_anew_is_not_the_task() {
        let world = World::new("reuse");
        // The task 10 started at 50; the process that has the number now started at 90.
        world.process(1, 0, 1, 0).process(10, 1, 10, 90).process(11, 10, 10, 95).task(10, 50);
        assert_eq!((world.of(10), world.of(11)), (user(), user()));
        // A parent younger than its child is not its parent.
        let world = World::new("younger");
        world.process(1, 0, 1, 0).process(10, 1, 1, 90).process(11, 10, 1, 60).task(10, 90);
        assert_eq!(world.of(11), user());
    }

    #[test]
    fn nobody_vouches_for_another_users_processes() {
        let world = World::new("posed");
        let (own, other) = (nix::unistd::getuid(), nix::unistd::getuid().as_raw() + 1);
        world.process(1, 0, 1, 0).owned(10, 1, 10, 50, other).task(10, 50);
        if own.is_root() {
            // Root's word counts for all; a third user's does not.
            assert_eq!(world.of(10), task());
            let file = live::folder(&world.0).join("r.json");
            std::os::unix::fs::chown(file, Some(other + 1), None).unwrap();
        }
        assert_eq!(world.of(10), Tenant::User(other));
    }

    #[test]
    fn who_has_gone_is_unknown_and_circles_end() {
        let world = World::new("gone");
        world.process(10, 11, 1, 50).process(11, 10, 1, 50).task(99, 1);
        assert_eq!(world.of(5), Tenant::Unknown);
        assert_eq!(world.of(10), user());
    }

    #[test]
    fn a_real_child_of_this_process_is_found() {
        let world = World::new("real");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        world.task(own, Procfs::default().facts(own).unwrap().start_ticks);
        let mut tenants = Tenants::new(&world.0);
        tenants.refresh();
        let found = tenants.by_ancestry(child.id(), Procfs::default().facts(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, Some(task()));
        assert_eq!(tenants.of(child.id()), Tenant::Unknown);
    }
}
