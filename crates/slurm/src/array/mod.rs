//! Arrays as a few pilot jobs that pull tasks, so that a GPU does not wait for Slurm's scheduler between
//! two of them.
//!
//! [`given`] is what a call of sbatch asks; [`submission`] makes the array's [`folder`] and submits the
//! pilots; each [`pilot`] takes tasks by the [`journal`], whose [`event`]s add up to a [`ledger`]; [`queue`]
//! asks Slurm, [`figures`] are for whoever looks.
//!
//! *Invariant:* a task is started after its claim is in the journal. *Invariant:* an end counts only for
//! the claim that stands. *Invariant:* nothing of a task is left running when its pilot goes on.

pub mod event;
pub mod figures;
pub mod folder;
pub mod given;
pub mod journal;
pub mod ledger;
pub mod pilot;
pub mod queue;
pub mod submission;

use std::io;
use std::path::{Path, PathBuf};

use crate::commands::SlurmError;

/// Why an array cannot be submitted, carried out or looked at.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// A file or folder of the array.
    #[error("{}: {what}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// A script that cannot be read.
    #[error(transparent)]
    Script(#[from] formats::ReadError),
    /// Words of the call that make no sense.
    #[error("{0}")]
    Usage(String),
    /// Slurm gives no answer.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    /// The system.
    #[error(transparent)]
    System(#[from] local::RunError),
}

/// For `map_err`: what was tried with a file.
fn of_file(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> ArrayError {
    move |error| ArrayError::File { path: path.to_path_buf(), what, error }
}
