//! One node: where a job starts its shares are made real and its tasks told of them, where it ends all is
//! taken back. Run by Slurm's Prolog and Epilog, as root, each a short process of its own: what lasts is in
//! the machine's journal and in the job's files.

mod epilog;
mod files;
mod mapping;
mod prolog;
mod requeue;
mod shares;
mod slots;
mod without;

use std::path::{Path, PathBuf};

use node::gpu_lock::{self, Taken};
use node::machine::{Machine, MachineError, MachineOptions};
use thiserror::Error;

use crate::commands::{Slurm, SlurmError};
use crate::site::Site;
pub use epilog::{Tidied, Used};
pub use prolog::Verdict;
pub use requeue::{send_back, sent_back};
pub use without::Without;

/// How we are called where a GPU's lock is wanted by others.
const OURS: &str = "hotpot's Prolog or Epilog of Slurm";

/// A node as Slurm calls it, with what is needed to act on it.
#[derive(Debug)]
pub struct Node {
    name: String,
    site: Site,
    slurm: Slurm,
    machine: Machine,
    jobs: PathBuf,
}

/// Why a node could not do what a job needs. Slurm takes such a node out of use.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The driver, the journal, or what holds caps.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The driver does not tell of the GPUs.
    #[error(transparent)]
    Driver(#[from] node::driver::DriverError),
    /// Slurm.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    /// A file of a job.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Slurm's devices and the machine's do not match.
    #[error("GPU {index} of gres.conf: {why}; see `hotpot slurm conf`")]
    NoDevice {
        /// Position in gres.conf.
        index: u32,
        /// What is wrong.
        why: String,
    },
    /// What tells a job's tasks of their caps is not there: they would run without.
    #[error(
        "the plugin is missing: {0}; without it tasks would run without caps. `cargo xtask install` puts it there"
    )]
    NoPlugin(std::io::Error),
}

impl Node {
    /// Opens this machine as the node of that name.
    ///
    /// # Errors
    /// No driver, or no usable state folder.
    pub fn open(name: &str, site: Site) -> Result<Self, NodeError> {
        let machine = Machine::open(MachineOptions::default())?;
        let jobs = site.jobs_of(name);
        Ok(Self { name: name.to_owned(), site, slurm: Slurm, machine, jobs })
    }

    fn file(&self, job: u32, kind: &str) -> PathBuf {
        self.jobs.join(format!("{job}.{kind}"))
    }
}

/// The plugin that tells tasks of their caps, as it is built and installed.
const PLUGIN: &str = "libhotpot_spank.so";

/// How the machine's journal calls a job.
fn holder(job: u32) -> String {
    format!("slurm/{job}")
}

/// The job that a holder of the journal is.
fn job_of(holder: &str) -> Option<u32> {
    holder.strip_prefix("slurm/")?.parse().ok()
}

/// Takes the lock of a GPU. Prologs and Epilogs have it for moments, and wait for each other.
pub(crate) fn locked(gpu: &str) -> Result<Taken, NodeError> {
    Ok(gpu_lock::take_for_a_moment(gpu, OURS).map_err(MachineError::from)?)
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> NodeError {
    let path = path.to_owned();
    move |source| NodeError::File { path, source }
}
