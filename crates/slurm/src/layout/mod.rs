//! Moving nodes' GPUs from one layout to another: whole cards, or MIG instances.
//!
//! `demand` is what the queue asks, `plan` which cards should become what. `run` carries that out node by
//! node, by its `steps`, each in the `journal` before it is made; `ways` reach a node, where `on_node` divides the cards.
//! `edit` and `files` change one node's part of Slurm's files. Why a restart, and not less, is in
//! `docs/slurm-layouts.md`.

mod card;
mod demand;
pub mod edit;
mod files;
mod fleet;
mod journal;
mod lines;
mod note;
mod on_node;
mod packing;
mod plan;
mod run;
mod standing;
mod steps;
mod ways;

use std::path::PathBuf;

use node::driver::DriverError;
use node::machine::MachineError;
use node::tool::ToolError;
use thiserror::Error;

use crate::commands::SlurmError;
use crate::on_node::NodeError;
pub use card::{Becomes, Card, CardLayout, Files, NodeLayout, Request};
pub use demand::Demand;
pub use fleet::Fleet;
pub use journal::{Journal, Step, finished};
pub use on_node::OnNode;
pub use plan::{CardPlan, NodeCards, NodePlan, Plan, plan};
pub use run::{Ended, Run};
pub use standing::Standing;
pub use steps::Limits;
pub use ways::Ways;

/// Why a change of layout could not be planned or carried out.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// The driver, or who holds a card.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The driver does not tell of the GPUs.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// What jobs hold cannot be taken back.
    #[error(transparent)]
    OnNode(#[from] NodeError),
    /// Slurm.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    /// A command of the site's.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A node that cannot be changed.
    #[error("{node}: {why}")]
    Node {
        /// Which.
        node: String,
        /// Why.
        why: String,
    },
    /// A file.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// What was asked for cannot be understood, or not now.
    #[error("{0}")]
    Usage(String),
}

impl LayoutError {
    fn file(path: &str, why: impl ToString) -> Self {
        Self::File { path: path.to_owned(), why: why.to_string() }
    }

    fn node(node: &str, why: impl ToString) -> Self {
        Self::Node { node: node.to_owned(), why: why.to_string() }
    }
}

/// Where the journals of an administrator's machine lie.
///
/// # Errors
/// There is no place for hotpot's state.
pub fn folder() -> Result<PathBuf, LayoutError> {
    let state = node::state_dir::state_dir();
    let state = state.map_err(|error| LayoutError::Usage(error.to_string()))?;
    Ok(state.join("slurm-layouts"))
}
