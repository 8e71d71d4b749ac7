//! Law: no input makes the engine panic, however large or small its numbers are.

use std::sync::Arc;

use engine::{apply, check, explain, plan};
use model::{
    ArrayMember, Demand, Fleet, Gpu, GpuAsk, GpuDemand, GpuModel, Isolation, ModeSet, ModelId,
    Node, Owner, Policy, Quota, SharingMode, Snapshot, Workload, WorkloadId,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::cases;
use crate::worlds::placements;

/// A workload that asks for a part of one GPU and is otherwise plain.
pub(crate) fn fraction(compute_milli: u32, memory_mib: u64) -> Workload {
    let gpus = GpuDemand {
        count: 1,
        each: GpuAsk::Fraction { compute_milli, memory_mib },
        accepts: Vec::new(),
        isolation: Isolation::None,
        modes: ModeSet::ALL,
    };
    Workload::new(
        WorkloadId(0),
        "w".to_owned(),
        Owner::new("alice"),
        Demand { cpu_milli: 1000, memory_mib: 1024, gpus: Some(gpus), ..Demand::default() },
    )
}

fn long() -> impl Strategy<Value = u64> {
    let edges = [0, 1, 1000, u64::from(u32::MAX), i64::MAX as u64, u64::MAX - 1, u64::MAX];
    prop_oneof![select(edges.to_vec()), any::<u64>()]
}

fn word() -> impl Strategy<Value = u32> {
    prop_oneof![select(&[0, 1, 1000, 1001, i32::MAX as u32, u32::MAX][..]), any::<u32>()]
}

fn demand() -> impl Strategy<Value = Demand> {
    let each = prop_oneof![
        Just(GpuAsk::Whole),
        (word(), long())
            .prop_map(|(compute_milli, memory_mib)| GpuAsk::Fraction { compute_milli, memory_mib }),
        Just(GpuAsk::Profile(String::new())),
    ];
    let isolation = select(vec![Isolation::None, Isolation::Memory, Isolation::Hard]);
    let gpus = (word(), each, isolation).prop_map(|(count, each, isolation)| GpuDemand {
        count,
        each,
        accepts: Vec::new(),
        isolation,
        modes: ModeSet::ALL,
    });
    (long(), long(), option::weighted(0.8, gpus)).prop_map(|(cpu_milli, memory_mib, gpus)| Demand {
        cpu_milli,
        memory_mib,
        gpus,
        ..Demand::default()
    })
}

/// Members of a gang; a fleet holds only so many.
fn members() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..4, 1 => select(&[5000, u32::MAX][..])]
}

fn workload() -> impl Strategy<Value = Workload> {
    let priority = select(&[i32::MIN, -1, 0, i32::MAX][..]);
    // All tasks of an array carry the same limit.
    let array = option::of((0u64..2, word()).prop_map(|(array, index)| ArrayMember {
        array: WorkloadId(array),
        index,
        at_once_max: if array == 0 { 1 } else { u32::MAX },
    }));
    (demand(), priority, long(), option::of(long()), members(), array).prop_map(
        |(demand, priority, submitted_ms, time_limit_ms, members, array)| Workload {
            demand,
            priority,
            submitted_ms,
            time_limit_ms,
            members,
            array,
            ..fraction(0, 0)
        },
    )
}

fn fleet() -> impl Strategy<Value = Fleet> {
    let gpu = (long(), long()).prop_map(|(memory_mib, context_mib)| {
        let name = "odd".to_owned();
        let (id, modes) = (ModelId(300), ModeSet::ALL);
        Gpu::idle(Arc::new(GpuModel { id, name, memory_mib, context_mib, modes, mig: None }), modes)
    });
    let node = (long(), long(), vec(gpu, 0..3));
    let idle = |(cpu, memory, gpus)| Node::idle(String::new(), cpu, memory, gpus);
    vec(node.prop_map(idle), 0..4).prop_map(Fleet::new)
}

fn policy() -> impl Strategy<Value = Policy> {
    let most = select(&[0, 1, 4, u8::MAX][..]);
    let mode = prop_oneof![
        Just(SharingMode::Exclusive),
        most.clone().prop_map(|tenants_max| SharingMode::TimeSlice { tenants_max }),
        most.clone().prop_map(|tenants_max| SharingMode::Mps { tenants_max }),
        most.prop_map(|tenants_max| SharingMode::MemoryCapped { tenants_max }),
    ];
    let quota = (option::of(long()), word());
    let rest = (any::<bool>(), word(), long());
    (placements(), vec(mode, 0..5), quota, rest).prop_map(|(placement, modes, quota, rest)| {
        let (backfill, depth, time_limit_default_ms) = rest;
        let quota = Quota { gpu_milli_max: quota.0, weight: quota.1, ..Quota::default() };
        let quotas = [(Owner::new("alice"), quota)].into_iter().collect();
        let plain = Policy::new(placement);
        Policy { modes, quotas, backfill, depth, time_limit_default_ms, ..plain }
    })
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn nothing_panics(
        fleet in fleet(),
        now_ms in long(),
        queue in vec(workload(), 0..6),
        policy in policy(),
    ) {
        let mut snapshot = Snapshot::new(fleet, now_ms);
        for (workload, id) in queue.into_iter().zip(0u64..) {
            snapshot.submit(Arc::new(Workload { id: WorkloadId(id), ..workload }));
        }
        for _ in 0..2 {
            let made = plan(&snapshot, &policy);
            prop_assert_eq!(check(&snapshot, &made, &policy), []);
            for id in made.waiting.keys() {
                prop_assert!(explain(&snapshot, &policy, *id).is_some());
            }
            for step in &made.steps {
                prop_assert!(apply(&mut snapshot, &step.action, &policy).is_ok());
            }
            let gone = snapshot.running().keys().next().copied();
            gone.map(|id| snapshot.finish(id));
        }
    }

    /// An ask too large for any number is refused, not wrapped round to a small one.
    #[test]
    fn too_much_is_refused(compute_milli in 1001u32.., memory_mib in (1u64 << 32)..) {
        let mut catalogue = model::Catalogue::shipped().expect("the shipped tables");
        for isolation in [Isolation::None, Isolation::Hard] {
            for (compute, memory) in [(compute_milli, 1024), (500, memory_mib), (500, u64::MAX), (u32::MAX, 1)] {
                let gpu = Gpu::idle(catalogue.get_or_enter("a100-80gb"), ModeSet::ALL);
                let fleet = Fleet::new(vec![Node::idle("n".to_owned(), 8000, 8192, vec![gpu])]);
                let mut snapshot = Snapshot::new(fleet, 0);
                let mut asked = fraction(compute, memory);
                asked.demand.gpus.as_mut().expect("GPUs").isolation = isolation;
                snapshot.submit(Arc::new(asked));
                let made = plan(&snapshot, &Policy::new(model::Placement::BestFit));
                prop_assert!(made.steps.is_empty(), "{:?}", made);
            }
        }
    }
}
