//! Whose a process is: found from what the kernel says of it (cgroup, ancestry), never from what
//! the process says of itself.

mod cgroup;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::account::Counts;
use crate::live::{self, LiveShare, Published};
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
    /// A claim of Kubernetes that has been made real here, by its UID: what containers hold by it is one account.
    Claim(String),
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
    /// Runs and who published them.
    runs: BTreeSet<(String, u32)>,
    /// What tasks have been given.
    shares: Vec<Given>,
    /// The same of tasks that have just ended, too.
    booked: Vec<Booked>,
    ended: Vec<Ended>,
    /// Shares that no run publishes.
    seated: Vec<Booked>,
}

/// What a task has been given of a GPU, as its run says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The task.
    pub tenant: Tenant,
    /// What it holds.
    pub share: LiveShare,
}

/// A share of which there may be an account, and the user who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    /// What was given, and to whom.
    pub given: Given,
    /// Owner of the run.
    pub user: u32,
}

/// What tasks of a run that have ended had booked on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The run.
    pub run: String,
    /// UUID of the GPU.
    pub gpu: String,
    /// The sum.
    pub counts: Counts,
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
        let (roots, runs) = (BTreeMap::new(), BTreeSet::new());
        let (live, shares) = (live::folder(state), Vec::new());
        let (booked, ended, seated) = (Vec::new(), Vec::new(), Vec::new());
        Self { procfs, live, roots, runs, shares, booked, ended, seated }
    }

    /// Says which shares are held by others than runs, from the next [`Tenants::refresh`] on.
    pub fn seat(&mut self, seated: Vec<Booked>) {
        self.seated = seated;
    }

    /// Reads again which runs are going on.
    pub fn refresh(&mut self) {
        self.roots.clear();
        self.runs.clear();
        self.shares.clear();
        self.booked.clear();
        self.ended.clear();
        for Published { user, run } in live::published(&self.live) {
            let is_at_work = self.lives(run.pid, run.start_ticks);
            for task in run.tasks {
                let tenant = Tenant::Task { run: run.run.clone(), task: task.task };
                let runs = self.lives(task.pid, task.start_ticks);
                for share in task.shares.into_iter().filter(|_| runs || is_at_work) {
                    let given = Given { tenant: tenant.clone(), share };
                    self.shares.extend(runs.then(|| given.clone()));
                    self.booked.push(Booked { given, user });
                }
                let root = Root { start_ticks: task.start_ticks, user, tenant };
                self.roots.entry(task.pid).or_default().push(root);
            }
            let name = run.run.clone();
            let ended = run.ended.into_iter().filter(|_| is_at_work);
            self.ended.extend(ended.map(|(gpu, counts)| Ended { run: name.clone(), gpu, counts }));
            self.runs.insert((run.run, user));
        }
        self.shares.extend(self.seated.iter().map(|booked| booked.given.clone()));
        self.booked.extend(self.seated.iter().cloned());
    }

    fn lives(&self, pid: u32, start_ticks: u64) -> bool {
        self.procfs.living(pid).is_some_and(|facts| facts.start_ticks == start_ticks)
    }

    /// What running tasks have been given, as of the last [`Tenants::refresh`].
    pub fn given(&self) -> &[Given] {
        &self.shares
    }

    /// Shares of which there may be an account, as of the last [`Tenants::refresh`]: those of running
    /// tasks, and of tasks that have just ended and are not yet in [`Tenants::ended`].
    pub fn booked(&self) -> &[Booked] {
        &self.booked
    }

    /// What ended tasks of runs had booked that are going on.
    pub fn ended(&self) -> &[Ended] {
        &self.ended
    }

    /// Whose a process is.
    pub fn of(&self, pid: u32) -> Tenant {
        let Some(facts) = self.procfs.facts(pid) else { return Tenant::Unknown };
        let by_cgroup = || {
            let named = cgroup::tenant(&self.procfs.cgroup(pid)?)?;
            self.is_known(&named, pid).then_some(named)
        };
        let by_user = || self.procfs.user(pid).map(Tenant::User);
        by_cgroup()
            .or_else(|| self.by_ancestry(pid, facts))
            .or_else(by_user)
            .unwrap_or(Tenant::Unknown)
    }

    /// Any user may call cgroups below its own as we call ours: what such a name says counts only if
    /// the run is published, by that user or by root.
    fn is_known(&self, named: &Tenant, pid: u32) -> bool {
        let Tenant::Task { run, .. } = named else { return true };
        let by = |user| self.runs.contains(&(run.clone(), user));
        by(0) || self.procfs.user(pid).is_some_and(by)
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
