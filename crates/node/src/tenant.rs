//! Whose a process is: found from what the kernel says of it (cgroup, ancestry), never from what
//! the process says of itself.

use serde::Serialize;

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
