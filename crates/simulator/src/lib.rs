//! Time: replays a trace against the production engine and reduces it to metrics and a report.
//!
//! [`simulate`] runs one policy; [`outcome::Comparison`] puts several side by side, and [`report`]
//! renders them. Deciding is the engine's alone.
#![forbid(unsafe_code)]

pub mod arrivals;
mod observer;
pub mod outcome;
mod pace;
mod recorder;
mod replay;
pub mod report;
mod yardstick;

pub use observer::Observer;
pub use pace::{Predicted, Speeds};
pub use replay::{IllegalPlan, Protocol, replay};
pub use yardstick::Yardstick;

use engine::Planner;
use model::{Fleet, Policy, Snapshot, Trace};
use outcome::Outcome;

/// Replays a trace under one policy.
///
/// A policy without a mix expects the trace's own workloads.
///
/// * `speeds` — how fast those get on who share a GPU; `()` for full speed.
/// * `watch` — is told of every event besides, for instance to show progress.
///
/// # Errors
/// [`IllegalPlan`] if the planner breaks an invariant.
pub fn simulate(
    fleet: &Fleet,
    trace: &Trace,
    mut policy: Policy,
    protocol: Protocol,
    speeds: &dyn Speeds,
    watch: &mut dyn Observer,
) -> Result<Outcome, IllegalPlan> {
    if policy.mix.is_empty() {
        policy.mix = engine::mix::of(trace.arrivals.iter().map(|arrival| &arrival.workload));
    }
    let recorder = recorder::Recorder::new(&Snapshot::new(fleet.clone(), 0), &policy, protocol);
    let mut both = observer::Both(recorder, watch);
    let end = replay(fleet.clone(), trace, Planner::new(policy), protocol, speeds, &mut both)?;
    Ok(both.0.finish(&end))
}
