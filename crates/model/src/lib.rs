//! The nouns of hotpot: GPUs and their shares, nodes, workloads, the fleet at one moment, the policy
//! and the plan. Pure data with the few rules that keep a value legal.
//!
//! Nothing here decides, reads a file, asks the time or iterates in hash order: the crate is
//! `no_std`, so the compiler holds that. Deciding lives in `engine`, reading files in `formats`.
//!
//! Units stand last in names: `_milli` is thousandths of a vCPU or of one GPU, `_mib` is MiB,
//! `_ms` is milliseconds of a clock that the caller passes in.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod catalogue;
mod fingerprint;
mod gpu;
mod id;
mod mig;
mod node;
mod plan;
mod policy;
mod profile;
mod random;
mod refusal;
mod sharing;
mod snapshot;
mod trace;
mod workload;

pub use catalogue::{Catalogue, CatalogueError};
pub use gpu::{Gpu, GpuModel, Tenant};
pub use id::{GpuId, ModelId, NodeId, Owner, WorkloadId};
pub use mig::{MigGeometry, MigLayout, MigProfile, ProfileIndex};
pub use node::{Fleet, Node, Resident};
pub use plan::{Action, Beside, Plan, Reason, Seat, Step};
pub use policy::{AffinityMatrix, HotpotTerms, MixShape, Placement, Policy, Preemption, Quota};
pub use profile::Profile;
pub use random::SplitMix;
pub use refusal::Refusal;
pub use sharing::{Isolation, ModeSet, Share, SharingKind, SharingMode};
pub use snapshot::{Lane, Running, Snapshot, Usage};
pub use trace::{Arrival, Trace};
pub use workload::{ArrayMember, Class, Demand, GpuAsk, GpuDemand, ModelSet, NodeSet, Workload};
