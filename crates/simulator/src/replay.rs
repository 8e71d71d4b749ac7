//! The event loop: arrivals and departures on a virtual clock, decided by the production engine.
//!
//! Every decision goes through `engine::Planner`, `engine::check` and `engine::apply`; the replay
//! adds nothing but time and counting.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{Action, Fleet, Plan, Policy, Running, Snapshot, Trace, WorkloadId};

use crate::observer::Observer;

/// How a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Only the order of arrivals counts: nobody leaves, and who finds no place is turned away at
    /// once. This is how placement policies are compared in the literature.
    Fill,
    /// Arrivals and running times count; who finds no place waits.
    Timed,
}

/// A plan that broke an invariant; the replay stops, because its figures would be worthless.
#[derive(Debug, thiserror::Error)]
#[error(
    "the planner broke an invariant at {at_ms} ms: {violations}; this is a defect, please report it with the trace"
)]
pub struct IllegalPlan {
    /// Trace time.
    pub at_ms: u64,
    /// What was broken.
    pub violations: String,
}

/// Replays a trace on a fleet, telling the observer of every event.
///
/// Workload ids are positions in the trace. Whoever is asked to leave uses all of the time that it is
/// given, is submitted again as old as it is, and has all of its work to do again. In a fill run nobody
/// leaves, so nobody is asked to.
///
/// # Errors
/// [`IllegalPlan`] if a plan fails `engine::check` or cannot be carried out.
pub fn replay(
    fleet: Fleet,
    trace: &Trace,
    mut policy: Policy,
    protocol: Protocol,
    observer: &mut dyn Observer,
) -> Result<Snapshot, IllegalPlan> {
    if protocol == Protocol::Fill {
        policy.preemption = None;
    }
    let start_ms = trace.arrivals.first().map_or(0, |arrival| arrival.at_ms);
    let mut world = World {
        snapshot: Snapshot::new(fleet, start_ms),
        planner: engine::Planner::new(policy),
        departures: BTreeSet::new(),
        trace,
    };
    for (at, arrival) in trace.arrivals.iter().enumerate() {
        if protocol == Protocol::Timed {
            world.run_until(arrival.at_ms, observer)?;
        }
        let id = WorkloadId(at as u64);
        let mut workload = arrival.workload.clone();
        workload.id = id;
        workload.submitted_ms = arrival.at_ms;
        observer.arrived(&workload);
        world.snapshot.submit(Arc::new(workload));
        world.decide(protocol, observer)?;
        if protocol == Protocol::Fill && world.snapshot.withdraw(id).is_some() {
            observer.rejected(id);
        }
        observer.settled(&world.snapshot);
    }
    world.run_until(u64::MAX, observer)?;
    Ok(world.snapshot)
}

struct World<'a> {
    snapshot: Snapshot,
    planner: engine::Planner,
    departures: BTreeSet<(u64, WorkloadId)>,
    trace: &'a Trace,
}

impl World<'_> {
    /// Lets everybody leave whose time comes before or at `until_ms`, deciding after each moment.
    fn run_until(&mut self, until_ms: u64, observer: &mut dyn Observer) -> Result<(), IllegalPlan> {
        while let Some((at_ms, _)) = self.departures.first().copied() {
            if at_ms > until_ms {
                break;
            }
            self.snapshot.now_ms = at_ms;
            while let Some((same_ms, id)) = self.departures.first().copied() {
                if same_ms != at_ms {
                    break;
                }
                self.departures.pop_first();
                self.leave(id, observer);
            }
            self.decide(Protocol::Timed, observer)?;
            observer.settled(&self.snapshot);
        }
        if until_ms != u64::MAX {
            self.snapshot.now_ms = until_ms;
        }
        Ok(())
    }

    /// Takes a workload off the fleet whose time has come; back into the queue if it was not done.
    fn leave(&mut self, id: WorkloadId, observer: &mut dyn Observer) {
        let now_ms = self.snapshot.now_ms;
        let Some(running) = self.snapshot.finish(id) else { return };
        if running.leaves_by_ms.is_none() || self.end_ms(&running) == Some(now_ms) {
            observer.finished(&running, now_ms);
            return;
        }
        observer.preempted(&running, now_ms);
        self.snapshot.submit(running.workload);
    }

    /// When a running workload is done; `None` for one that stays for ever.
    fn end_ms(&self, running: &Running) -> Option<u64> {
        let id = running.workload.id;
        let runs_ms = self.trace.arrivals.get(id.0 as usize).and_then(|a| a.runs_ms);
        // Whoever would run longer is ended at the limit.
        let runs_ms = match (runs_ms, running.workload.time_limit_ms) {
            (Some(runs_ms), Some(limit_ms)) => Some(runs_ms.min(limit_ms)),
            (runs_ms, limit_ms) => runs_ms.or(limit_ms),
        };
        runs_ms.map(|runs_ms| running.since_ms.saturating_add(runs_ms))
    }

    fn decide(
        &mut self,
        protocol: Protocol,
        observer: &mut dyn Observer,
    ) -> Result<(), IllegalPlan> {
        let plan = self.planner.plan(&self.snapshot);
        let violations = engine::check(&self.snapshot, &plan, self.planner.policy());
        if !violations.is_empty() {
            let told: Vec<String> = violations.iter().map(ToString::to_string).collect();
            return Err(self.illegal(told.join("; ")));
        }
        self.carry_out(&plan, protocol, observer)?;
        for (id, refusal) in &plan.waiting {
            if refusal.is_never() && self.snapshot.withdraw(*id).is_some() {
                observer.rejected(*id);
            }
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        plan: &Plan,
        protocol: Protocol,
        observer: &mut dyn Observer,
    ) -> Result<(), IllegalPlan> {
        for step in &plan.steps {
            let done = engine::apply(&mut self.snapshot, &step.action, self.planner.policy());
            done.map_err(|refusal| self.illegal(refusal.to_string()))?;
            match &step.action {
                Action::SetMode { .. } => {}
                Action::Place { workload: id, .. } => {
                    let Some(running) = self.snapshot.running().get(id) else { continue };
                    observer.started(running);
                    if let (Protocol::Timed, Some(end_ms)) = (protocol, self.end_ms(running)) {
                        self.departures.insert((end_ms, *id));
                    }
                }
                Action::Preempt { workload: id, by_ms } => {
                    let Some(running) = self.snapshot.running().get(id) else { continue };
                    let end_ms = self.end_ms(running);
                    if end_ms.is_none_or(|end_ms| *by_ms < end_ms) {
                        end_ms.map(|end_ms| self.departures.remove(&(end_ms, *id)));
                        self.departures.insert((*by_ms, *id));
                    }
                }
            }
        }
        Ok(())
    }

    fn illegal(&self, violations: String) -> IllegalPlan {
        IllegalPlan { at_ms: self.snapshot.now_ms, violations }
    }
}
