//! One GPU: who is let in, what is left, and when its mode may change.

use std::sync::Arc;

use model::{
    Catalogue, Demand, Gpu, GpuModel, Isolation, ModeSet, Owner, ProfileIndex, Refusal, Share,
    SharingKind, SharingMode, Tenant, Workload, WorkloadId,
};

const MPS: SharingMode = SharingMode::Mps { tenants_max: 3 };

fn gpu(name: &str, mode: SharingMode) -> Gpu {
    let mut catalogue = Catalogue::shipped().expect("the shipped tables");
    let mut gpu = Gpu::idle(catalogue.get_or_enter(name), ModeSet::ALL);
    gpu.set_mode(mode).expect("a mode on offer");
    gpu
}

fn tenant(id: u64, share: Share) -> Tenant {
    let (name, owner) = (String::new(), Owner::new(""));
    let workload = Workload::new(WorkloadId(id), name, owner, Demand::default());
    Tenant { workload: Arc::new(workload), share }
}

fn mps(compute_milli: u32, memory_mib: u64) -> Share {
    Share::Mps { compute_milli, memory_mib }
}

#[test]
fn an_idle_gpu_has_everything_left() {
    let gpu = gpu("t4", SharingMode::Exclusive);
    assert_eq!(gpu.compute_free_milli(), 1000);
    // 15360 MiB, of which the driver keeps 450.
    assert_eq!(gpu.memory_free_mib(), 14_910);
    assert_eq!(gpu.free_milli(), 1000);
    assert!(gpu.is_idle());
}

#[test]
fn admission_and_release_are_a_round_trip() {
    let shares = [
        (SharingMode::Exclusive, Share::Exclusive),
        (SharingMode::TimeSlice { tenants_max: 4 }, Share::TimeSlice { memory_mib: 1000 }),
        (MPS, mps(300, 2000)),
        (SharingMode::Mig, Share::Mig { profile: ProfileIndex(2), start: 4 }),
        (
            SharingMode::MemoryCapped { tenants_max: 4 },
            Share::MemoryCapped { memory_mib: 3000, compute_milli: 0 },
        ),
    ];
    for (mode, share) in shares {
        let mut gpu = gpu("a100-80gb", mode);
        let before = (gpu.compute_free_milli(), gpu.memory_free_mib());
        gpu.admit(tenant(1, share)).expect("room");
        assert_ne!((gpu.compute_free_milli(), gpu.memory_free_mib()), before, "{mode:?}");
        assert_eq!(gpu.tenants(), [tenant(1, share)]);
        gpu.release(WorkloadId(2));
        assert_eq!(gpu.tenants().len(), 1, "released for somebody else");
        gpu.release(WorkloadId(1));
        assert_eq!((gpu.compute_free_milli(), gpu.memory_free_mib()), before);
        assert_eq!(gpu.mode(), mode, "the mode stays");
    }
}

#[test]
fn amounts_are_booked_to_the_last_unit() {
    let mut gpu = gpu("t4", MPS);
    gpu.admit(tenant(1, mps(600, 10_000))).expect("room");
    assert_eq!((gpu.compute_free_milli(), gpu.memory_free_mib()), (400, 4_910));
    let too_much = gpu.admit(tenant(2, mps(401, 1)));
    assert_eq!(too_much, Err(Refusal::Compute { asked_milli: 401, offered_milli: 400 }));
    let too_large = gpu.admit(tenant(2, mps(1, 4_911)));
    assert_eq!(too_large, Err(Refusal::GpuMemory { asked_mib: 4_911, offered_mib: 4_910 }));
    assert_eq!(gpu.tenants().len(), 1, "a refusal changes nothing");
    gpu.admit(tenant(2, mps(400, 4_910))).expect("exactly what is left");
    assert_eq!(gpu.free_milli(), 0);
}

#[test]
fn what_is_left_goes_by_the_scarcer_of_two() {
    let mut gpu = gpu("t4", MPS);
    gpu.admit(tenant(1, mps(100, 7_455))).expect("room");
    assert_eq!(gpu.free_milli(), 500);
    assert_eq!(gpu.free_milli_after(MPS, mps(600, 0)), 300);
    assert_eq!(gpu.memory_free_milli_after(MPS, mps(600, 1_491)), 400);
}

#[test]
fn an_uncapped_tenant_books_no_compute() {
    let mode = SharingMode::MemoryCapped { tenants_max: 9 };
    let mut gpu = gpu("t4", mode);
    gpu.admit(tenant(1, Share::MemoryCapped { memory_mib: 5_000, compute_milli: 0 }))
        .expect("room");
    assert_eq!(gpu.compute_free_milli(), 1000);
    assert_eq!(gpu.memory_free_mib(), 9_910);
}

#[test]
fn a_turn_is_an_equal_part() {
    let mode = SharingMode::TimeSlice { tenants_max: 4 };
    let mut gpu = gpu("t4", mode);
    for id in 0..4 {
        gpu.admit(tenant(id, Share::TimeSlice { memory_mib: 10 })).expect("a turn");
        assert_eq!(u64::from(gpu.compute_free_milli()), 1000 - 250 * (id + 1));
    }
    let fifth = gpu.admit(tenant(4, Share::TimeSlice { memory_mib: 10 }));
    assert_eq!(fifth, Err(Refusal::Tenants { tenants_max: 4 }));
}

#[test]
fn the_limit_of_tenants_holds() {
    let mut gpu = gpu("t4", MPS);
    for id in 0..3 {
        gpu.admit(tenant(id, mps(1, 1))).expect("room");
    }
    assert_eq!(gpu.admit(tenant(3, mps(1, 1))), Err(Refusal::Tenants { tenants_max: 3 }));
}

#[test]
fn a_whole_gpu_has_one_tenant() {
    let mut gpu = gpu("t4", SharingMode::Exclusive);
    gpu.admit(tenant(1, Share::Exclusive)).expect("room");
    assert_eq!(gpu.admit(tenant(2, Share::Exclusive)), Err(Refusal::Occupied { tenants: 1 }));
    assert_eq!((gpu.compute_free_milli(), gpu.memory_free_mib()), (0, 0));
}

#[test]
fn only_shares_of_the_mode_in_force_are_let_in() {
    let mut gpu = gpu("t4", MPS);
    let refusal = gpu.admit(tenant(1, Share::Exclusive));
    let (asked, in_force) = (SharingKind::Exclusive, SharingKind::Mps);
    assert_eq!(refusal, Err(Refusal::Mode { asked, in_force }));
}

#[test]
fn a_mode_is_changed_on_an_idle_gpu_only() {
    let mut gpu = gpu("t4", MPS);
    gpu.admit(tenant(1, mps(1, 1))).expect("room");
    let (asked, in_force) = (SharingKind::Exclusive, SharingKind::Mps);
    assert_eq!(gpu.set_mode(SharingMode::Exclusive), Err(Refusal::Mode { asked, in_force }));
    gpu.release(WorkloadId(1));
    assert_eq!(gpu.set_mode(SharingMode::Exclusive), Ok(()));
}

#[test]
fn a_mode_is_set_only_where_node_and_model_can() {
    let mut catalogue = Catalogue::shipped().expect("the shipped tables");
    let mut no_mig = Gpu::idle(catalogue.get_or_enter("t4"), ModeSet::ALL);
    let refusal = |offered| {
        let accepted = ModeSet::of(&[SharingKind::Mig]);
        Err(Refusal::NoMode { accepted, isolation: Isolation::None, offered })
    };
    let offered = no_mig.offers();
    assert_eq!(no_mig.set_mode(SharingMode::Mig), refusal(offered), "the model has none");
    let offers = ModeSet::of(&[SharingKind::Mps]);
    let mut only_mps = Gpu::idle(catalogue.get_or_enter("a100-80gb"), offers);
    let offered = only_mps.offers();
    assert_eq!(only_mps.set_mode(SharingMode::Mig), refusal(offered), "the node does not offer it");
    assert_eq!(only_mps.offers(), offers.with(SharingKind::Exclusive), "exclusive is always there");
}

#[test]
fn instances_are_priced_by_their_slices() {
    let mut gpu = gpu("a100-80gb", SharingMode::Mig);
    let geometry = gpu.model().mig.clone().expect("MIG");
    let half = geometry.find("3g.40gb").expect("a profile");
    gpu.admit(tenant(1, Share::Mig { profile: half, start: 4 })).expect("room");
    assert_eq!(gpu.compute_free_milli(), 1000 - 3000 / 7);
    assert_eq!(gpu.memory_free_mib(), gpu.model().memory_mib / 2);
    assert_eq!(gpu.layout().instances(), [(half, 4)]);
    let refusal = Err(Refusal::MigPlacement { profile: "3g.40gb".to_owned() });
    assert_eq!(gpu.admit(tenant(2, Share::Mig { profile: half, start: 4 })), refusal);
    assert_eq!(gpu.admit(tenant(2, Share::Mig { profile: half, start: 1 })), refusal);
    gpu.admit(tenant(2, Share::Mig { profile: half, start: 0 })).expect("the other half");
}

#[test]
fn no_amount_is_too_large_to_refuse() {
    let all = u64::MAX;
    let odd = GpuModel {
        id: model::ModelId(0),
        name: "odd".to_owned(),
        memory_mib: all,
        context_mib: all,
        modes: ModeSet::ALL,
        mig: None,
    };
    let mut gpu = Gpu::idle(Arc::new(odd), ModeSet::ALL);
    gpu.set_mode(MPS).expect("a mode on offer");
    gpu.admit(tenant(1, mps(1, all - 1))).expect("room");
    assert_eq!(gpu.memory_free_mib(), 1);
    assert!(gpu.admit(tenant(2, mps(u32::MAX, all))).is_err());
    assert_eq!(gpu.free_milli_after(MPS, mps(u32::MAX, all)), 0);
}

#[test]
fn a_share_counts_by_its_larger_part() {
    let gpu = gpu("t4", MPS);
    assert_eq!(gpu.share_milli(MPS, mps(300, 1_491)), 300);
    assert_eq!(gpu.share_milli(MPS, mps(300, 7_455)), 500);
    assert_eq!(gpu.share_milli(SharingMode::Exclusive, Share::Exclusive), 1000);
}

#[test]
fn unknown_memory_is_not_booked() {
    let mut gpu = gpu("mystery9", MPS);
    gpu.admit(tenant(1, mps(400, 0))).expect("room");
    assert_eq!(gpu.free_milli(), 600);
    assert_eq!(
        gpu.admit(tenant(2, mps(1, 1))),
        Err(Refusal::GpuMemory { asked_mib: 1, offered_mib: 0 })
    );
}
