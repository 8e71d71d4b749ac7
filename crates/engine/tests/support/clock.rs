//! Time for the laws: workloads arrive, start when planned, and leave exactly at their limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::{Planner, apply, check};
use model::{Action, Plan, Policy, Snapshot, Workload, WorkloadId};

/// Most events of one run; a queue of 40 needs two per workload.
const EVENTS_MAX: usize = 1000;

/// A fleet with a queue, moved on from event to event.
pub(crate) struct Clock {
    pub(crate) snapshot: Snapshot,
    planner: Planner,
    /// Latest first.
    arrivals: Vec<(u64, Workload)>,
    ends: BTreeSet<(u64, WorkloadId)>,
}

impl Clock {
    /// A clock at the snapshot's time; arrivals are in any order.
    pub(crate) fn new(
        snapshot: Snapshot,
        policy: &Policy,
        mut arrivals: Vec<(u64, Workload)>,
    ) -> Self {
        arrivals.sort_by_key(|(at_ms, workload)| std::cmp::Reverse((*at_ms, workload.id)));
        Self { snapshot, planner: Planner::new(policy.clone()), arrivals, ends: BTreeSet::new() }
    }

    /// Runs until nothing is to come. `look` sees the world as it was planned for, and the plan,
    /// which is legal; then the plan is carried out.
    pub(crate) fn run(&mut self, mut look: impl FnMut(&Snapshot, &Plan)) {
        for _ in 0..EVENTS_MAX {
            let plan = self.planner.plan(&self.snapshot);
            assert_eq!(check(&self.snapshot, &plan, self.planner.policy()), [], "{plan:?}");
            look(&self.snapshot, &plan);
            self.carry_out(&plan);
            if !self.next_event() {
                return;
            }
        }
        panic!("still events after {EVENTS_MAX}");
    }

    fn carry_out(&mut self, plan: &Plan) {
        let policy = self.planner.policy();
        for step in &plan.steps {
            apply(&mut self.snapshot, &step.action, policy).expect("a legal step");
            let Action::Place { workload, .. } = step.action else { continue };
            let running = &self.snapshot.running()[&workload];
            let limit_ms = running.workload.time_limit_ms.unwrap_or(policy.time_limit_default_ms);
            self.ends.insert((self.snapshot.now_ms + limit_ms, workload));
        }
    }

    /// Moves to the next moment at which something happens; false if there is none.
    fn next_event(&mut self) -> bool {
        let ends = self.ends.first().map(|(at_ms, _)| *at_ms);
        let arrives = self.arrivals.last().map(|(at_ms, _)| *at_ms);
        let Some(now_ms) = ends.into_iter().chain(arrives).min() else { return false };
        self.snapshot.now_ms = now_ms.max(self.snapshot.now_ms);
        while let Some(end) = self.ends.first().copied().filter(|(at_ms, _)| *at_ms <= now_ms) {
            self.ends.remove(&end);
            self.snapshot.finish(end.1).expect("it runs");
        }
        while self.arrivals.last().is_some_and(|(at_ms, _)| *at_ms <= now_ms) {
            let (_, workload) = self.arrivals.pop().expect("an arrival");
            self.snapshot.submit(Arc::new(workload));
        }
        true
    }
}
