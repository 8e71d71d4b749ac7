//! Text in, model out: every file that hotpot reads becomes a value of `model` here, or a
//! [`ReadError`] that names the file, the line and the way out.
//!
//! Traces (CSV), sbatch scripts, and fleet, workload and policy files (TOML or YAML; both take the
//! same path through one tree with positions). All readers take a [`Source`], which has the text of
//! one file. Nothing here decides, keeps time or writes.
#![forbid(unsafe_code)]

pub mod array;
pub mod calling;
mod command;
mod decimal;
mod demand;
mod dependency;
mod directives;
mod error;
pub mod fleet;
mod gpu_options;
mod gres;
mod here;
pub mod job;
mod jobs;
mod keys;
pub mod kubernetes;
mod launching;
mod manifest;
mod names;
mod near;
pub mod openb;
mod options;
pub mod philly;
pub mod placed;
pub mod policy;
mod profile;
pub mod quantity;
pub mod sacct;
pub mod sbatch;
mod table;
mod text;
pub mod throughput;
pub mod trace;
pub mod tree;
pub mod workloads;
pub mod yaml;

pub use dependency::{Dependency, DependencyKind};
pub use error::{Complaint, Excerpt, ReadError};
pub use job::Job;
pub use jobs::jobs_of;
pub use names::is_mig_profile;
pub use near::{is_slip, near};
pub use text::{SIZE_MAX_BYTES, Source};
pub use trace::{Reading, TraceKind, TraceOptions, read_trace};

/// Most workloads that one file may stand for, arrays and copies counted: three times the longest
/// trace at hand.
pub const WORKLOADS_MAX: usize = 250_000;
