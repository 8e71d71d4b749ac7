//! The world at one moment: workloads wait, run and leave, and the totals follow.

use std::sync::Arc;

use model::{
    ArrayMember, Catalogue, Demand, Fleet, Gpu, GpuAsk, GpuDemand, GpuId, Isolation, ModeSet, Node,
    NodeId, Owner, Refusal, Seat, Share, SharingMode, Snapshot, Usage, Workload, WorkloadId,
};

const MPS: SharingMode = SharingMode::Mps { tenants_max: 8 };

/// Two nodes of two T4 each.
fn snapshot() -> Snapshot {
    let mut catalogue = Catalogue::shipped().expect("the shipped tables");
    let model = catalogue.get_or_enter("t4");
    let node = |name: &str| {
        let gpus = (0..2).map(|_| Gpu::idle(model.clone(), ModeSet::ALL)).collect();
        Node::idle(name.to_owned(), 8000, 16_384, gpus)
    };
    Snapshot::new(Fleet::new(vec![node("n1"), node("n2")]), 1000)
}

fn workload(id: u64, owner: &str, priority: i32) -> Arc<Workload> {
    let gpus = GpuDemand {
        count: 1,
        each: GpuAsk::Whole,
        accepts: Vec::new(),
        isolation: Isolation::None,
        modes: ModeSet::ALL,
    };
    Arc::new(Workload {
        priority,
        submitted_ms: 100 - id,
        array: Some(ArrayMember { array: WorkloadId(7), index: id as u32, at_once_max: 0 }),
        ..Workload::new(
            WorkloadId(id),
            format!("w{id}"),
            Owner::new(owner),
            Demand { cpu_milli: 1500, memory_mib: 1024, gpus: Some(gpus), ..Demand::default() },
        )
    })
}

fn whole(node: u32, gpu: u8) -> Seat {
    Seat { node: NodeId(node), shares: vec![(gpu, Share::Exclusive)] }
}

fn usage(gpu_milli: u64, cpu_milli: u64) -> Usage {
    Usage { gpu_milli, cpu_milli }
}

#[test]
fn a_workload_waits_runs_and_leaves() {
    let mut snapshot = snapshot();
    let alice = Owner::new("alice");
    snapshot.submit(workload(1, "alice", 0));
    snapshot.place(WorkloadId(1), &[whole(0, 0)], 5000).expect("room");
    assert!(snapshot.waiting().is_empty());
    assert_eq!(snapshot.running()[&WorkloadId(1)].since_ms, 1000);
    assert_eq!(snapshot.used(), usage(1000, 1500));
    assert_eq!(snapshot.usage(&alice), usage(1000, 1500));
    assert_eq!(snapshot.array_running(WorkloadId(7)), 1);
    let gone = snapshot.finish(WorkloadId(1)).expect("it ran");
    assert_eq!(gone.seats, [whole(0, 0)]);
    assert_eq!((snapshot.used(), snapshot.usage(&alice)), (Usage::default(), Usage::default()));
    assert_eq!(snapshot.array_running(WorkloadId(7)), 0);
    assert!(snapshot.finish(WorkloadId(1)).is_none());
}

#[test]
fn placing_twice_does_no_harm() {
    let mut snapshot = snapshot();
    snapshot.submit(workload(1, "alice", 0));
    snapshot.place(WorkloadId(1), &[whole(0, 0)], 5000).expect("room");
    let once = snapshot.clone();
    snapshot.place(WorkloadId(1), &[whole(0, 0)], 5000).expect("the same once more");
    let elsewhere = snapshot.place(WorkloadId(1), &[whole(1, 1)], 5000);
    assert_eq!(elsewhere, Err(Refusal::NotWaiting { workload: WorkloadId(1) }));
    assert_eq!(snapshot.fleet().fingerprints(), once.fleet().fingerprints());
    assert_eq!(snapshot.used(), once.used());
}

#[test]
fn whoever_is_asked_to_leave_keeps_its_seats_and_is_expected_to_go() {
    let mut snapshot = snapshot();
    let id = WorkloadId(1);
    assert_eq!(snapshot.ask_to_leave(id, 2000), Err(Refusal::NotRunning { workload: id }));
    snapshot.submit(workload(1, "alice", 0));
    assert_eq!(snapshot.ask_to_leave(id, 2000), Err(Refusal::NotRunning { workload: id }));
    snapshot.place(id, &[whole(0, 0), whole(1, 1)], 5000).expect("room");
    let before = snapshot.clone();
    let until = |snapshot: &Snapshot| -> Vec<u64> {
        let nodes = snapshot.fleet().nodes().iter();
        nodes.flat_map(Node::residents).map(|resident| resident.until_ms).collect()
    };
    for (by_ms, expected_ms) in [(3000, 3000), (4000, 3000), (2000, 2000), (2000, 2000)] {
        snapshot.ask_to_leave(id, by_ms).expect("it runs");
        assert_eq!(snapshot.running()[&id].leaves_by_ms, Some(expected_ms));
        assert_eq!(until(&snapshot), [expected_ms; 2]);
    }
    assert_ne!(snapshot.fleet().fingerprints(), before.fleet().fingerprints());
    assert_eq!(snapshot.used(), before.used());
    snapshot.finish(id).expect("it ran");
    let (left, idle) = (snapshot.fleet().fingerprints(), self::snapshot());
    assert_eq!(left, idle.fleet().fingerprints());
}

/// Whoever would be gone earlier anyway is not expected to stay until the time it is given.
#[test]
fn asking_to_leave_lengthens_no_stay() {
    let mut snapshot = snapshot();
    snapshot.submit(workload(1, "alice", 0));
    snapshot.place(WorkloadId(1), &[whole(0, 0)], 1500).expect("room");
    snapshot.ask_to_leave(WorkloadId(1), 2000).expect("it runs");
    assert_eq!(snapshot.fleet().nodes()[0].residents()[0].until_ms, 1500);
    assert_eq!(snapshot.running()[&WorkloadId(1)].leaves_by_ms, Some(2000));
}

#[test]
fn a_gang_is_placed_whole_or_not_at_all() {
    let mut snapshot = snapshot();
    let idle = snapshot.clone();
    snapshot.submit(workload(1, "alice", 0));
    let seats = [whole(0, 0), whole(0, 1), whole(1, 0), whole(1, 0)];
    let refusal = snapshot.place(WorkloadId(1), &seats, 5000);
    assert_eq!(refusal, Err(Refusal::Occupied { tenants: 1 }));
    assert_eq!(snapshot.fleet().fingerprints(), idle.fleet().fingerprints());
    assert!(snapshot.waiting().contains_key(&WorkloadId(1)));
    assert_eq!((snapshot.used(), snapshot.array_running(WorkloadId(7))), (Usage::default(), 0));
    snapshot.place(WorkloadId(1), &seats[..3], 5000).expect("room for three");
    assert_eq!(snapshot.used(), usage(3000, 4500));
}

#[test]
fn usage_does_not_depend_on_who_left_first() {
    let light = Share::Mps { compute_milli: 800, memory_mib: 1491 };
    let heavy = Share::Mps { compute_milli: 100, memory_mib: 11_928 };
    for first in 1..=2 {
        let mut snapshot = snapshot();
        snapshot.set_mode(GpuId { node: NodeId(0), index: 0 }, MPS).expect("idle");
        for (id, owner, share) in [(1, "alice", light), (2, "bob", heavy)] {
            snapshot.submit(workload(id, owner, 0));
            let seat = Seat { node: NodeId(0), shares: vec![(0, share)] };
            snapshot.place(WorkloadId(id), &[seat], 5000).expect("room");
        }
        assert_eq!(snapshot.usage(&Owner::new("alice")).gpu_milli, 800);
        assert_eq!(snapshot.usage(&Owner::new("bob")).gpu_milli, 800);
        snapshot.finish(WorkloadId(first));
        let left = snapshot.fleet().nodes()[0].gpu_free_milli();
        assert_eq!(snapshot.used().gpu_milli, 2000 - left);
        snapshot.finish(WorkloadId(3 - first));
        assert_eq!(snapshot.used(), Usage::default());
    }
}

#[test]
fn one_id_waits_or_runs_once() {
    let mut snapshot = snapshot();
    snapshot.submit(workload(1, "alice", 0));
    snapshot.submit(workload(1, "bob", 5));
    assert_eq!(snapshot.waiting()[&WorkloadId(1)].owner, Owner::new("bob"));
    assert_eq!(snapshot.lanes().count(), 1);
    snapshot.place(WorkloadId(1), &[whole(0, 0)], 5000).expect("room");
    snapshot.submit(workload(1, "bob", 5));
    snapshot.place(WorkloadId(1), &[whole(1, 0)], 5000).expect_err("it runs elsewhere");
    snapshot.finish(WorkloadId(1));
    assert_eq!(snapshot.used(), Usage::default());
    let free = snapshot.fleet().nodes().iter().map(Node::gpu_free_milli).sum::<u64>();
    assert_eq!(free, 4000, "a hold has been forgotten");
}

#[test]
fn lanes_are_in_order() {
    let mut snapshot = snapshot();
    for (id, owner, priority) in [(1, "bob", 0), (2, "alice", 0), (3, "bob", 9), (4, "bob", 0)] {
        snapshot.submit(workload(id, owner, priority));
    }
    let read = |snapshot: &Snapshot| {
        let ids = |lane: &std::collections::BTreeSet<(u64, WorkloadId)>| {
            lane.iter().map(|(_, id)| id.0).collect()
        };
        let lanes = snapshot.lanes();
        lanes.map(|lane| (lane.priority, lane.owner.to_string(), ids(lane.entries))).collect()
    };
    let lanes: Vec<(i32, String, Vec<u64>)> = read(&snapshot);
    let lane = |priority, owner: &str, ids: &[u64]| (priority, owner.to_owned(), ids.to_vec());
    assert_eq!(lanes, [lane(9, "bob", &[3]), lane(0, "alice", &[2]), lane(0, "bob", &[4, 1])]);
    assert!(snapshot.withdraw(WorkloadId(2)).is_some());
    assert!(snapshot.withdraw(WorkloadId(2)).is_none());
    let lanes: Vec<(i32, String, Vec<u64>)> = read(&snapshot);
    assert_eq!(lanes, [lane(9, "bob", &[3]), lane(0, "bob", &[4, 1])]);
}

#[test]
fn capacity_is_the_fleet_s() {
    assert_eq!(snapshot().capacity(), usage(4000, 16_000));
    let huge = |name: &str| Node::idle(name.to_owned(), u64::MAX, u64::MAX, Vec::new());
    let snapshot = Snapshot::new(Fleet::new(vec![huge("a"), huge("b")]), 0);
    assert_eq!(snapshot.capacity().cpu_milli, u64::MAX);
}

#[test]
fn a_gpu_set_aside_takes_nobody_and_comes_back_as_it_was() {
    let mut snapshot = snapshot();
    let gpu = GpuId { node: NodeId(0), index: 0 };
    let (free, print) = (snapshot.used(), snapshot.fleet().fingerprints().to_vec());
    snapshot.set_aside(gpu, true).unwrap();
    assert_ne!(snapshot.fleet().fingerprints(), print);
    assert_eq!(snapshot.used().gpu_milli, free.gpu_milli + 1000);
    let held = &snapshot.fleet().node(gpu.node).unwrap().gpus()[0];
    assert_eq!(held.fits(SharingMode::Exclusive, Share::Exclusive), Err(Refusal::SetAside));
    snapshot.set_aside(gpu, false).unwrap();
    assert_eq!((snapshot.used(), snapshot.fleet().fingerprints().to_vec()), (free, print));
}
