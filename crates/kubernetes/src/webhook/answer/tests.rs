//! Reviews and what is answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use kube::core::admission::AdmissionReview;
use model::Placement;
use serde_json::json;

use super::*;
use crate::controller::prospect::Prospect;
use crate::dialect::classes::ClassNames;
use crate::names;
use crate::share::GpuShare;

/// Claims in memory.
#[derive(Default)]
struct Stored(BTreeMap<String, Read>);

impl Claims for Stored {
    async fn read(&self, _namespace: &str, named: &PodResourceClaim) -> Option<Read> {
        let name = named.resource_claim_name.as_ref();
        self.0.get(name.or(named.resource_claim_template_name.as_ref())?).cloned()
    }
}

fn class() -> Arc<DeviceClass> {
    let opaque = json!({"driver": names::DRIVER, "parameters": GpuShare::new()});
    let class =
        json!({"metadata": {"name": names::CLASS}, "spec": {"config": [{"opaque": opaque}]}});
    Arc::new(serde_json::from_value(class).unwrap())
}

/// A node with cards of 80 GiB that can be shared.
fn slice(node: &str, cards: usize, taints: Value) -> Arc<ResourceSlice> {
    let card = |at: usize| {
        json!({
            "name": format!("gpu-{at}"), "allowMultipleAllocations": true, "taints": taints,
            "attributes": {
                "type": {"string": "card"}, "uuid": {"string": format!("GPU-{node}-{at}")}, "model": {"string": "a100-80gb"},
                "index": {"int": at}, "memoryCap": {"string": "cooperative"}, "mps": {"bool": true},
            },
            "capacity": {"memory": {"value": "80Gi"}, "compute": {"value": "1"}},
        })
    };
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let devices: Vec<Value> = (0..cards).map(card).collect();
    let spec = json!({"driver": names::DRIVER, "nodeName": node, "pool": pool, "devices": devices});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": node}, "spec": spec})).unwrap())
}

fn seen(slices: &[Arc<ResourceSlice>]) -> Seen {
    Seen { names: ClassNames::of(&[class()]), prospect: Prospect::of(&[class()], slices) }
}

fn review(object: Value) -> AdmissionRequest<DynamicObject> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "team", "operation": "CREATE", "userInfo": {}, "object": object,
        },
    });
    let review: AdmissionReview<DynamicObject> = serde_json::from_value(review).unwrap();
    review.try_into().unwrap()
}

fn pod(limits: Value, more: Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"limits": limits}});
    let mut spec = json!({"containers": [container]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

fn answer(pod: Value, seen: &Seen, stored: &Stored) -> AdmissionResponse {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(to_pod(&review(pod), seen, stored, &Policy::new(Placement::Hotpot)))
}

/// Why a pod with limits is refused; nothing if it is let in.
fn refused(limits: Value, seen: &Seen) -> String {
    let response = answer(pod(limits, json!({})), seen, &Stored::default());
    assert_eq!(response.allowed, response.patch.is_some());
    response.result.message
}

#[test]
fn what_no_card_could_ever_carry_is_refused_with_what_could() {
    let one = seen(&[slice("n1", 2, json!([])), slice("n2", 1, json!([]))]);
    assert_eq!(
        refused(json!({"nvidia.com/gpumem": "204800"}), &one),
        "no card of this cluster could ever carry that, even idle: GPU memory: asks 204800 MiB, free 81920 MiB; ask at most 81470 MiB of a card, or whole cards"
    );
    assert_eq!(refused(json!({"nvidia.com/gpumem": "81470"}), &one), "", "what it says is so");
    assert_ne!(refused(json!({"nvidia.com/gpumem": "81471"}), &one), "");
    let both =
        json!({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "90000", "nvidia.com/gpucores": "10"});
    let both = refused(both, &one);
    assert!(
        both.contains("ask at most 81470 MiB of a card, or whole cards")
            && both.contains("each of 2"),
        "{both}"
    );
    assert_eq!(refused(json!({"nvidia.com/gpu": "2"}), &one), "");
    let three = refused(json!({"nvidia.com/gpu": "3"}), &one);
    assert!(
        three.contains("asks 3, could use 2") && three.contains("ask at most 2 cards"),
        "{three}"
    );
    let mig = refused(json!({"nvidia.com/mig-1g.10gb": "1"}), &one);
    assert!(mig.contains("a100-80gb has no 1g.10gb") && mig.contains("by its memory"), "{mig}");
}

/// A node with a card that can be divided, so far into one kind of instance.
fn divisible(node: &str) -> Arc<ResourceSlice> {
    let mut slice = json!(slice(node, 1, json!([])).as_ref());
    let slices =
        |from: u8, to: u8| (from..to).map(|at| (names::memory_slice(at), json!({"value": "1"})));
    let mut counters: serde_json::Map<String, Value> = slices(0, 8).collect();
    counters.insert(names::COMPUTE_SLICES.into(), json!({"value": "7"}));
    slice["spec"]["sharedCounters"] = json!([{"name": "gpu-0", "counters": counters}]);
    slice["spec"]["devices"][0]["attributes"]["mig"] = json!({"bool": true});
    for start in 0..7 {
        let mut taken: serde_json::Map<String, Value> = slices(start, start + 1).collect();
        taken.insert(names::COMPUTE_SLICES.into(), json!({"value": "1"}));
        let instance = json!({
            "name": format!("gpu-0-mig-{start}"),
            "attributes": {
                "type": {"string": "mig"}, "parentUUID": {"string": format!("GPU-{node}-0")},
                "profile": {"string": "1g.10gb"}, "start": {"int": start},
            },
            "capacity": {"memory": {"value": "9728Mi"}},
            "consumesCounters": [{"counterSet": "gpu-0", "counters": taken}],
        });
        slice["spec"]["devices"].as_array_mut().unwrap().push(instance);
    }
    Arc::new(serde_json::from_value(slice).unwrap())
}

#[test]
fn profiles_that_there_are_can_be_asked_for_and_are_named_to_who_asks_for_others() {
    let cards = seen(&[divisible("n1"), slice("n2", 1, json!([]))]);
    assert_eq!(refused(json!({"nvidia.com/mig-1g.10gb": "1"}), &cards), "");
    let other = refused(json!({"nvidia.com/mig-3g.40gb": "1"}), &cards);
    assert!(other.ends_with("; profiles here are 1g.10gb"), "{other}");
    let large = refused(json!({"nvidia.com/gpumem": "204800"}), &cards);
    assert!(large.ends_with("or whole cards, or the MIG profile 1g.10gb"), "{large}");
}

#[test]
fn nothing_is_refused_where_no_card_is_published_or_all_are_closed_for_now() {
    assert_eq!(refused(json!({"nvidia.com/gpumem": "204800"}), &seen(&[])), "");
    let taint = json!([{"key": "k", "effect": "NoSchedule"}]);
    let closed = seen(&[slice("n1", 1, taint)]);
    assert_eq!(refused(json!({"nvidia.com/gpu": "1"}), &closed), "");
    assert_ne!(refused(json!({"nvidia.com/gpu": "2"}), &closed), "");
}

#[test]
fn a_pod_that_is_none_of_ours_is_let_in_as_it_is() {
    let cards = seen(&[slice("n1", 1, json!([]))]);
    let mut ignored = pod(json!({"nvidia.com/gpu": "9"}), json!({}));
    ignored["metadata"]["labels"] = json!({"hotpot.dev/webhook": "ignore"});
    let mut mirror = pod(json!({"nvidia.com/gpu": "9"}), json!({"nodeName": "n1"}));
    let own = answer(mirror.clone(), &cards, &Stored::default());
    assert!(!own.allowed && own.result.message.contains("leave nodeName out"), "{own:?}");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "1"});
    let named =
        json!({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "not-there"}]});
    for pod in [
        pod(json!({"cpu": "1"}), json!({})),
        pod(json!({}), named),
        ignored,
        mirror,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": 7}}),
    ] {
        let response = answer(pod.clone(), &cards, &Stored::default());
        assert!(response.allowed && response.patch.is_none(), "{pod}");
    }
}

/// A claim of our class.
fn stored(name: &str, parameters: Value, is_allocated: bool) -> Stored {
    let mut share = json!(GpuShare::new());
    share.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
    let opaque = json!({"driver": names::DRIVER, "parameters": share});
    let request = json!({"name": "r", "exactly": {"deviceClassName": names::CLASS}});
    let spec = json!({"devices": {"requests": [request], "config": [{"opaque": opaque}]}});
    let read = Read { spec: serde_json::from_value(spec).unwrap(), is_allocated };
    Stored([(name.to_owned(), read)].into())
}

#[test]
fn a_pod_with_a_claim_of_ours_is_gated_and_its_claim_looked_at() {
    let cards = seen(&[slice("n1", 1, json!([]))]);
    let named = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]});
    let of = |parameters, allocated| {
        answer(pod(json!({}), named.clone()), &cards, &stored("mine", parameters, allocated))
    };
    let response = of(json!({"memoryMiB": 1024}), false);
    let patch: Value = serde_json::from_slice(response.patch.as_ref().unwrap()).unwrap();
    let gate = json!([{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "hotpot.dev/placement"}]}]);
    assert_eq!(patch, gate);
    assert!(response.warnings.unwrap()[0].contains("no container has claim gpu"));
    assert!(of(json!({"memory": 3}), false).result.message.contains("unknown field"));
    assert!(of(json!({"memoryMiB": 204_800}), false).result.message.contains("at most 81470"));
    let tiny = of(json!({"computeMilli": 5}), false).result.message;
    assert!(tiny.contains("a CUDA context takes 450; ask more than 450 MiB"), "{tiny}");
    assert!(of(json!({"memoryMiB": 204_800}), true).allowed, "it holds what it asks");
}

#[test]
fn claims_beside_resources_must_ask_the_same_of_each_card() {
    let cards = seen(&[slice("n1", 4, json!([]))]);
    let named = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]});
    let of = |limits| {
        let claim = stored("mine", json!({"memoryMiB": 1024}), false);
        answer(pod(limits, named.clone()), &cards, &claim)
    };
    assert!(of(json!({"nvidia.com/gpumem": "1024"})).allowed);
    let other = of(json!({"nvidia.com/gpumem": "2048"}));
    assert!(!other.allowed && other.result.message.contains("all cards of a pod alike"));
}

#[test]
fn claims_and_templates_of_ours_must_be_sound() {
    let seen = seen(&[]);
    let of = |parameters: Value, is_template: bool| {
        let spec = json!(stored("it", parameters, false).0["it"].spec);
        let spec = if is_template { json!({"spec": spec}) } else { spec };
        to_claim(&review(json!({"metadata": {}, "spec": spec})), &seen)
    };
    for is_template in [false, true] {
        assert!(of(json!({"memoryMiB": 1024}), is_template).allowed);
        let wrong = of(json!({"memoryMiB": 1024, "turbo": true}), is_template);
        assert!(!wrong.allowed && wrong.result.message.contains("`turbo`"), "{wrong:?}");
    }
    assert!(to_claim(&review(json!({"metadata": {}, "spec": 5})), &seen).allowed);
}
