//! How long a list takes on the cards that there are, and what it holds of them: by the simulator.

use engine::Planner;
use model::{Fleet, Gpu, Placement, Policy, Snapshot, Trace, WorkloadId};
use serde::Serialize;
use simulator::{IllegalPlan, Observer, Protocol, Speeds, replay};

use crate::packed::modes;

const HOUR_MS: f64 = 3_600_000.0;

/// A list's course.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Course {
    /// From the first arrival to the last end, in ms.
    pub total_ms: u64,
    /// Cards with a tenant, times hours.
    pub gpu_hours_held: f64,
    /// Workloads that were never started.
    pub left: u64,
}

/// Integrates the cards that somebody sits on.
#[derive(Default)]
struct Meter {
    held_ms: u128,
    cards: u64,
    since_ms: u64,
    first_ms: Option<u64>,
    last_ms: u64,
    rejected: u64,
}

impl Observer for Meter {
    fn settled(&mut self, snapshot: &Snapshot) {
        let now_ms = snapshot.now_ms;
        self.first_ms.get_or_insert(now_ms);
        self.held_ms += u128::from(now_ms.saturating_sub(self.since_ms)) * u128::from(self.cards);
        (self.cards, self.since_ms, self.last_ms) = (in_use(snapshot.fleet()), now_ms, now_ms);
    }

    fn rejected(&mut self, _workload: WorkloadId) {
        self.rejected += 1;
    }
}

/// Cards that somebody sits on.
pub(crate) fn in_use(fleet: &Fleet) -> u64 {
    fleet.nodes().iter().flat_map(|node| node.gpus()).filter(|gpu| !Gpu::is_idle(gpu)).count()
        as u64
}

/// Replays a list on a fleet.
///
/// # Errors
/// [`IllegalPlan`] if the planner breaks an invariant.
pub fn course(
    fleet: Fleet,
    trace: &Trace,
    placement: Placement,
    speeds: &dyn Speeds,
) -> Result<Course, IllegalPlan> {
    let mut meter = Meter::default();
    let policy = Policy { modes: modes(), depth: u32::MAX, ..Policy::new(placement) };
    let planner = Planner::new(policy);
    let end = replay(fleet, trace, planner, Protocol::Timed, speeds, &mut meter)?;
    Ok(Course {
        total_ms: meter.last_ms.saturating_sub(meter.first_ms.unwrap_or(0)),
        gpu_hours_held: meter.held_ms as f64 / HOUR_MS,
        left: meter.rejected + end.waiting().len() as u64,
    })
}
