//! How many cards a list of workloads needs at once under one way of sharing: packed by the engine itself onto as many as it takes.

use std::sync::Arc;

use engine::apply;
use model::{
    Fleet, Gpu, GpuModel, ModeSet, Node, Owner, Placement, Policy, SharingMode, Snapshot, Workload,
    WorkloadId,
};

use crate::need::{Need, welcome};

/// GPUs of a machine, as most have.
const NODE_GPUS: u32 = 8;
/// Cards tried at most.
const CARDS_MAX: u32 = 1 << 20;

/// All modes that can be had, in the order in which an idle card is put into one.
pub(crate) fn modes() -> Vec<SharingMode> {
    let tenants_max = SharingMode::TENANTS_MAX;
    vec![
        SharingMode::MemoryCapped { tenants_max },
        SharingMode::Mps { tenants_max },
        SharingMode::Mig,
        SharingMode::TimeSlice { tenants_max },
        SharingMode::Exclusive,
    ]
}

/// Machines with that many cards in all; of CPU and memory they have as much as anybody could want.
pub fn fleet(model: &Arc<GpuModel>, cards: u32) -> Fleet {
    let node = |first: u32| {
        let here = NODE_GPUS.min(cards - first);
        let gpu = Gpu::idle(Arc::clone(model), ModeSet::ALL);
        let (cpu, memory) = (u64::from(u32::MAX), u64::from(u32::MAX));
        Node::idle(format!("node{}", first / NODE_GPUS), cpu, memory, vec![gpu; here as usize])
    };
    Fleet::new((0..cards).step_by(NODE_GPUS as usize).map(node).collect())
}

/// The list on cards.
pub(crate) struct Packed {
    /// With everybody who found a place.
    pub(crate) snapshot: Snapshot,
    /// Who found none on any number of cards.
    pub(crate) never: Vec<WorkloadId>,
}

/// Packs a list, the largest first, onto as few cards as best fit needs.
pub(crate) fn pack(list: &[Workload], model: &Arc<GpuModel>) -> Packed {
    let mut order: Vec<&Workload> = list.iter().collect();
    let size = |workload: &Workload| {
        let each = Need::of(workload, model).map_or(0, |need| need.size_milli(model));
        let count = workload.demand.gpu_count() as u64 * u64::from(workload.members.max(1));
        (count, each)
    };
    order.sort_by_cached_key(|workload| (std::cmp::Reverse(size(workload)), workload.id));
    let total: u64 = list.iter().map(size).map(|(count, each)| count * u64::from(each)).sum();
    let least = u32::try_from(total.div_ceil(1000)).unwrap_or(CARDS_MAX).clamp(1, CARDS_MAX);
    let mut cards = least.next_multiple_of(NODE_GPUS);
    loop {
        let packed = on(&order, model, cards);
        let is_enough = packed.snapshot.waiting().is_empty() || cards >= CARDS_MAX;
        if is_enough {
            return packed;
        }
        cards = (cards + cards / 4 + NODE_GPUS).next_multiple_of(NODE_GPUS).min(CARDS_MAX);
    }
}

fn on(order: &[&Workload], model: &Arc<GpuModel>, cards: u32) -> Packed {
    let mut snapshot = Snapshot::new(fleet(model, cards), order.len() as u64);
    for (workload, at) in order.iter().zip(0..) {
        // Who goes first is their size, not whose they are.
        let (priority, submitted_ms, owner) = (0, at, Owner::new("all"));
        let workload = Workload { priority, submitted_ms, owner, ..Workload::clone(workload) };
        snapshot.submit(welcome(workload));
    }
    let policy = Policy {
        modes: modes(),
        depth: u32::MAX,
        backfill: true,
        ..Policy::new(Placement::BestFit)
    };
    let plan = engine::plan(&snapshot, &policy);
    for step in &plan.steps {
        let _done = apply(&mut snapshot, &step.action, &policy);
    }
    let mut never = Vec::new();
    for (id, refusal) in &plan.waiting {
        // A task of an array that may not run yet needs no card now.
        if refusal.is_never() || refusal.is_of_limits() {
            never.extend(refusal.is_never().then_some(*id));
            snapshot.withdraw(*id);
        }
    }
    Packed { snapshot, never }
}
