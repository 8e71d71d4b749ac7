//! What pods are given on a real control plane is what the engine plans for the same fleet and the same workloads.
#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::Planner;
use kubernetes_lab::hotpot::CLASS;
use kubernetes_lab::{Cluster, Options, WITHOUT_SIGNS_OF_LIFE};
use live::{Folder, add_nodes, controller, pod, template};
use model::{
    Action, Catalogue, Demand, Fleet, Gpu, GpuAsk, GpuDemand, GpuModel, Isolation, ModeSet, Node,
    Owner, Placement, Policy, SharingKind, Snapshot, Workload, WorkloadId,
};

const NODES: usize = 100;
const PODS: usize = 500;
/// Memory in GiB, compute in thousandths and CPUs of the pods, one after the other; together more than there is.
const ASKS: [(u64, u32, u64); 6] =
    [(4, 100, 1), (10, 200, 2), (20, 300, 2), (40, 500, 4), (8, 0, 1), (30, 250, 3)];

fn name(at: usize) -> String {
    format!("p{at:03}")
}

fn nodes() -> Vec<String> {
    (0..NODES).map(|at| format!("n{at:03}")).collect()
}

/// Which node each pod goes to by the engine alone, plan after plan until nothing is left to start.
fn planned() -> BTreeMap<String, String> {
    let known = Catalogue::shipped().unwrap();
    let known = known.get("a100-80gb").unwrap();
    let model = Arc::new(GpuModel { memory_mib: 80 << 10, mig: None, ..GpuModel::clone(known) });
    let offers = [
        SharingKind::TimeSlice,
        SharingKind::MemoryCapped,
        SharingKind::Mps,
        SharingKind::Exclusive,
    ];
    let gpu = || Gpu::idle(Arc::clone(&model), ModeSet::of(&offers));
    let fleet =
        nodes().into_iter().map(|name| Node::idle(name, 16_000, 64_000, vec![gpu()])).collect();
    let mut snapshot = Snapshot::new(Fleet::new(fleet), 0);
    for at in 0..PODS {
        let (memory_gib, compute_milli, cpus) = ASKS[at % ASKS.len()];
        let gpus = GpuDemand {
            count: 1,
            each: GpuAsk::Fraction { compute_milli, memory_mib: memory_gib << 10 },
            accepts: Vec::new(),
            isolation: Isolation::default(),
            modes: ModeSet::ALL,
        };
        let demand = Demand { cpu_milli: cpus * 1000, gpus: Some(gpus), ..Demand::default() };
        let workload =
            Workload::new(WorkloadId(at as u64), name(at), Owner::new("default"), demand);
        snapshot.submit(Arc::new(workload));
    }
    let policy = Policy::new(Placement::Hotpot);
    let mut planner = Planner::new(policy.clone());
    let mut planned = BTreeMap::new();
    loop {
        let plan = planner.plan(&snapshot);
        if plan.steps.is_empty() {
            return planned;
        }
        for step in &plan.steps {
            engine::apply(&mut snapshot, &step.action, &policy).unwrap();
            if let Action::Place { workload, seats } = &step.action {
                let node = snapshot.fleet().node(seats[0].node).unwrap();
                planned.insert(name(workload.0 as usize), node.name().to_owned());
            }
        }
    }
}

/// Which node each pod was bound to.
fn bound(cluster: &Cluster) -> BTreeMap<String, String> {
    let path = "jsonpath={range .items[*]}{.metadata.name}={.spec.nodeName} {end}";
    let text = cluster.kubectl(&["get", "pods", "-o", path]).unwrap_or_default();
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(_, node)| !node.is_empty())
        .map(|(pod, node)| (pod.into(), node.into()))
        .collect()
}

#[test]
fn five_hundred_pods_on_a_hundred_nodes_go_where_the_engine_plans() {
    let test = "five_hundred_pods_on_a_hundred_nodes_go_where_the_engine_plans";
    if !kubernetes_lab::can_be_had(test) {
        return;
    }
    let folder = Folder::new("equals");
    // Claims are made from templates at 10 a second otherwise, by the limit of whoever makes them.
    let controllers = [WITHOUT_SIGNS_OF_LIFE, "--kube-api-qps=500", "--kube-api-burst=500"];
    let controllers = controllers.map(str::to_owned).to_vec();
    let options = Options { nodes: 0, controllers, ..Options::default() };
    let cluster = Cluster::up(&folder.0, &options).unwrap();
    cluster.apply(CLASS).unwrap();
    let names = nodes();
    add_nodes(&cluster, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let templates: String = ASKS
        .iter()
        .map(|(gib, milli, _)| {
            template(&format!("t{gib}"), &format!("{{memory: {gib}Gi, compute: {milli}m}}"))
        })
        .collect();
    cluster.apply(&templates).unwrap();
    let pods: String = (0..PODS)
        .map(|at| {
            let (gib, _, cpus) = ASKS[at % ASKS.len()];
            let claims = "resources: {claims: [{name: gpu}]";
            pod(&name(at), &format!("resourceClaimTemplateName: t{gib}"), "").replacen(
                claims,
                &format!("{claims}, requests: {{cpu: \"{cpus}\"}}"),
                1,
            )
        })
        .collect();
    cluster.kubectl_with(&["create", "-f", "-"], &pods).unwrap();
    let count = |it: &Cluster| {
        it.kubectl(&["get", "resourceclaims", "-o", "name"]).ok().map(|text| text.lines().count())
    };
    cluster.until("all claims made", |it| (count(it)? == PODS).then_some(())).unwrap();
    let planned = planned();
    assert!(planned.len() > NODES && planned.len() < PODS, "{} of them fit", planned.len());
    let _controller = controller(&cluster);
    cluster
        .until("all bound that fit", |it| (bound(it).len() >= planned.len()).then_some(()))
        .unwrap();
    assert_eq!(bound(&cluster), planned);
}
