//! Time for the laws: workloads arrive, start when planned, and leave exactly at their limits, or
//! when they were asked to, at the last moment.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::{Planner, apply, check};
use model::{Action, Plan, Policy, Running, Snapshot, Workload, WorkloadId};

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
            match step.action {
                Action::SetMode { .. } => {}
                Action::Place { workload, .. } => {
                    self.ends
                        .insert((end_ms(&self.snapshot.running()[&workload], policy), workload));
                }
                Action::Preempt { workload, by_ms } => {
                    let end_ms = end_ms(&self.snapshot.running()[&workload], policy);
                    self.ends.remove(&(end_ms, workload));
                    self.ends.insert((end_ms.min(by_ms), workload));
                }
            }
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
            let left = self.snapshot.finish(end.1).expect("it runs");
            if end_ms(&left, self.planner.policy()) > end.0 {
                // It was asked to leave, and has all to do again.
                self.snapshot.submit(left.workload);
            }
        }
        while self.arrivals.last().is_some_and(|(at_ms, _)| *at_ms <= now_ms) {
            let (_, workload) = self.arrivals.pop().expect("an arrival");
            self.snapshot.submit(Arc::new(workload));
        }
        true
    }
}

/// When a workload leaves if nobody asks it to.
fn end_ms(running: &Running, policy: &Policy) -> u64 {
    let limit_ms = running.workload.time_limit_ms.unwrap_or(policy.time_limit_default_ms);
    running.since_ms + limit_ms
}
