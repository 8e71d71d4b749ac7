//! The engine against brute force on tiny fleets: it refuses what cannot be, and nothing else.

#[path = "support/naive.rs"]
mod naive;
#[path = "support/worlds.rs"]
mod worlds;

use std::sync::Arc;

use engine::{explain, plan};
use model::{
    Action, Demand, GpuAsk, GpuDemand, GpuId, Isolation, ModeSet, ModelSet, NodeId, Placement,
    Plan, Policy, ProfileIndex, Reason, Seat, Share, SharingKind, SharingMode, Snapshot, Workload,
    WorkloadId,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use worlds::{Size, World, worlds};

/// Two nodes, three GPUs at most on each, and one workload: everything can be tried.
const TINY: Size =
    Size { nodes: 2, gpus: 3, workloads: 1, members: 1, natures: false, ..Size::PLAIN };

/// A tenant that may or may not fit where it is put.
#[derive(Clone, Debug)]
struct Guest {
    node: u32,
    gpu: u8,
    share: Share,
}

fn guest() -> impl Strategy<Value = Guest> {
    let kind = select(SharingKind::ALL.to_vec());
    let share = (kind, 0u32..=8, 1u64..=12, 0u8..8).prop_map(|(kind, tenths, gib, slot)| {
        let (compute_milli, memory_mib) = (tenths * 100, gib * 1024);
        match kind {
            SharingKind::Exclusive => Share::Exclusive,
            SharingKind::TimeSlice => Share::TimeSlice { memory_mib },
            SharingKind::Mps => Share::Mps { compute_milli, memory_mib },
            SharingKind::Mig => Share::Mig { profile: ProfileIndex(tenths as u8), start: slot },
            SharingKind::MemoryCapped => Share::MemoryCapped { compute_milli, memory_mib },
        }
    });
    (0u32..2, 0u8..3, share).prop_map(|(node, gpu, share)| Guest { node, gpu, share })
}

fn tiny() -> impl Strategy<Value = (World, Vec<Guest>)> {
    let full = worlds(TINY).prop_filter("a workload", |world| !world.workloads.is_empty());
    (full, vec(guest(), 0..10))
}

/// The world with those guests in it that the model lets in, and the workload in the queue.
fn furnished(world: &World, guests: &[Guest]) -> Snapshot {
    let mut snapshot = Snapshot::new(world.fleet(), 1000);
    for (guest, id) in guests.iter().zip(100u64..) {
        let node = NodeId(guest.node);
        let mode = naive::mode_of(guest.share.kind());
        let _ = snapshot.set_mode(GpuId { node, index: guest.gpu }, mode);
        let mut workload = world.workloads[0].clone();
        workload.id = WorkloadId(id);
        workload.demand.cpu_milli = 500;
        workload.demand.memory_mib = 256;
        snapshot.submit(Arc::new(workload));
        let seat = Seat { node, shares: vec![(guest.gpu, guest.share)] };
        if snapshot.place(WorkloadId(id), &[seat], 5000).is_err() {
            snapshot.withdraw(WorkloadId(id));
        }
    }
    snapshot.submit(Arc::new(world.workloads[0].clone()));
    snapshot
}

fn placement(plan: &Plan) -> Option<(&[Seat], &Reason)> {
    let step = plan.steps.last()?;
    match &step.action {
        Action::Place { seats, .. } => Some((seats, &step.because)),
        Action::SetMode { .. } => panic!("a mode is set for nobody"),
        Action::Preempt { .. } => panic!("somebody is asked to leave without a policy for it"),
    }
}

/// Alternatives of GPU models, best first; one that accepts all if none is named.
fn alternatives(demand: &Demand) -> Vec<Option<&ModelSet>> {
    let sets: Vec<_> = demand.gpus.iter().flat_map(|gpus| &gpus.accepts).map(Some).collect();
    if sets.is_empty() { vec![None] } else { sets }
}

fn config(cases: u32) -> ProptestConfig {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: given.unwrap_or(cases),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(3000))]

    /// A workload is placed if and only if some legal seat exists, under every policy.
    #[test]
    fn nothing_is_refused_wrongly((world, guests) in tiny()) {
        let snapshot = furnished(&world, &guests);
        let demand = &world.workloads[0].demand;
        let nodes = snapshot.fleet().nodes();
        let exists = alternatives(demand)
            .into_iter()
            .any(|accepts| !naive::able(nodes, demand, accepts, &world.policy).is_empty());
        let made = plan(&snapshot, &world.policy);
        prop_assert_eq!(placement(&made).is_some(), exists, "{:?}", made);
    }

    /// The workload is on a node of the first alternative that has any.
    #[test]
    fn the_first_alternative_with_room_wins((world, guests) in tiny()) {
        let snapshot = furnished(&world, &guests);
        let demand = &world.workloads[0].demand;
        let nodes = snapshot.fleet().nodes();
        let mut able = alternatives(demand).into_iter().map(|accepts| naive::able(nodes, demand, accepts, &world.policy));
        let made = plan(&snapshot, &world.policy);
        if let Some((seats, _)) = placement(&made) {
            let first = able.find(|nodes| !nodes.is_empty()).expect("room");
            prop_assert!(first.iter().any(|(at, _)| *at == seats[0].node.index()));
        }
    }

    /// Best fit takes the node that a naive recount finds best, and says its score.
    #[test]
    fn best_fit_is_best((mut world, guests) in tiny()) {
        world.policy.placement = Placement::BestFit;
        let snapshot = furnished(&world, &guests);
        let demand = &world.workloads[0].demand;
        let nodes = snapshot.fleet().nodes();
        let mut able = alternatives(demand).into_iter().map(|accepts| naive::able(nodes, demand, accepts, &world.policy));
        let made = plan(&snapshot, &world.policy);
        if let Some((seats, because)) = placement(&made) {
            let first = able.find(|nodes| !nodes.is_empty()).expect("room");
            let scores = first.iter().map(|(at, gpus)| (naive::best_fit(&nodes[*at], demand, gpus), std::cmp::Reverse(*at)));
            let (score, at) = scores.max().expect("room");
            prop_assert_eq!(because, &Reason::Best { score, beside: None });
            prop_assert_eq!(seats[0].node.index(), at.0);
        }
    }

    /// Explaining agrees with planning: some node could, if and only if the workload starts.
    #[test]
    fn explaining_agrees_with_planning((world, guests) in tiny()) {
        let snapshot = furnished(&world, &guests);
        let id = world.workloads[0].id;
        let why = explain(&snapshot, &world.policy, id).expect("it waits");
        let able: Vec<_> = why.nodes.iter().filter(|node| node.verdict.is_ok()).map(|node| node.node).collect();
        prop_assert_eq!(why.starts(), !able.is_empty());
        let made = plan(&snapshot, &world.policy);
        if let Some((seats, _)) = placement(&made) {
            prop_assert!(able.contains(&seats[0].node));
        }
    }

    /// Said never to fit means that the idle fleet cannot hold it, and the other way round. It may
    /// start all the same where tenants keep a GPU in a mode that the policy does not list.
    #[test]
    fn never_means_not_even_when_idle((world, guests) in tiny()) {
        let snapshot = furnished(&world, &guests);
        let idle = plan(&furnished(&world, &[]), &world.policy);
        let made = plan(&snapshot, &world.policy);
        let never = made.waiting.values().any(model::Refusal::is_never);
        prop_assert_eq!(never, placement(&idle).is_none() && placement(&made).is_none());
    }
}

/// Each sharing mode alone is found, and only where the GPU offers it.
#[test]
fn every_mode_is_placed_where_it_is_offered() {
    for wanted in SharingKind::ALL {
        for offered in SharingKind::ALL {
            let gpus = vec![("a100-80gb", ModeSet::of(&[offered]))];
            let nodes = vec![worlds::NodeSpec { cpu_milli: 4000, memory_mib: 4096, gpus }];
            let modes = SharingKind::ALL.map(naive::mode_of).to_vec();
            let policy = Policy { modes, ..Policy::new(Placement::BestFit) };
            let world = World { nodes, workloads: vec![asking(wanted)], policy };
            let made = plan(&world.snapshot(), &world.policy);
            // Every GPU can be given as a whole.
            let able = wanted == offered || wanted == SharingKind::Exclusive;
            assert_eq!(placement(&made).is_some(), able, "{wanted} on {offered}: {made:?}");
            let changes = able && naive::mode_of(wanted) != SharingMode::Exclusive;
            assert_eq!(made.steps.len(), usize::from(able) + usize::from(changes), "{made:?}");
        }
    }
}

fn asking(mode: SharingKind) -> Workload {
    let each = GpuAsk::Fraction { compute_milli: 250, memory_mib: 4096 };
    let (accepts, isolation) = (Vec::new(), Isolation::None);
    let gpus = GpuDemand { count: 1, each, accepts, isolation, modes: ModeSet::of(&[mode]) };
    Workload::new(
        WorkloadId(0),
        "w".to_owned(),
        model::Owner::new("alice"),
        Demand { cpu_milli: 1000, memory_mib: 1024, gpus: Some(gpus), ..Demand::default() },
    )
}
