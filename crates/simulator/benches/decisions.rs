//! What decisions cost: whole replays of the shipped openb sample, and single decisions on a loaded
//! fleet of growing size.
//!
//! `cargo bench -p simulator`; compare ratios, machines are noisy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::Planner;
use formats::{Source, openb};
use model::{Catalogue, Fleet, Placement, Policy, Snapshot, Trace, Workload, WorkloadId};
use simulator::{Protocol, Yardstick, arrivals, replay};

const POLICIES: [&str; 3] = ["best-fit", "fgd", "hotpot"];

fn sample(name: &str) -> Source {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/openb");
    Source::open(&folder.join(name)).expect("the sample is part of the repository")
}

fn tasks() -> Trace {
    openb::tasks(&sample("openb_pod_list_default.csv.gz")).expect("the sample is sound")
}

/// The sample's nodes, repeated until there are `nodes`.
fn fleet(nodes: usize) -> Fleet {
    let rows = openb::node_rows(&sample("openb_node_list_gpu_node.csv.gz")).expect("sound");
    let mut catalogue = Catalogue::shipped().expect("the tables are compiled in");
    // A stride that shares no factor with the list's length visits it in a mixed order.
    let repeated = (0..nodes).map(|at| {
        let mut row = rows[at * 389 % rows.len()].clone();
        row.name = format!("node-{at}");
        row
    });
    openb::fleet(&repeated.collect::<Vec<_>>(), &mut catalogue)
}

fn policy(name: &str, trace: &Trace) -> Policy {
    let mut policy = Policy::new(Placement::parse(name).expect("a known policy"));
    policy.mix = engine::mix::of(trace.arrivals.iter().map(|arrival| &arrival.workload));
    policy
}

/// The whole sample, filled to 130 %: about 10,800 tasks on 1,213 nodes.
fn whole_replays(criterion: &mut Criterion) {
    let (trace, fleet) = (tasks(), fleet(1213));
    let filled = arrivals::fill(&trace, &Yardstick::of(&fleet), 1.3, 42);
    let mut group = criterion.benchmark_group("replay_openb_default_130");
    group.sample_size(10).throughput(Throughput::Elements(filled.arrivals.len() as u64));
    for name in POLICIES {
        let policy = policy(name, &trace);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                replay(
                    fleet.clone(),
                    &filled,
                    Planner::new(policy.clone()),
                    Protocol::Fill,
                    &(),
                    &mut (),
                )
                .expect("legal plans")
            });
        });
    }
    group.finish();
}

/// One arrival planned, carried out and taken back, on a fleet at about 80 %.
fn single_decisions(criterion: &mut Criterion) {
    let trace = tasks();
    let mut group = criterion.benchmark_group("decision");
    for nodes in [1_000, 3_000, 10_000] {
        for name in POLICIES {
            let policy = policy(name, &trace);
            let fleet = fleet(nodes);
            let filled = arrivals::fill(&trace, &Yardstick::of(&fleet), 0.8, 1);
            let loaded =
                replay(fleet, &filled, Planner::new(policy.clone()), Protocol::Fill, &(), &mut ());
            let mut snapshot = loaded.expect("legal plans");
            let mut planner = Planner::new(policy.clone());
            let mut next = 0;
            group.bench_function(BenchmarkId::new(name, nodes), |bencher| {
                bencher.iter(|| {
                    let arrival = &trace.arrivals[next % trace.arrivals.len()];
                    next += 1;
                    decide(&mut planner, &mut snapshot, &arrival.workload, &policy);
                });
            });
        }
    }
    group.finish();
}

fn decide(planner: &mut Planner, snapshot: &mut Snapshot, workload: &Workload, policy: &Policy) {
    let id = WorkloadId(u64::MAX);
    snapshot.submit(Arc::new(Workload { id, ..workload.clone() }));
    let plan = planner.plan(snapshot);
    for step in &plan.steps {
        engine::apply(snapshot, &step.action, policy).expect("a legal plan");
    }
    snapshot.withdraw(id);
    snapshot.finish(id);
}

criterion_group!(benches, whole_replays, single_decisions);
criterion_main!(benches);
