//! Pods that ask for devices by resource names and have come in without the webhook: nobody else can give them what they wait
//! for, and they say no word of it. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::observation::{Observation, is_gated, is_over, node_of};
use crate::dialect::classes::ClassNames;
use crate::dialect::resources;

/// What such a pod is told.
pub(super) const WHY: &str =
    "it came in while hotpot's webhook was not there: delete it and create it again";

/// The pods.
pub(super) fn pods(seen: &Observation) -> Vec<Arc<Pod>> {
    let classes = ClassNames::of(&seen.classes);
    let offered: BTreeSet<&str> = seen
        .nodes
        .iter()
        .filter_map(|node| node.status.as_ref()?.allocatable.as_ref())
        .flat_map(|all| all.keys().map(String::as_str))
        .collect();
    let is_missed = |pod: &&Arc<Pod>| {
        let waits = !is_over(pod) && node_of(pod).is_none() && !is_gated(pod);
        waits && !resources::is_ignored(pod) && asks_in_vain(pod, &classes, &offered)
    };
    seen.pods.values().filter(is_missed).cloned().collect()
}

/// Whether it asks by a name of ours that no node's device plugin offers.
fn asks_in_vain(pod: &Pod, classes: &ClassNames, offered: &BTreeSet<&str>) -> bool {
    let containers = pod.spec.iter().flat_map(resources::containers);
    containers
        .flat_map(|(_, container)| resources::asked(container, classes).into_keys())
        .any(|name| !offered.contains(name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::observation::key;
    use super::*;
    use crate::names;
    use crate::share::GpuShare;

    fn told(pod: Value, allocatable: Value) -> usize {
        let opaque = json!({"driver": names::DRIVER, "parameters": GpuShare::new()});
        let class =
            json!({"metadata": {"name": names::CLASS}, "spec": {"config": [{"opaque": opaque}]}});
        let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": allocatable}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let seen = Observation {
            nodes: vec![Arc::new(serde_json::from_value(node).unwrap())],
            classes: vec![Arc::new(serde_json::from_value(class).unwrap())],
            pods: [(key(&pod.metadata), Arc::new(pod))].into(),
            ..Observation::default()
        };
        pods(&seen).len()
    }

    #[test]
    fn only_who_waits_for_what_nobody_else_offers_is_told() {
        let limits = |limits: Value| json!([{"name": "c", "resources": {"limits": limits}}]);
        let pod = |limits_: Value| json!({"metadata": {"name": "p"}, "spec": {"containers": limits(limits_)}});
        let asks = json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10"});
        assert_eq!(told(pod(asks.clone()), json!({})), 1);
        assert_eq!(told(pod(asks.clone()), json!({"nvidia.com/gpu": "8"})), 1);
        assert_eq!(told(pod(json!({"nvidia.com/gpu": "1"})), json!({"nvidia.com/gpu": "8"})), 0);
        assert_eq!(told(pod(json!({"nvidia.com/gpu": "1"})), json!({})), 1);
        assert_eq!(told(pod(json!({"cpu": "1", "example.com/fpga": "1"})), json!({})), 0);
        let mut bound = pod(asks.clone());
        bound["spec"]["nodeName"] = json!("n1");
        let mut over = pod(asks.clone());
        over["status"] = json!({"phase": "Failed"});
        let mut ignored = pod(asks);
        ignored["metadata"]["labels"] = json!({"hotpot.dev/webhook": "ignore"});
        for pod in [bound, over, ignored] {
            assert_eq!(told(pod, json!({})), 0);
        }
    }
}
