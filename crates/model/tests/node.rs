//! One node and the fleet: members are seated whole or not at all, and leave nothing behind.

use model::{
    Catalogue, Demand, Fleet, Gpu, GpuId, ModeSet, Node, NodeId, Owner, Refusal, Seat, Share,
    SharingMode, Workload, WorkloadId,
};

const MPS: SharingMode = SharingMode::Mps { tenants_max: 8 };

fn node() -> Node {
    let mut catalogue = Catalogue::shipped().expect("the shipped tables");
    let model = catalogue.get_or_enter("t4");
    let gpus = (0..2).map(|_| Gpu::idle(model.clone(), ModeSet::ALL)).collect();
    Node::idle("n1".to_owned(), 8000, 16_384, gpus)
}

fn workload(id: u64, cpu_milli: u64, memory_mib: u64) -> Workload {
    Workload::new(
        WorkloadId(id),
        format!("w{id}"),
        Owner::new("alice"),
        Demand { cpu_milli, memory_mib, gpus: None, ..Demand::default() },
    )
}

fn seat(shares: &[(u8, Share)]) -> Seat {
    Seat { node: NodeId(0), shares: shares.to_vec() }
}

#[test]
fn a_member_takes_host_and_gpus() {
    let mut node = node();
    node.admit(&workload(1, 3000, 4096).into(), &seat(&[(0, Share::Exclusive)]), 500)
        .expect("room");
    assert_eq!((node.cpu_free_milli(), node.memory_free_mib()), (5000, 12_288));
    assert_eq!(node.gpu_free_milli(), 1000);
    assert_eq!(node.residents()[0].until_ms, 500);
}

#[test]
fn a_member_that_does_not_fit_leaves_nothing() {
    let mut node = node();
    node.admit(&workload(1, 1000, 1024).into(), &seat(&[(1, Share::Exclusive)]), 500)
        .expect("room");
    let before = node.clone();
    let both = seat(&[(0, Share::Exclusive), (1, Share::Exclusive)]);
    let refusals = [
        node.admit(&workload(2, 1, 1).into(), &both, 500),
        node.admit(
            &workload(2, 1, 1).into(),
            &seat(&[(0, Share::Exclusive), (7, Share::Exclusive)]),
            500,
        ),
        node.admit(&workload(2, 7001, 1).into(), &seat(&[(0, Share::Exclusive)]), 500),
        node.admit(&workload(2, 1, 15_361).into(), &seat(&[(0, Share::Exclusive)]), 500),
    ];
    assert_eq!(refusals[0], Err(Refusal::Occupied { tenants: 1 }));
    assert!(matches!(refusals[1], Err(Refusal::NoSuchPlace { .. })), "there is no GPU 7");
    assert_eq!(refusals[2], Err(Refusal::Cpu { asked_milli: 7001, offered_milli: 7000 }));
    assert_eq!(refusals[3], Err(Refusal::NodeMemory { asked_mib: 15_361, offered_mib: 15_360 }));
    assert_eq!(node.fingerprint(), before.fingerprint());
    assert_eq!(node.residents(), before.residents());
    assert_eq!(node.gpu_free_milli(), before.gpu_free_milli());
}

#[test]
fn release_gives_all_back() {
    let mut node = node();
    let idle = node.clone();
    node.set_mode(0, MPS).expect("idle");
    node.set_mode(1, MPS).expect("idle");
    let half = Share::Mps { compute_milli: 500, memory_mib: 5000 };
    for id in 1..=2 {
        node.admit(&workload(id, 2000, 2048).into(), &seat(&[(0, half), (1, half)]), id)
            .expect("room");
    }
    node.release(WorkloadId(1));
    assert_eq!(node.residents().len(), 1);
    assert_eq!(node.gpu_free_milli(), 1000);
    node.release(WorkloadId(2));
    node.release(WorkloadId(2));
    node.set_mode(0, SharingMode::Exclusive).expect("idle");
    node.set_mode(1, SharingMode::Exclusive).expect("idle");
    assert_eq!(node.fingerprint(), idle.fingerprint());
    assert_eq!(node.cpu_free_milli(), node.cpu_milli());
    assert_eq!(node.memory_free_mib(), node.memory_mib());
    assert_eq!(node.gpu_free_milli(), 2000);
}

#[test]
fn fingerprints_tell_states_apart() {
    let share = Share::Mps { compute_milli: 100, memory_mib: 100 };
    let state = |id: u64, gpu: u8, until_ms: u64, share: Share| {
        let mut node = node();
        node.set_mode(0, MPS).expect("idle");
        node.set_mode(1, MPS).expect("idle");
        node.admit(&workload(id, 1, 1).into(), &seat(&[(gpu, share)]), until_ms).expect("room");
        node.fingerprint()
    };
    let first = state(1, 0, 500, share);
    let larger = Share::Mps { compute_milli: 100, memory_mib: 101 };
    assert_eq!(first, state(1, 0, 500, share));
    assert_ne!(first, state(2, 0, 500, share), "another workload");
    assert_ne!(first, state(1, 1, 500, share), "another GPU");
    assert_ne!(first, state(1, 0, 501, share), "another end");
    assert_ne!(first, state(1, 0, 500, larger), "another share");
}

#[test]
fn fingerprints_forget_the_order_of_arrival() {
    let share = Share::Mps { compute_milli: 100, memory_mib: 100 };
    let state = |ids: [u64; 2]| {
        let mut node = node();
        node.set_mode(0, MPS).expect("idle");
        for id in ids {
            node.admit(&workload(id, 1, 1).into(), &seat(&[(0, share)]), id).expect("room");
        }
        node.fingerprint()
    };
    assert_eq!(state([1, 2]), state([2, 1]));
}

#[test]
fn a_fleet_knows_its_nodes_by_position() {
    let mut fleet = Fleet::new(vec![node(), node()]);
    assert_eq!((fleet.gpu_count(), fleet.cpu_milli()), (4, 16_000));
    let second = GpuId { node: NodeId(1), index: 1 };
    fleet.set_mode(second, MPS).expect("idle");
    assert_eq!(fleet.nodes()[1].gpus()[1].mode(), MPS);
    assert_eq!(fleet.fingerprints()[1], fleet.nodes()[1].fingerprint());
    let nowhere = GpuId { node: NodeId(9), index: 0 };
    assert!(fleet.set_mode(nowhere, MPS).is_err());
    fleet.release(NodeId(9), WorkloadId(1));
}

#[test]
fn a_fleet_is_the_same_whoever_sits_on_it() {
    let mut fleet = Fleet::new(vec![node()]);
    let identity = fleet.identity();
    fleet.admit(&workload(1, 1, 1).into(), &seat(&[(0, Share::Exclusive)]), 9).expect("room");
    assert_eq!(fleet.identity(), identity);
    assert_eq!(Fleet::new(fleet.nodes().to_vec()).identity(), identity);
    let other = Node::idle("n2".to_owned(), 8000, 16_384, Vec::new());
    assert_ne!(Fleet::new(vec![other]).identity(), identity);
}

#[test]
fn a_fleet_without_offers_is_another_fleet() {
    let mut catalogue = Catalogue::shipped().expect("the shipped tables");
    let model = catalogue.get_or_enter("a100-80gb");
    let identity = |offers| {
        let gpus = vec![Gpu::idle(model.clone(), offers)];
        Fleet::new(vec![Node::idle("n".to_owned(), 1, 1, gpus)]).identity()
    };
    assert_ne!(identity(ModeSet::ALL), identity(ModeSet::EMPTY));
}
