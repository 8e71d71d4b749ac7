//! Why a run cannot begin or go on.

use std::io;
use std::path::PathBuf;

/// What, where, why, and the way out.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A dependency on a job that is not there.
    #[error(
        "job {job}: a dependency names {wanted:?}, which is no job of this run: there are {there_are}; give the file of that job too, or its name as it stands there"
    )]
    NoSuchJob {
        /// The job that waits.
        job: String,
        /// What it names.
        wanted: String,
        /// The names that there are, or some of them.
        there_are: String,
    },
    /// Jobs that wait for one another.
    #[error("job {job}: waits for jobs that wait for it; take one --dependency out")]
    Circle {
        /// One of them.
        job: String,
    },
    /// A gang has no second machine here.
    #[error(
        "job {job}: asks for {members} nodes, and this is one machine; ask for one node, or submit it to Slurm"
    )]
    Gang {
        /// The job.
        job: String,
        /// Members.
        members: u32,
    },
    /// A folder or file of the run.
    #[error("{}: {what}: {error}; {way_out}", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
        /// What to do.
        way_out: &'static str,
    },
    /// The journal.
    #[error("{0}")]
    Journal(String),
    /// The GPUs.
    #[error("{0}")]
    Gpus(String),
    /// All GPUs are in use, or one that was named is.
    #[error("{0}")]
    Busy(String),
    /// There is no such run to continue.
    #[error("{0}")]
    Resume(String),
    /// A system call of the supervisor.
    #[error("cannot supervise tasks: {what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}
