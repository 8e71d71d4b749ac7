//! Laws of making room: as few are asked to leave as brute force needs, nobody who may stay, and
//! whoever waits for it finds the room.

#[path = "support/audit.rs"]
mod audit;
#[path = "support/cases.rs"]
mod cases;
#[path = "support/clock.rs"]
mod clock;
#[path = "support/worlds.rs"]
mod worlds;

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::{Planner, Violation, apply, check, plan};
use model::{
    Action, GpuId, Isolation, ModeSet, NodeId, NodeSet, Placement, Plan, Policy, Preemption,
    ProfileIndex, Reason, Refusal, Seat, Share, SharingMode, Snapshot, Step, Workload, WorkloadId,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use cases::cases;
use clock::Clock;
use worlds::{Size, World, worlds};

/// The newcomer of a furnished world; the guests have higher numbers.
const NEWCOMER: WorkloadId = WorkloadId(0);

/// A tenant that may or may not fit where it is put.
#[derive(Clone, Debug)]
struct Guest {
    seats: Vec<(u32, Option<u8>)>,
    whole: bool,
    tenths: u32,
    gib: u64,
    start: u8,
    cpu_milli: u64,
    priority: i32,
    preemptible: bool,
    since_ms: u64,
    leaves_by_ms: Option<u64>,
}

impl Guest {
    fn share(&self, mode: SharingMode) -> Share {
        let (compute_milli, memory_mib) = (self.tenths * 100, self.gib * 1024);
        match mode {
            _ if self.whole => Share::Exclusive,
            SharingMode::Exclusive => Share::Exclusive,
            SharingMode::TimeSlice { .. } => Share::TimeSlice { memory_mib },
            SharingMode::Mps { .. } => Share::Mps { compute_milli, memory_mib },
            SharingMode::MemoryCapped { .. } => Share::MemoryCapped { compute_milli, memory_mib },
            SharingMode::Mig => {
                Share::Mig { profile: ProfileIndex(self.tenths as u8 - 1), start: self.start }
            }
        }
    }
}

fn guest() -> impl Strategy<Value = Guest> {
    let size = (prop_oneof![3 => Just(false), 1 => Just(true)], 1u32..=6, 1u64..=12, 0u8..8);
    let seat = (0u32..2, prop_oneof![1 => Just(None), 6 => (0u8..2).prop_map(Some)]);
    let seats = prop_oneof![4 => vec(seat.clone(), 1), 1 => vec(seat, 2)];
    let leaves = prop_oneof![3 => Just(None), 1 => (1000u64..1050).prop_map(Some)];
    let stays = prop_oneof![1 => Just(false), 5 => Just(true)];
    (seats, size, 0u64..4, -1i32..=1, stays, 900u64..=1000, leaves).prop_map(
        |(seats, size, cpus, priority, preemptible, since_ms, leaves_by_ms)| {
            let ((whole, tenths, gib, start), cpu_milli) = (size, cpus * 500);
            Guest {
                seats,
                whole,
                tenths,
                gib,
                start,
                cpu_milli,
                priority,
                preemptible,
                since_ms,
                leaves_by_ms,
            }
        },
    )
}

/// Two nodes, one workload of priority 1 that may ask, and up to ten guests. Fractions are given in
/// one mode only, so that nothing that fits on a GPU ceases to fit when a tenant leaves.
fn full() -> impl Strategy<Value = (World, Vec<Guest>)> {
    let size = Size { nodes: 2, gpus: 2, workloads: 1, members: 1, natures: false, ..Size::PLAIN };
    let world = worlds(size).prop_filter("a workload", |world| !world.workloads.is_empty());
    let modes = [
        SharingMode::Mps { tenants_max: 5 },
        SharingMode::MemoryCapped { tenants_max: 4 },
        SharingMode::TimeSlice { tenants_max: 3 },
        SharingMode::Mig,
    ];
    let world = (world, select(modes.to_vec())).prop_map(|(mut world, mode)| {
        plain(&mut world);
        world.policy.preemption = Some(Preemption { grace_ms: 50 });
        world.policy.modes = vec![mode, SharingMode::Exclusive];
        world.workloads[0].priority = 1;
        world
    });
    (world, vec(guest(), 5..=10))
}

/// Makes most workloads fit on most GPUs, so that it is others that stand in their way.
fn plain(world: &mut World) {
    for node in &mut world.nodes {
        node.cpu_milli = node.cpu_milli.max(4000);
        node.gpus.iter_mut().for_each(|gpu| *gpu = ("a100-80gb", ModeSet::ALL));
        node.gpus.truncate(2);
    }
    for workload in &mut world.workloads {
        workload.demand.nodes = NodeSet::default();
        workload.time_limit_ms = workload.time_limit_ms.map(|limit_ms| 4 * limit_ms);
        let Some(gpus) = &mut workload.demand.gpus else { continue };
        (gpus.accepts, gpus.isolation, gpus.modes) = (Vec::new(), Isolation::None, ModeSet::ALL);
        gpus.count = gpus.count.min(2);
    }
}

/// The world with those guests in it that the model lets in, and the newcomer in the queue.
fn furnished(world: &World, guests: &[Guest]) -> Snapshot {
    let mut snapshot = Snapshot::new(world.fleet(), 0);
    for (guest, id) in guests.iter().zip(100u64..) {
        seat(&mut snapshot, world, guest, WorkloadId(id));
    }
    snapshot.now_ms = 1000;
    snapshot.submit(Arc::new(Workload { id: NEWCOMER, ..world.workloads[0].clone() }));
    snapshot
}

fn seat(snapshot: &mut Snapshot, world: &World, guest: &Guest, id: WorkloadId) {
    let Guest { priority, preemptible, .. } = *guest;
    let members = guest.seats.len() as u32;
    let mut workload =
        Workload { id, priority, preemptible, members, ..world.workloads[0].clone() };
    let mode = if guest.whole { SharingMode::Exclusive } else { world.policy.modes[0] };
    (workload.demand.cpu_milli, workload.demand.memory_mib) = (guest.cpu_milli, 256);
    snapshot.now_ms = guest.since_ms;
    let seat = |(node, gpu): &(u32, Option<u8>)| Seat {
        node: NodeId(*node),
        shares: gpu.iter().map(|gpu| (*gpu, guest.share(mode))).collect(),
    };
    let seats: Vec<Seat> = guest.seats.iter().map(seat).collect();
    for (node, gpu) in seats.iter().flat_map(|s| s.shares.iter().map(|(gpu, _)| (s.node, *gpu))) {
        let _ = snapshot.set_mode(GpuId { node, index: gpu }, mode);
    }
    snapshot.submit(Arc::new(workload));
    if snapshot.place(id, &seats, 5000).is_err() {
        snapshot.withdraw(id);
    } else if let Some(by_ms) = guest.leaves_by_ms {
        snapshot.ask_to_leave(id, by_ms).expect("it runs");
    }
}

/// Whether the newcomer starts once those have left.
fn starts_without(
    snapshot: &Snapshot,
    policy: &Policy,
    gone: &[WorkloadId],
    id: WorkloadId,
) -> bool {
    let mut snapshot = snapshot.clone();
    let waiting: Vec<_> = snapshot.waiting().keys().copied().collect();
    waiting.into_iter().filter(|other| *other != id).for_each(|other| {
        snapshot.withdraw(other);
    });
    gone.iter().for_each(|id| drop(snapshot.finish(*id)));
    let made = plan(&snapshot, &Policy { preemption: None, ..policy.clone() });
    made.steps
        .iter()
        .any(|step| matches!(&step.action, Action::Place { workload, .. } if *workload == id))
}

/// The fewest members of those that would have stayed whose end lets the newcomer start, with all
/// gone that leave anyway; over all sets.
fn optimum(snapshot: &Snapshot, policy: &Policy) -> Option<usize> {
    let (leaving, rest): (Vec<_>, Vec<_>) =
        snapshot.running().values().partition(|running| running.leaves_by_ms.is_some());
    let may =
        |running: &&&model::Running| running.workload.preemptible && running.workload.priority < 1;
    let may: Vec<_> = rest.iter().filter(may).collect();
    let sets = (0u32..1 << may.len()).map(|set| {
        let chosen = may.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1);
        chosen.map(|(_, running)| **running).collect::<Vec<_>>()
    });
    let works = sets.filter(|set| {
        let gone = set.iter().chain(&leaving).map(|running| running.workload.id);
        starts_without(snapshot, policy, &gone.collect::<Vec<_>>(), NEWCOMER)
    });
    works.map(|set| set.iter().map(|running| running.seats.len()).sum()).min()
}

fn asked(plan: &Plan) -> Vec<WorkloadId> {
    let asked = plan.steps.iter().filter_map(|step| match step.action {
        Action::Preempt { workload, .. } => Some(workload),
        Action::SetMode { .. } | Action::Place { .. } => None,
    });
    asked.collect()
}

fn leaving(snapshot: &Snapshot, plan: &Plan) -> Vec<WorkloadId> {
    let before = snapshot.running().values().filter(|running| running.leaves_by_ms.is_some());
    before.map(|running| running.workload.id).chain(asked(plan)).collect()
}

fn carry_out(snapshot: &mut Snapshot, plan: &Plan, policy: &Policy) {
    for step in &plan.steps {
        apply(snapshot, &step.action, policy).expect("a step of a legal plan");
    }
}

fn waits_for_room(plan: &Plan, id: WorkloadId) -> bool {
    matches!(plan.waiting.get(&id), Some(Refusal::MakingRoom { .. }))
}

proptest! {
    #![proptest_config(cases(1500))]

    /// As many members are lost as the best of all sets loses, and nobody if no set will do.
    #[test]
    fn as_few_leave_as_can_be((world, guests) in full()) {
        let snapshot = furnished(&world, &guests);
        let made = plan(&snapshot, &world.policy);
        prop_assert_eq!(check(&snapshot, &made, &world.policy), []);
        let lost = asked(&made).iter().map(|id| snapshot.running()[id].seats.len()).sum::<usize>();
        if starts_without(&snapshot, &world.policy, &[], NEWCOMER) {
            prop_assert_eq!(lost, 0);
            return Ok(());
        }
        let best = optimum(&snapshot, &world.policy);
        prop_assert_eq!(waits_for_room(&made, NEWCOMER), best.is_some(), "{:?}", made);
        prop_assert_eq!(lost, best.unwrap_or(0), "{:?}", made);
    }

    /// The next plan asks nobody else, whether or not the planner remembers the first one.
    #[test]
    fn who_leaves_already_is_enough((world, guests) in full()) {
        let mut snapshot = furnished(&world, &guests);
        let mut remembers = Planner::new(world.policy.clone());
        let first = remembers.plan(&snapshot);
        prop_assert_eq!(&remembers.plan(&snapshot), &first);
        carry_out(&mut snapshot, &first, &world.policy);
        let second = remembers.plan(&snapshot);
        prop_assert_eq!(&second, &plan(&snapshot, &world.policy));
        prop_assert_eq!(asked(&second), []);
        prop_assert_eq!(waits_for_room(&second, NEWCOMER), waits_for_room(&first, NEWCOMER));
    }
}

proptest! {
    #![proptest_config(cases(800))]

    /// Over time, with everything that there is: plans are legal, whoever is told that room is made
    /// would find it once those have left, and a planner that remembers plans the same.
    #[test]
    fn room_is_made_over_time(mut world in worlds(Size::FULL), grace_ms in 0u64..12, stays in 0u8..4, picky in 0u8..5) {
        if picky > 0 {
            plain(&mut world);
        }
        world.policy.preemption = Some(Preemption { grace_ms });
        for workload in &mut world.workloads {
            workload.preemptible = workload.id.0 % 5 > 0 || stays & 1 == 0;
            workload.preempts = workload.id.0 % 7 > 0 || stays & 2 == 0;
        }
        prop_assert_eq!(asked(&plan(&world.snapshot(), &world.policy)), [], "of an idle fleet");
        let arrivals = world.workloads.iter().map(|w| (w.submitted_ms, w.clone())).collect();
        let mut clock = Clock::new(Snapshot::new(world.fleet(), 0), &world.policy, arrivals);
        clock.run(|snapshot, made| {
            audit::audit(snapshot);
            assert_eq!(*made, plan(snapshot, &world.policy));
            let mut later = snapshot.clone();
            carry_out(&mut later, made, &world.policy);
            let gone = leaving(snapshot, made);
            for id in made.waiting.keys().filter(|id| waits_for_room(made, **id)) {
                // A gang may be seated otherwise, or not at all, once even more have left; and what a share counts for its
                // owner shows on its seat alone, which may be another one by then.
                let newcomer = &snapshot.waiting()[id];
                let quota = world.policy.quota(&newcomer.owner).gpu_milli_max;
                let one = newcomer.members == 1 && quota.is_none();
                assert!(!gone.is_empty(), "{id} in {made:?}");
                assert!(!one || starts_without(&later, &world.policy, &gone, *id), "{id} in {made:?}");
            }
        });
        prop_assert!(clock.snapshot.running().is_empty());
        let fresh = Snapshot::new(world.fleet(), 0);
        audit::assert_as_new(&clock.snapshot, &fresh);
    }
}

/// Two whole GPUs held by guests of the given priorities, and a newcomer that needs one.
fn contested(priorities: [i32; 2]) -> (Snapshot, Policy) {
    let gpu = ("t4", ModeSet::ALL);
    let nodes = vec![worlds::NodeSpec { cpu_milli: 8000, memory_mib: 8192, gpus: vec![gpu; 2] }];
    let demand = model::Demand { gpus: Some(one_gpu()), ..model::Demand::default() };
    let newcomer = Workload::new(NEWCOMER, "w".into(), model::Owner::new("a"), demand);
    let newcomer = Workload { priority: 5, ..newcomer };
    let policy = Policy::new(Placement::BestFit);
    let policy = Policy { preemption: Some(Preemption { grace_ms: 50 }), ..policy };
    let world = World { nodes, workloads: vec![newcomer], policy };
    let guest = |(gpu, priority): (u8, i32)| Guest {
        seats: vec![(0, Some(gpu))],
        whole: true,
        tenths: 1,
        gib: 1,
        start: 0,
        cpu_milli: 0,
        priority,
        preemptible: true,
        since_ms: 900,
        leaves_by_ms: None,
    };
    let guests: Vec<Guest> = (0u8..).zip(priorities).map(guest).collect();
    (furnished(&world, &guests), world.policy)
}

fn one_gpu() -> model::GpuDemand {
    model::GpuDemand {
        count: 1,
        each: model::GpuAsk::Whole,
        accepts: Vec::new(),
        isolation: Isolation::None,
        modes: ModeSet::ALL,
    }
}

/// Each rule of asking is held by the recount: a legal plan is made wrong in one respect at a time.
#[test]
fn wrong_preemptions_are_found() {
    let (snapshot, policy) = contested([0, 5]);
    let (victim, equal) = (WorkloadId(100), WorkloadId(101));
    let made = plan(&snapshot, &policy);
    assert_eq!((asked(&made), check(&snapshot, &made, &policy)), (vec![victim], vec![]));
    let step = |workload, by_ms, newcomer| Step {
        action: Action::Preempt { workload, by_ms },
        because: Reason::MakesRoomFor(newcomer),
    };
    let wrong = |step: Step| {
        let id = asked(&Plan { steps: vec![step.clone()], ..Plan::default() })[0];
        let plan = Plan { steps: vec![step], ..made.clone() };
        assert_eq!(check(&snapshot, &plan, &policy), [Violation::BadPreemption(id)], "{plan:?}");
    };
    wrong(step(equal, 1050, NEWCOMER));
    wrong(step(NEWCOMER, 1050, NEWCOMER));
    wrong(step(victim, 1051, NEWCOMER));
    wrong(step(victim, 999, NEWCOMER));
    wrong(step(victim, 1050, equal));
    wrong(Step { because: Reason::Gang { members: 1 }, ..step(victim, 1050, NEWCOMER) });
    let mut twice = made.clone();
    twice.steps.push(made.steps[0].clone());
    assert_eq!(check(&snapshot, &twice, &policy), [Violation::BadPreemption(victim)]);
    let silent = Plan { waiting: Default::default(), ..made.clone() };
    assert_eq!(check(&snapshot, &silent, &policy), [Violation::BadPreemption(victim)]);
    let without = Policy { preemption: None, ..policy.clone() };
    assert_eq!(check(&snapshot, &made, &without), [Violation::BadPreemption(victim)]);
    let mut later = snapshot.clone();
    carry_out(&mut later, &made, &policy);
    assert_eq!(check(&later, &made, &policy), [Violation::BadPreemption(victim)]);
}

/// Without a policy for it nobody is ever asked, whatever the priorities.
#[test]
fn nobody_is_asked_without_a_policy() {
    let (snapshot, policy) = contested([0, 0]);
    let made = plan(&snapshot, &Policy { preemption: None, ..policy });
    assert_eq!(asked(&made), []);
    assert!(!waits_for_room(&made, NEWCOMER), "{made:?}");
    let different: BTreeSet<_> = made.waiting.values().map(Refusal::kind).collect();
    assert_eq!(different, BTreeSet::from(["GPU occupied"]));
}
