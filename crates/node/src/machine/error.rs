//! Why something could not be done on this machine.

use std::path::PathBuf;

use crate::driver::{DriverError, Fault};
use crate::gpu_lock::GpuLockError;
use crate::journal::JournalError;
use crate::limiter::BooksError;
use crate::memory_limit::LimitError;
use crate::mig::MigError;
use crate::mps::MpsError;
use crate::state_dir::StateDirError;
use crate::tool::ToolError;

/// Why something could not be done on this machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The driver cannot be reached or refuses.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// MIG instances or MIG mode.
    #[error(transparent)]
    Mig(#[from] MigError),
    /// The journal. A change that could not be written down was not made.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The state folder.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The daemon of MPS.
    #[error(transparent)]
    Mps(#[from] MpsError),
    /// A tool that is missing.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The driver's memory limits.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// What the limiter is to be told.
    #[error(transparent)]
    Books(#[from] BooksError),
    /// The lock of a GPU.
    #[error(transparent)]
    GpuLock(#[from] GpuLockError),
    /// It would hurt somebody, or the GPU cannot do it.
    #[error("{gpu}: {why}")]
    Refused {
        /// UUID of the GPU.
        gpu: String,
        /// Why.
        why: String,
    },
    /// What others hold leaves no room for a share.
    #[error("{gpu}: {why}; it is held by {}", holders.join(", "))]
    Taken {
        /// UUID of the GPU.
        gpu: String,
        /// What is missing.
        why: String,
        /// Who holds it.
        holders: Vec<String>,
    },
    /// Another hotpot is changing the GPUs.
    #[error(
        "`{path}`: another hotpot has been changing GPUs for {waited_s} s; wait for it, or end it"
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long we waited.
        waited_s: u64,
    },
    /// The lock file cannot be made.
    #[error(
        "cannot make the lock file `{path}`: {source}; set HOTPOT_STATE_DIR to a folder that can be written"
    )]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

impl MachineError {
    /// Why the driver refused, if it did, whatever was being done.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Driver(error)
            | Self::Mig(MigError::Driver(error))
            | Self::Limit(LimitError::Driver(error)) => error.fault(),
            Self::Mig(_)
            | Self::Limit(_)
            | Self::Journal(_)
            | Self::StateDir(_)
            | Self::Mps(_)
            | Self::Tool(_)
            | Self::Books(_)
            | Self::GpuLock(_)
            | Self::Refused { .. }
            | Self::Taken { .. }
            | Self::Locked { .. }
            | Self::Lock { .. } => None,
        }
    }

    pub(crate) fn refused(gpu: &str, why: impl Into<String>) -> Self {
        Self::Refused { gpu: gpu.to_owned(), why: why.into() }
    }
}
