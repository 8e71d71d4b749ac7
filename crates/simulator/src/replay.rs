//! The event loop: arrivals and departures on a virtual clock, decided by the production engine.
//!
//! Every decision goes through `engine::Planner`, `engine::check` and `engine::apply`; the replay
//! adds nothing but time and counting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::Planner;
use engine::interference::is_waited_for;
use model::{Action, Fleet, NodeId, Plan, Running, Snapshot, Trace, WorkloadId};

use crate::observer::Observer;
use crate::pace::{Pace, Speeds};

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
/// * `speeds` — how fast those get on who share a GPU; a workload on several GPUs is as fast as on the slowest.
///
/// # Errors
/// [`IllegalPlan`] if a plan fails `engine::check` or cannot be carried out.
pub fn replay(
    fleet: Fleet,
    trace: &Trace,
    planner: Planner,
    protocol: Protocol,
    speeds: &dyn Speeds,
    observer: &mut dyn Observer,
) -> Result<Snapshot, IllegalPlan> {
    let planner = match protocol {
        Protocol::Fill => planner.without_preemption(),
        Protocol::Timed => planner,
    };
    let start_ms = trace.arrivals.first().map_or(0, |arrival| arrival.at_ms);
    let mut world = World {
        snapshot: Snapshot::new(fleet, start_ms),
        planner,
        departures: BTreeSet::new(),
        due: BTreeMap::new(),
        paces: BTreeMap::new(),
        stirred: BTreeSet::new(),
        speeds,
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
    planner: Planner,
    departures: BTreeSet<(u64, WorkloadId)>,
    /// The same by workload.
    due: BTreeMap<WorkloadId, u64>,
    /// Of those that run and come to an end, where not everybody runs at full speed.
    paces: BTreeMap<WorkloadId, Pace>,
    /// Nodes whose tenants have changed since paces were last set.
    stirred: BTreeSet<NodeId>,
    speeds: &'a dyn Speeds,
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
                self.set_due(id, None);
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
        let end_ms = self.end_ms(&running);
        self.paces.remove(&id);
        self.stirred.extend(running.seats.iter().map(|seat| seat.node));
        if running.leaves_by_ms.is_none() || end_ms == Some(now_ms) {
            observer.finished(&running, now_ms);
            return;
        }
        observer.preempted(&running, now_ms);
        self.snapshot.submit(running.workload);
    }

    /// When a running workload is done; `None` for one that stays for ever.
    fn end_ms(&self, running: &Running) -> Option<u64> {
        let id = running.workload.id;
        let after = |ms: u64| running.since_ms.saturating_add(ms);
        let runs_ms = || self.trace.arrivals.get(id.0 as usize).and_then(|a| a.runs_ms);
        let done_ms = self.paces.get(&id).map(Pace::end_ms).or_else(|| runs_ms().map(after));
        // Whoever would run longer is ended at the limit.
        let limit_ms = running.workload.time_limit_ms.map(after);
        done_ms.into_iter().chain(limit_ms).min()
    }

    /// Enters when a workload leaves, or that it does not.
    fn set_due(&mut self, id: WorkloadId, at_ms: Option<u64>) {
        let before = match at_ms {
            Some(at_ms) => self.due.insert(id, at_ms),
            None => self.due.remove(&id),
        };
        before.map(|before| self.departures.remove(&(before, id)));
        self.departures.extend(at_ms.map(|at_ms| (at_ms, id)));
    }

    /// Has those run at their new speeds whose company has changed.
    fn set_paces(&mut self) {
        let stirred = std::mem::take(&mut self.stirred);
        if self.speeds.are_full() {
            return;
        }
        let now_ms = self.snapshot.now_ms;
        for (id, speed_milli) in self.slowest(&stirred) {
            let Some(pace) = self.paces.get_mut(&id) else { continue };
            pace.change(speed_milli, now_ms);
            let Some(running) = self.snapshot.running().get(&id) else { continue };
            let due_ms = self.end_ms(running).into_iter().chain(running.leaves_by_ms).min();
            self.set_due(id, due_ms);
        }
    }

    /// The speeds of all who sit on some of these nodes, by the slowest of their GPUs wherever that is.
    fn slowest(&self, nodes: &BTreeSet<NodeId>) -> BTreeMap<WorkloadId, u32> {
        let tenants = nodes.iter().filter_map(|id| self.snapshot.fleet().node(*id));
        let tenants = tenants.flat_map(|node| node.gpus()).flat_map(model::Gpu::tenants);
        let ids: BTreeSet<WorkloadId> = tenants.map(|tenant| tenant.workload.id).collect();
        let seats = |id: &WorkloadId| self.snapshot.running().get(id).map(|running| &running.seats);
        let all: BTreeSet<NodeId> =
            ids.iter().filter_map(seats).flatten().map(|seat| seat.node).collect();
        let mut slowest: BTreeMap<WorkloadId, u32> = BTreeMap::new();
        for gpu in
            all.iter().filter_map(|id| self.snapshot.fleet().node(*id)).flat_map(|n| n.gpus())
        {
            for (tenant, speed_milli) in gpu.tenants().iter().zip(self.speeds.of(gpu)) {
                let known = slowest.entry(tenant.workload.id).or_insert(u32::MAX);
                *known = speed_milli.min(*known);
            }
        }
        slowest.retain(|id, _| ids.contains(id));
        slowest
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
        self.set_paces();
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
                    if protocol == Protocol::Timed {
                        let due_ms = self.end_ms(running);
                        self.stirred.extend(running.seats.iter().map(|seat| seat.node));
                        self.set_due(*id, due_ms);
                        self.begin(*id);
                    }
                }
                Action::Preempt { workload: id, by_ms } => {
                    let Some(running) = self.snapshot.running().get(id) else { continue };
                    let end_ms = self.end_ms(running);
                    if end_ms.is_none_or(|end_ms| *by_ms < end_ms) {
                        self.set_due(*id, Some(*by_ms));
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes how much work somebody has who has just started. Whoever is waited for stays as long as the trace says: being
    /// slow shows in its answers.
    fn begin(&mut self, id: WorkloadId) {
        if self.speeds.are_full() {
            return;
        }
        let arrival = self.trace.arrivals.get(id.0 as usize);
        let works = arrival.filter(|arrival| !is_waited_for(&arrival.workload));
        let runs_ms = works.and_then(|arrival| arrival.runs_ms);
        let pace = runs_ms.map(|runs_ms| (id, Pace::new(runs_ms, self.snapshot.now_ms)));
        self.paces.extend(pace);
    }

    fn illegal(&self, violations: String) -> IllegalPlan {
        IllegalPlan { at_ms: self.snapshot.now_ms, violations }
    }
}
