//! Laws of the engine, on random fleets and queues. `PROPTEST_CASES` sets how many are tried.

#[path = "support/audit.rs"]
mod audit;
#[path = "support/cases.rs"]
mod cases;
#[path = "support/clock.rs"]
mod clock;
#[path = "support/extremes.rs"]
mod extremes;
#[path = "support/gangs.rs"]
mod gangs;
#[path = "support/time.rs"]
mod time;
#[path = "support/worlds.rs"]
mod worlds;

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::{Planner, apply, check, explain, plan};
use model::{
    Action, ModeSet, Placement, Plan, Policy, Refusal, SharingKind, Snapshot, Workload, WorkloadId,
};
use proptest::prelude::*;

pub(crate) use cases::cases;
use worlds::{Size, World, worlds};

fn bytes(plan: &Plan) -> String {
    serde_json::to_string(plan).expect("a plan is data")
}

fn carry_out(snapshot: &mut Snapshot, plan: &Plan, policy: &Policy) {
    for step in &plan.steps {
        apply(snapshot, &step.action, policy).expect("a step of a legal plan");
    }
}

fn placed(plan: &Plan) -> Vec<WorkloadId> {
    let place = |action: &Action| match action {
        Action::Place { workload, .. } => Some(*workload),
        Action::SetMode { .. } | Action::Preempt { .. } => None,
    };
    plan.steps.iter().filter_map(|step| place(&step.action)).collect()
}

proptest! {
    #![proptest_config(cases(800))]

    /// A plan breaks no invariant, every step can be carried out, and the books add up afterwards.
    #[test]
    fn plans_are_legal(world in worlds(Size::FULL)) {
        let mut snapshot = world.snapshot();
        let made = plan(&snapshot, &world.policy);
        prop_assert_eq!(check(&snapshot, &made, &world.policy), []);
        carry_out(&mut snapshot, &made, &world.policy);
        audit::audit(&snapshot);
    }

    /// Every workload that was looked at either starts or is told why not, and never both.
    #[test]
    fn everybody_gets_an_answer(world in worlds(Size::FULL)) {
        let made = plan(&world.snapshot(), &world.policy);
        let started = placed(&made);
        let answered: BTreeSet<_> = started.iter().chain(made.waiting.keys()).copied().collect();
        prop_assert_eq!(started.len() + made.waiting.len(), answered.len());
        prop_assert_eq!(answered.len(), world.workloads.len());
    }

    /// Carried out, a plan leaves nothing to do, and the same workloads wait.
    ///
    /// With one owner, no quota and no array: grants move the fair shares, and with them the order,
    /// so that somebody else may be at the head the next time. Without gangs: the nodes kept for one
    /// may become fewer once those placed behind it sit there. And no deeper than the policy's depth.
    #[test]
    fn carried_out_a_plan_leaves_no_steps(world in worlds(Size { members: 1, ..Size::PLAIN })) {
        let mut snapshot = world.snapshot();
        let first = plan(&snapshot, &world.policy);
        carry_out(&mut snapshot, &first, &world.policy);
        let second = plan(&snapshot, &world.policy);
        prop_assert_eq!(&second.steps, &[]);
        prop_assert!(first.waiting.keys().eq(second.waiting.keys()));
    }

    /// With several owners, quotas, arrays and gangs it ends too, after a few rounds.
    #[test]
    fn planning_comes_to_rest(world in worlds(Size::FULL)) {
        let mut snapshot = world.snapshot();
        let rests = (0..=world.workloads.len()).any(|_| {
            let made = plan(&snapshot, &world.policy);
            carry_out(&mut snapshot, &made, &world.policy);
            made.steps.is_empty()
        });
        prop_assert!(rests);
    }

    /// Doing a step twice is the same as doing it once.
    #[test]
    fn steps_are_idempotent(world in worlds(Size::FULL)) {
        let mut once = world.snapshot();
        let made = plan(&once, &world.policy);
        let mut twice = once.clone();
        carry_out(&mut once, &made, &world.policy);
        for step in &made.steps {
            apply(&mut twice, &step.action, &world.policy).expect("once");
            apply(&mut twice, &step.action, &world.policy).expect("twice");
        }
        prop_assert_eq!(once.fleet().fingerprints(), twice.fleet().fingerprints());
        prop_assert_eq!(once.used(), twice.used());
    }

    /// The same input gives the same bytes, in whatever order the workloads were submitted.
    #[test]
    fn same_input_same_bytes(world in worlds(Size::FULL)) {
        let forth = bytes(&plan(&world.snapshot(), &world.policy));
        prop_assert_eq!(&forth, &bytes(&plan(&world.snapshot(), &world.policy)));
        let mut back = Snapshot::new(world.fleet(), 40);
        for workload in world.workloads.iter().rev() {
            back.submit(Arc::new(workload.clone()));
        }
        prop_assert_eq!(forth, bytes(&plan(&back, &world.policy)));
    }

    /// All members of a gang start, each with all its GPUs, or none.
    #[test]
    fn gangs_start_whole(world in worlds(Size { members: 6, ..Size::FULL })) {
        let mut snapshot = world.snapshot();
        let made = plan(&snapshot, &world.policy);
        carry_out(&mut snapshot, &made, &world.policy);
        let nodes = snapshot.fleet().nodes();
        for workload in &world.workloads {
            let gpus = nodes.iter().flat_map(|node| node.gpus()).flat_map(|gpu| gpu.tenants());
            let shares = gpus.filter(|tenant| tenant.workload.id == workload.id).count();
            let residents = nodes.iter().flat_map(|node| node.residents());
            let members = residents.filter(|member| member.workload == workload.id).count();
            let count = workload.demand.gpus.as_ref().map_or(0, |gpus| gpus.count as usize);
            prop_assert!(members == 0 || members == workload.members as usize);
            prop_assert_eq!(shares, members * count);
        }
    }

    /// What a planner remembers of other states of the fleet changes nothing.
    #[test]
    fn memory_changes_nothing(world in worlds(Size::FULL), cuts in prop::collection::vec(any::<u16>(), 6)) {
        let mut remembers = Planner::new(world.policy.clone());
        for snapshot in history(&world, &cuts) {
            prop_assert_eq!(bytes(&remembers.plan(&snapshot)), bytes(&plan(&snapshot, &world.policy)));
        }
    }
}

/// States of one fleet: some of the queue arrives, a plan is carried out, some tenants leave.
fn history(world: &World, cuts: &[u16]) -> Vec<Snapshot> {
    let mut snapshot = Snapshot::new(world.fleet(), 0);
    let mut states = Vec::new();
    for (cut, part) in cuts.iter().zip(world.workloads.chunks(7)) {
        for workload in part {
            snapshot.submit(Arc::new(workload.clone()));
        }
        states.push(snapshot.clone());
        let made = plan(&snapshot, &world.policy);
        carry_out(&mut snapshot, &made, &world.policy);
        let running: Vec<_> = snapshot.running().keys().copied().collect();
        for id in running.into_iter().filter(|id| cut >> (id.0 % 16) & 1 == 1) {
            snapshot.finish(id).expect("it runs");
        }
        snapshot.now_ms += u64::from(*cut % 9);
    }
    states.push(snapshot);
    states
}

/// One node with one A100 and those workloads, numbered as they stand.
fn one_gpu(offers: ModeSet, mut workloads: Vec<Workload>, depth: u32) -> World {
    for (workload, id) in workloads.iter_mut().zip(0u64..) {
        workload.id = WorkloadId(id);
    }
    let gpus = vec![("a100-80gb", offers)];
    let nodes = vec![worlds::NodeSpec { cpu_milli: 8000, memory_mib: 8192, gpus }];
    World { nodes, workloads, policy: Policy { depth, ..Policy::new(Placement::BestFit) } }
}

/// A planner that has seen the same machines with other abilities does not go by those.
#[test]
fn memory_notices_other_offers() {
    let mut planner = Planner::new(Policy::new(Placement::BestFit));
    for offers in [ModeSet::ALL, ModeSet::of(&[SharingKind::Mps])] {
        let world = one_gpu(offers, vec![extremes::fraction(300, 4096)], 256);
        let made = planner.plan(&world.snapshot());
        assert_eq!(made, plan(&world.snapshot(), planner.policy()), "{offers:?}");
    }
}

/// What cannot run is no reason to look no further: the depth is for those that are tried.
#[test]
fn refusals_without_a_try_do_not_use_up_the_depth() {
    let never = Workload { priority: 1, ..extremes::fraction(300, 400 << 10) };
    let mut workloads = vec![never; 4];
    workloads.push(extremes::fraction(300, 4096));
    let world = one_gpu(ModeSet::ALL, workloads, 2);
    assert_eq!(placed(&plan(&world.snapshot(), &world.policy)), [WorkloadId(4)]);
}

/// Who is not looked at is told so when asking; the plan names only those that were.
#[test]
fn beyond_the_depth_is_explained() {
    let world = one_gpu(ModeSet::ALL, vec![extremes::fraction(300, 4096); 4], 2);
    let why = explain(&world.snapshot(), &world.policy, WorkloadId(3)).expect("it waits");
    assert_eq!(why.waits_because, Some(Refusal::BeyondDepth { depth: 2 }));
    assert!(!why.plan.waiting.contains_key(&WorkloadId(3)));
}
