//! Cycles over clusters that are written down as their objects are.

use k8s_openapi::api::resource::v1::DeviceClass;
use model::{Placement, Policy, Preemption};
use serde_json::{Value, json};

use super::*;
use crate::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

fn read<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).unwrap())
}

/// A node with one card of 80 GiB.
fn cluster() -> Observation {
    let node = json!({
        "metadata": {"name": "n1"},
        "status": {
            "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    let attributes = json!({
        "type": {"string": "card"}, "uuid": {"string": "GPU-1"}, "model": {"string": "a100-80gb"}, "index": {"int": 0},
        "memoryCap": {"string": "cooperative"}, "computeCap": {"string": "cooperative"}, "mps": {"bool": true}, "mig": {"bool": false},
    });
    let device = json!({
        "name": "gpu-1", "allowMultipleAllocations": true, "attributes": attributes,
        "capacity": {"memory": {"value": "80Gi"}, "compute": {"value": "1"}},
    });
    let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 1});
    let slice = json!({
        "metadata": {"name": "n1-gpu"},
        "spec": {"driver": names::DRIVER, "nodeName": "n1", "pool": pool, "devices": [device]},
    });
    let parameters = json!({"apiVersion": "hotpot.dev/v1", "kind": "GpuShare"});
    let config = json!([{"opaque": {"driver": names::DRIVER, "parameters": parameters}}]);
    let class = json!({"metadata": {"name": "gpu.hotpot.dev"}, "spec": {"config": config}});
    Observation {
        nodes: vec![read(node)],
        slices: vec![read(slice)],
        classes: vec![read(class)],
        ..Observation::default()
    }
}

/// A claim of a share of 10 GiB, given the card if `given`.
fn claim(seen: &mut Observation, name: &str, given: bool) {
    let capacity = json!({"requests": {"memory": "10Gi"}});
    let exactly = json!({"deviceClassName": "gpu.hotpot.dev", "capacity": capacity});
    let consumed = json!({"memory": "10Gi", "compute": "0"});
    let result = json!({
        "request": "gpu", "driver": names::DRIVER, "pool": "n1", "device": "gpu-1",
        "shareID": "11111111-2222-3333-4444-555555555555", "consumedCapacity": consumed,
    });
    let status = json!({"allocation": {"devices": {"results": [result]}}});
    let claim: Arc<ResourceClaim> = read(json!({
        "metadata": {"namespace": "team", "name": name, "uid": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": if given { status } else { json!({}) },
    }));
    seen.claims.insert(key(&claim.metadata), claim);
}

fn pod(seen: &mut Observation, name: &str, claim: &str, spec: Value) {
    let mut all = json!({
        "containers": [{"name": "main"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
    });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let pod: Arc<Pod> = read(json!({
        "metadata": {"namespace": "team", "name": name, "uid": name}, "spec": all,
    }));
    seen.pods.insert(key(&pod.metadata), pod);
}

fn gates(names: &[&str]) -> Value {
    json!({"schedulingGates": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()})
}

/// What is to be written, in short.
fn decided(seen: &Observation) -> Vec<String> {
    let stamp =
        Stamp { at: Time(Timestamp::from_millisecond(1_800_000_000_000).unwrap()), epoch: 1 };
    let preemption = Some(Preemption { grace_ms: 30_000 });
    let mut planner = Planner::new(Policy { preemption, ..Policy::new(Placement::Hotpot) });
    let decided = decide(seen, &mut planner, &mut Tried::default(), &stamp, String::new);
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    let short = |act: Act| match act {
        Act::Give { members, given } => format!("give {}, {}", name(&members[0].pod), given.len()),
        Act::Open(Seated { pod, node }) => format!("open {} on {node:?}", name(&pod)),
        Act::TakeBack { claim } => format!("take back {:?}", claim.metadata.name),
        Act::Evict { pod, newcomer, .. } => format!("evict {} for {newcomer}", name(&pod)),
        Act::Settle { pod } => format!("settle {}", name(&pod)),
        Act::Tell { pod, why } => format!("tell {}: {}", name(&pod), why.text),
        Act::Template(_) => "template".into(),
    };
    let mut all: Vec<String> = decided.acts.into_iter().map(short).collect();
    all.extend(decided.alarms.into_iter().map(|alarm| format!("alarm: {alarm}")));
    all
}

#[test]
fn whoever_waits_at_a_gate_of_somebody_else_is_given_nothing_until_it_is_open() {
    let mut seen = cluster();
    claim(&mut seen, "c", false);
    pod(&mut seen, "p", "c", gates(&[names::GATE, "kueue.x-k8s.io/admission"]));
    let why = "tell p: waits at the gate kueue.x-k8s.io/admission, which somebody else opens";
    assert_eq!(decided(&seen), [why]);
    pod(&mut seen, "p", "c", gates(&[names::GATE]));
    assert_eq!(decided(&seen), ["give p, 0"]);
}

#[test]
fn a_gate_opens_before_devices_that_are_there_and_what_is_not_there_goes_back() {
    let mut seen = cluster();
    claim(&mut seen, "c", true);
    pod(&mut seen, "p", "c", gates(&[names::GATE]));
    assert_eq!(decided(&seen), ["open p on Some(\"n1\")"]);
    seen.slices.clear();
    let alarm = "alarm: claim or pod team/c: it holds gpu-1 of n1, which is not there any more";
    assert_eq!(decided(&seen), ["take back Some(\"c\")", alarm]);
}

#[test]
fn a_pod_that_never_runs_does_not_keep_another_one_from_leaving() {
    let mut seen = cluster();
    claim(&mut seen, "held", true);
    claim(&mut seen, "asks", false);
    let whole = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.hotpot.dev"}});
    let asks = seen.claims.get_mut(&("team".into(), "asks".into())).unwrap();
    Arc::make_mut(asks).spec =
        serde_json::from_value(json!({"devices": {"requests": [whole]}})).unwrap();
    pod(&mut seen, "runs", "held", json!({"nodeName": "n1", "priority": 0}));
    pod(&mut seen, "never", "held", json!({"nodeSelector": {"no": "where"}}));
    let important = json!({"priority": 100, "schedulingGates": [{"name": names::GATE}]});
    pod(&mut seen, "important", "asks", important);
    assert!(
        decided(&seen).contains(&"evict runs for team/important".to_owned()),
        "{:?}",
        decided(&seen)
    );
}

#[test]
fn without_its_class_a_gate_stays_shut_and_a_class_that_cannot_be_read_gives_nothing() {
    let mut seen = cluster();
    claim(&mut seen, "c", false);
    pod(&mut seen, "p", "c", gates(&[names::GATE]));
    let class = seen.classes.remove(0);
    let why = "tell p: there is no device class gpu.hotpot.dev, which its claim names";
    assert_eq!(decided(&seen), [why]);
    let mut class = DeviceClass::clone(&class);
    let opaque = class.spec.config.as_mut().unwrap()[0].opaque.as_mut().unwrap();
    opaque.parameters.0["memoryMib"] = json!(1024);
    seen.classes.push(Arc::new(class));
    let said = decided(&seen);
    let part = "request gpu: GpuShare of class gpu.hotpot.dev: unknown field `memoryMib`";
    assert!(said.len() == 1 && said[0].contains(part), "{said:?}");
}

#[test]
fn devices_go_back_from_a_pod_that_cannot_be_bound_where_they_are() {
    let mut seen = cluster();
    claim(&mut seen, "c", true);
    pod(&mut seen, "p", "c", json!({}));
    assert_eq!(decided(&seen), [""; 0], "the scheduler has not looked yet");
    let of =
        |seen: &mut Observation| seen.pods.get_mut(&("team".into(), "p".into())).unwrap().clone();
    let mut tried = Pod::clone(&of(&mut seen));
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    tried.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
    seen.pods.insert(key(&tried.metadata), Arc::new(tried));
    let given = |seen: &mut Observation, at: &str| {
        let claim = seen.claims.get_mut(&("team".into(), "c".into())).unwrap();
        let status = Arc::make_mut(claim).status.as_mut().unwrap();
        status.allocation.as_mut().unwrap().allocation_timestamp =
            Some(serde_json::from_value(json!(at)).unwrap());
    };
    given(&mut seen, "2027-01-15T07:59:55Z");
    assert_eq!(decided(&seen), [""; 0], "it was given them 5 s ago");
    given(&mut seen, "2027-01-15T07:59:30Z");
    assert_eq!(decided(&seen), ["take back Some(\"c\")"]);
}

#[test]
fn a_pod_that_is_bound_without_devices_is_given_them_where_it_is() {
    let mut seen = cluster();
    claim(&mut seen, "c", false);
    pod(&mut seen, "p", "c", json!({"nodeName": "n1"}));
    assert_eq!(decided(&seen), ["give p, 0"]);
}
