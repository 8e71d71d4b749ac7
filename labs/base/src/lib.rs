//! What every lab stands on: a folder of its own, processes that are known again by number, simulated GPUs, things on the
//! host that no two labs may take at once, packages.
#![forbid(unsafe_code)]

mod claim;
mod error;
pub mod machine;
pub mod packages;
mod place;
pub mod process;

pub use claim::Claim;
pub use error::{LabError, at};
pub use place::Place;
