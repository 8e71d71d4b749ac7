//! A recount of a snapshot from its raw amounts: nothing is given away twice or lost.

use model::{Gpu, GpuId, Node, Share, SharingMode, Snapshot, Usage};

/// Panics where the books of the snapshot do not add up.
pub(crate) fn audit(snapshot: &Snapshot) {
    for node in snapshot.fleet().nodes() {
        hosts(node);
        for gpu in node.gpus() {
            assert!(gpu.tenants().iter().all(|tenant| tenant.share.kind() == gpu.mode().kind()));
            assert!(gpu.tenants().len() <= usize::from(gpu.mode().tenants_max()));
            if gpu.mode() == SharingMode::Mig { instances(gpu) } else { amounts(gpu) }
        }
    }
    for running in snapshot.running().values() {
        let id = running.workload.id;
        let nodes = snapshot.fleet().nodes().iter();
        let members =
            nodes.flat_map(Node::residents).filter(|member| member.workload == id).count();
        assert_eq!(members, running.workload.members.max(1) as usize, "members of {id}");
        assert!(!snapshot.waiting().contains_key(&id), "{id} runs and waits");
    }
}

fn hosts(node: &Node) {
    let sum = |amounts: Vec<u64>| amounts.into_iter().map(u128::from).sum::<u128>();
    let cpu = sum(node.residents().iter().map(|r| r.cpu_milli).collect());
    let memory = sum(node.residents().iter().map(|r| r.memory_mib).collect());
    assert_eq!(cpu + u128::from(node.cpu_free_milli()), u128::from(node.cpu_milli()));
    assert_eq!(memory + u128::from(node.memory_free_mib()), u128::from(node.memory_mib()));
}

fn amounts(gpu: &Gpu) {
    let (mut compute, mut memory) = (0u64, 0u128);
    for tenant in gpu.tenants() {
        match tenant.share {
            Share::Exclusive => compute += 1000,
            Share::TimeSlice { memory_mib } => memory += u128::from(memory_mib),
            Share::Mps { compute_milli, memory_mib }
            | Share::MemoryCapped { compute_milli, memory_mib } => {
                compute += u64::from(compute_milli);
                memory += u128::from(memory_mib);
            }
            Share::Mig { .. } => panic!("an instance outside MIG"),
        }
    }
    assert!(compute <= 1000, "{gpu:?}");
    assert!(memory <= u128::from(gpu.model().memory_mib), "{gpu:?}");
}

fn instances(gpu: &Gpu) {
    let geometry = gpu.model().mig.as_ref().expect("a model with MIG");
    let (mut slices, mut compute) = (Vec::new(), 0);
    for (index, start) in gpu.layout().instances() {
        let profile = geometry.profile(*index).expect("a profile of the model");
        assert!(profile.starts.contains(start), "{gpu:?}");
        slices.extend(*start..*start + profile.memory_slices);
        compute += profile.compute_slices;
    }
    let taken = slices.len();
    slices.sort_unstable();
    slices.dedup();
    assert_eq!(slices.len(), taken, "instances overlap: {gpu:?}");
    assert!(compute <= geometry.compute_slices, "{gpu:?}");
}

/// Panics unless the fleet is as good as new: everybody gone and, modes set back, the same prints.
pub(crate) fn assert_as_new(snapshot: &Snapshot, new: &Snapshot) {
    let mut snapshot = snapshot.clone();
    let gpus = |(node, found): (_, &Node)| {
        (0..found.gpus().len() as u8).map(move |index| GpuId { node, index })
    };
    let all: Vec<_> = snapshot.fleet().indexed().flat_map(gpus).collect();
    for gpu in all {
        snapshot.set_mode(gpu, SharingMode::Exclusive).expect("an idle GPU");
    }
    assert_eq!(snapshot.fleet().fingerprints(), new.fleet().fingerprints());
    assert_eq!(snapshot.used(), Usage::default());
    for node in snapshot.fleet().nodes() {
        assert_eq!(node.cpu_free_milli(), node.cpu_milli());
        assert_eq!(node.memory_free_mib(), node.memory_mib());
        assert_eq!(node.gpu_free_milli(), 1000 * node.gpus().len() as u64);
        let full = |gpu: &Gpu| gpu.memory_free_mib() == gpu.model().memory_mib;
        assert!(node.gpus().iter().all(full));
    }
}
