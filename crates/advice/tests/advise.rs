//! Advice for lists that can be counted by hand.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use advice::scheme::Because;
use advice::{Advice, Question, Way, advise};
use model::{
    Arrival, Catalogue, Class, Demand, GpuAsk, GpuDemand, GpuModel, Isolation, ModeSet, Owner,
    SharingKind, Trace, Workload, WorkloadId,
};

fn a100() -> Arc<GpuModel> {
    Arc::clone(Catalogue::shipped().unwrap().get("a100-80gb").unwrap())
}

fn workload(name: &str, compute_milli: u32, memory_gib: u64) -> Workload {
    let gpus = GpuDemand {
        count: 1,
        each: GpuAsk::Fraction { compute_milli, memory_mib: memory_gib << 10 },
        accepts: Vec::new(),
        isolation: Isolation::None,
        modes: ModeSet::ALL,
    };
    let demand = Demand { gpus: Some(gpus), ..Demand::default() };
    Workload::new(WorkloadId(0), name.into(), Owner::new("o"), demand)
}

fn advised(list: Vec<Workload>, runs_ms: Option<u64>, cards: u32) -> Advice {
    let arrivals =
        list.into_iter().map(|workload| Arrival { at_ms: 0, runs_ms, workload }).collect();
    let (trace, model) = (Trace { arrivals }, a100());
    advise(&Question { trace: &trace, model: &model, cards, speeds: &() }).unwrap()
}

fn gpus(advice: &Advice, kind: SharingKind) -> (u64, u64) {
    let row = advice.rows.iter().find(|row| row.way == Way::All(kind)).unwrap();
    (row.gpus, row.alone)
}

#[test]
fn the_classic_small_case_on_a_real_card() {
    let service = |workload: Workload| Workload { class: Class::Service, ..workload };
    let list = vec![
        service(workload("llm", 500, 38)),
        service(workload("images", 250, 19)),
        service(workload("speech", 200, 14)),
    ];
    let advice = advised(list, None, 1);
    assert_eq!(gpus(&advice, SharingKind::Exclusive), (3, 0));
    assert_eq!(gpus(&advice, SharingKind::Mps), (1, 0));
    assert!(advice.each.iter().all(|one| one.because == Because::LatencyAmongOwn));
    // Half of the memory is 3g.40gb, and that has 3/7 of the compute; 19 GiB do not fit into 2g.20gb's 19,456 MiB with a context.
    assert_eq!(gpus(&advice, SharingKind::Mig).1, 0);
    let last = advice.rows.last().unwrap();
    assert_eq!((last.gpus, last.fault_domain), (1, 3));
    assert!((last.compute_use - 0.95).abs() < 1e-9);
}

#[test]
fn each_way_takes_as_many_cards_as_its_arithmetic_says() {
    let list = vec![workload("w", 0, 2); 100];
    let advice = advised(list, Some(1000), 10);
    assert_eq!(gpus(&advice, SharingKind::Exclusive), (100, 0));
    assert_eq!(gpus(&advice, SharingKind::Mig), (15, 0), "seven of 1g.10gb on a card");
    let capped = gpus(&advice, SharingKind::MemoryCapped).0;
    assert!((3..=4).contains(&capped), "{capped}");
    let course = advice.rows[0].course.unwrap();
    assert_eq!((course.total_ms, course.left), (10_000, 0));
    assert!((course.gpu_hours_held - 100.0 / 3600.0).abs() < 1e-9);
}

#[test]
fn who_insists_or_is_wide_is_not_shared() {
    let mut hard = workload("hard", 100, 5);
    hard.demand.gpus.as_mut().unwrap().isolation = Isolation::Hard;
    let mut wide = workload("wide", 100, 5);
    wide.demand.gpus.as_mut().unwrap().count = 4;
    let advice = advised(vec![hard, wide, workload("small", 0, 5)], None, 8);
    let kinds: Vec<_> = advice.each.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [SharingKind::Mig, SharingKind::Exclusive, SharingKind::MemoryCapped]);
    assert_eq!(advice.each[0].profile.as_deref(), Some("1g.10gb"));
    assert_eq!(advice.rows.last().unwrap().gpus, 6);
}

#[test]
fn who_says_what_it_computes_is_slowed_by_what_others_compute() {
    let arrivals: Vec<Arrival> = [(800, 10), (700, 10)]
        .map(|(compute_milli, memory_gib)| Arrival {
            at_ms: 0,
            runs_ms: Some(60_000),
            workload: workload("w", compute_milli, memory_gib),
        })
        .to_vec();
    let (trace, model) = (Trace { arrivals }, a100());
    let speeds = simulator::Predicted::default();
    let advice =
        advise(&Question { trace: &trace, model: &model, cards: 1, speeds: &speeds }).unwrap();
    let row = |kind| advice.rows.iter().find(|row| row.way == Way::All(kind)).unwrap().clone();
    let turns = row(SharingKind::TimeSlice);
    assert_eq!(turns.gpus, 1);
    // 1500 of 1000 are asked.
    assert!((turns.worst_alpha - 0.5).abs() < 0.01, "{turns:?}");
    assert!(turns.course.unwrap().total_ms > 89_000);
    // Caps of 80 % and 70 % do not go on one card.
    assert_eq!(row(SharingKind::Mps).gpus, 2);
    assert!(row(SharingKind::Mps).worst_alpha.abs() < 1e-9);
    let alone = row(SharingKind::Exclusive).course.unwrap();
    assert_eq!(alone.total_ms, 120_000, "one after the other");
}
