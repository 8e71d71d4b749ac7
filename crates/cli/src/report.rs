//! `hotpot report`: what was held of GPUs and what was used.

use clap::{Args as Group, Subcommand};

use crate::failure::{Answer, Failure};
use crate::slurm::report::{self, OfSlurm};

#[derive(Debug, Group)]
pub(crate) struct Report {
    #[command(subcommand)]
    pub(crate) of: Of,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Of {
    /// Jobs of Slurm, by its accounting.
    Slurm(OfSlurm),
}

pub(crate) fn run(options: &Report) -> Result<Answer, Failure> {
    match &options.of {
        Of::Slurm(options) => report::run(options),
    }
}
