//! Laws over time: limits hold, promises are kept, everybody's turn comes, and all is given back.

use std::collections::BTreeMap;

use engine::plan;
use model::{Action, Plan, Policy, Reason, Refusal, Snapshot, Workload, WorkloadId};
use proptest::prelude::*;

use crate::audit::{assert_as_new, audit};
use crate::clock::Clock;
use crate::worlds::{Size, World, worlds};
use crate::{cases, placed};

/// One owner's plain queue, each member of a gang with one GPU; `gangs` has the others.
const NARROW: Size = Size { wide_gangs: false, ..Size::PLAIN };

/// The queue as arrivals, each at its own time of submission.
fn arrivals(world: &World) -> Vec<(u64, Workload)> {
    world.workloads.iter().map(|workload| (workload.submitted_ms, workload.clone())).collect()
}

fn clock(world: &World) -> Clock {
    Clock::new(Snapshot::new(world.fleet(), 0), &world.policy, arrivals(world))
}

proptest! {
    #![proptest_config(cases(400))]

    /// Once everybody has left, the fleet is as it was.
    #[test]
    fn everything_is_given_back(world in worlds(Size::FULL)) {
        let mut clock = clock(&world);
        clock.run(|snapshot, _| audit(snapshot));
        prop_assert!(clock.snapshot.running().is_empty());
        assert_as_new(&clock.snapshot, &Snapshot::new(world.fleet(), 0));
        for workload in &world.workloads {
            prop_assert_eq!(clock.snapshot.usage(&workload.owner), model::Usage::default());
            let running = workload.array.map_or(0, |member| clock.snapshot.array_running(member.array));
            prop_assert_eq!(running, 0);
        }
    }

    /// No owner holds more than the quota, no array runs more tasks at once than it wants.
    #[test]
    fn limits_hold_over_time(world in worlds(Size::FULL)) {
        clock(&world).run(|snapshot, _| within_limits(snapshot, &world.policy));
    }

    /// The head of the queue starts no later than it was first promised.
    ///
    /// With one owner, no quota and no array nobody comes to stand before a head but by a higher
    /// priority, and later arrivals have a lower one.
    #[test]
    fn promises_are_kept(mut world in worlds(NARROW), late in 0usize..20) {
        world.policy.backfill = true;
        let early = world.workloads.len().saturating_sub(late);
        for (at, workload) in world.workloads.iter_mut().enumerate() {
            if at < early { workload.submitted_ms = 0 } else { workload.priority = -2 }
        }
        let mut promised = BTreeMap::new();
        clock(&world).run(|snapshot, plan| {
            for id in placed(plan) {
                let latest = promised.get(&id).copied().unwrap_or(u64::MAX);
                assert!(snapshot.now_ms <= latest, "{id} at {}, promised {latest}", snapshot.now_ms);
            }
            for (head, starts_ms) in promises(plan) {
                promised.entry(head).or_insert(starts_ms);
            }
        });
    }

    /// Without backfill nobody passes a workload that waits for a place.
    #[test]
    fn strict_order_is_strict(mut world in worlds(Size::PLAIN)) {
        world.policy.backfill = false;
        clock(&world).run(|snapshot, plan| {
            let mut queue: Vec<_> = snapshot.waiting().values().collect();
            queue.sort_by_key(|w| (std::cmp::Reverse(w.priority), w.submitted_ms, w.id));
            let waits = |id: &WorkloadId| plan.waiting.get(id).is_some_and(|why| !why.is_never());
            let head = queue.iter().position(|workload| waits(&workload.id));
            let behind = queue.iter().skip(head.unwrap_or(usize::MAX)).map(|workload| workload.id);
            let started = placed(plan);
            assert!(behind.into_iter().all(|id| !started.contains(&id)), "{plan:?}");
        });
    }

    /// When all is over, only those wait that can never run, and they were told so.
    #[test]
    fn every_turn_comes(world in worlds(Size { arrays: true, ..NARROW })) {
        let mut clock = clock(&world);
        clock.run(|_, _| {});
        let last = plan(&clock.snapshot, &world.policy);
        prop_assert!(last.waiting.values().all(Refusal::is_never), "{:?}", last.waiting);
    }

    /// A workload said never to fit fits at no time.
    #[test]
    fn never_is_for_ever(world in worlds(Size { wide_gangs: false, ..Size::FULL })) {
        let mut doomed = BTreeMap::new();
        clock(&world).run(|_, plan| {
            for id in placed(plan) {
                assert_eq!(doomed.get(&id), None, "{id} started after all");
            }
            let never = plan.waiting.iter().filter(|(_, why)| why.is_never());
            doomed.extend(never.map(|(id, why)| (*id, why.clone())));
        });
    }
}

fn within_limits(snapshot: &Snapshot, policy: &Policy) {
    for (owner, quota) in &policy.quotas {
        let used_milli = snapshot.usage(owner).gpu_milli;
        let limit_milli = quota.gpu_milli_max.unwrap_or(u64::MAX);
        assert!(used_milli <= limit_milli, "{owner} holds {used_milli} of {limit_milli}");
    }
    let mut tasks = BTreeMap::new();
    for member in snapshot.running().values().filter_map(|running| running.workload.array) {
        let running = tasks.entry(member.array).or_insert(0);
        *running += 1;
        assert!(*running <= member.at_once_max, "array {}", member.array);
    }
}

/// Heads and the times that the plan promises them, by its reasons and by its refusals.
fn promises(plan: &Plan) -> Vec<(WorkloadId, u64)> {
    let of_step = |reason: &Reason| match reason {
        Reason::Backfill { head, head_starts_ms, .. } => Some((*head, *head_starts_ms)),
        Reason::NeededBy(_)
        | Reason::Best { .. }
        | Reason::Gang { .. }
        | Reason::MakesRoomFor(_) => None,
    };
    let steps = plan.steps.iter().filter(|step| matches!(step.action, Action::Place { .. }));
    let kept = |why: &Refusal| {
        let Refusal::KeptForHead { head, until_ms } = why else { return None };
        Some((*head, *until_ms))
    };
    let refusals = plan.waiting.values().filter_map(kept);
    steps.filter_map(|step| of_step(&step.because)).chain(refusals).collect()
}
