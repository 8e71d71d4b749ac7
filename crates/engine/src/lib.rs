//! The verbs of deciding: from a snapshot and a policy to a plan, and what a plan means.
//!
//! [`plan`] is the one entry for deciding, [`apply`] the one definition of what an action does,
//! [`check`] an independent recount of the invariants, [`explain`] the answer to "why not there?".
//! [`Planner`] gives the same plans as [`plan`] and remembers scores between cycles.
//!
//! Nothing here does I/O, reads a clock, spawns, or iterates in hash order: the crate is `no_std`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod apply;
mod backfill;
mod check;
mod cycle;
mod explain;
mod fit;
pub mod interference;
mod lottery;
mod memo;
mod mig;
pub mod mix;
mod order;
mod placement;
mod planner;
mod preempt;
pub mod reactive;
pub mod sharing;

pub use apply::apply;
pub use check::{Violation, check};
pub use explain::{Explanation, GpuVerdict, NodeVerdict, explain};
pub use mig::best_start;

pub use placement::fragment;
pub use planner::Planner;

use model::{Plan, Policy, Snapshot};

/// Decides what to start now, where, and why the rest waits.
///
/// Cannot fail: what cannot be done is in [`Plan::waiting`]. The same input gives the same plan.
pub fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan {
    Planner::new(policy.clone()).plan(snapshot)
}
