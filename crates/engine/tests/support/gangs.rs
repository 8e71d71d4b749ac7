//! Gangs whose members each take several GPUs: how they are packed decides whether they fit.

use engine::{apply, plan};
use model::{
    GpuAsk, ModeSet, Placement, Policy, Refusal, SharingMode, Snapshot, Workload, WorkloadId,
};

use crate::extremes::fraction;
use crate::placed;
use crate::worlds::{NodeSpec, World};

fn world(gpus: [&'static str; 4], gang: Workload, policy: Policy) -> World {
    let gpus = gpus.map(|name| (name, ModeSet::ALL)).to_vec();
    let nodes = vec![NodeSpec { cpu_milli: 64_000, memory_mib: 65_536, gpus }];
    World { nodes, workloads: vec![gang], policy }
}

fn gang(members: u32, count: u32, memory_mib: u64) -> Workload {
    let mut gang = Workload { members, ..fraction(0, memory_mib) };
    gang.demand.gpus.iter_mut().for_each(|gpus| gpus.count = count);
    gang
}

/// A draw that does not hold a gang is no reason not to start it where another seat does: each T4
/// has room for one share, each A30 for two instances, and six are asked for.
#[test]
fn a_drawn_gang_starts_on_an_idle_fleet() {
    for seed in 0..50 {
        let modes = vec![SharingMode::Mig, SharingMode::Mps { tenants_max: 5 }];
        let policy = Policy { modes, ..Policy::new(Placement::Random { seed }) };
        let world = world(["t4", "a30", "a30", "t4"], gang(3, 2, 7168), policy);
        let made = plan(&world.snapshot(), &world.policy);
        assert_eq!(placed(&made), [WorkloadId(0)], "seed {seed}: {:?}", made.waiting);
    }
}

/// Four members of three GPUs fit, four on each A100 and three on each A30.
#[test]
fn a_wide_gang_is_packed_well() {
    for name in Placement::NAMES {
        let modes = vec![SharingMode::MemoryCapped { tenants_max: 4 }];
        let placement = Placement::parse(name).expect("a policy's own name");
        let policy = Policy { modes, ..Policy::new(placement) };
        let mut asked = gang(4, 3, 6144);
        let world = |asked| world(["a100-80gb", "a30", "a30", "a100-80gb"], asked, policy.clone());
        let made = plan(&world(asked.clone()).snapshot(), &policy);
        let never = made.waiting.values().any(Refusal::is_never);
        assert!(!never, "{name}: {:?}", made.waiting);
        assert_eq!(placed(&made), [WorkloadId(0)], "{name}: {:?}", made.waiting);
        // And not one member more.
        asked.members = 5;
        let made = plan(&world(asked).snapshot(), &policy);
        assert!(made.waiting.values().all(Refusal::is_never), "{name}: {made:?}");
    }
}

/// A gang of whole GPUs needs no packing.
#[test]
fn a_gang_of_whole_gpus_fills_a_node() {
    let mut whole = gang(2, 2, 0);
    whole.demand.gpus.iter_mut().for_each(|gpus| gpus.each = GpuAsk::Whole);
    let world = world(["t4"; 4], whole, Policy::new(Placement::BestFit));
    let mut snapshot: Snapshot = world.snapshot();
    for step in plan(&snapshot, &world.policy).steps {
        apply(&mut snapshot, &step.action, &world.policy).expect("a legal step");
    }
    assert_eq!(snapshot.fleet().nodes()[0].gpu_free_milli(), 0);
}
