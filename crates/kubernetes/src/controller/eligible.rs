//! Which nodes will do for a pod, by what the stock scheduler will look at: readiness, taints, node selector and required node
//! affinity. What is missed here the scheduler hands back. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};
use model::NodeSet;

use super::selecting::holds;

/// The nodes of a moment, and which of them will do for a pod that has no wishes of its own.
pub(super) struct Eligible<'a> {
    nodes: &'a [Arc<Node>],
    plain: NodeSet,
}

impl<'a> Eligible<'a> {
    pub(super) fn of(nodes: &'a [Arc<Node>]) -> Self {
        Self { nodes, plain: chosen(&PodSpec::default(), nodes, &BTreeSet::new()) }
    }

    /// The nodes that will do.
    ///
    /// * `passed_over` — those that do not, for what we do not see.
    pub(super) fn nodes(&self, pod: &Pod, passed_over: &BTreeSet<String>) -> NodeSet {
        let Some(spec) = &pod.spec else { return NodeSet::default() };
        if has_no_wishes(spec) && passed_over.is_empty() {
            return self.plain.clone();
        }
        chosen(spec, self.nodes, passed_over)
    }
}

/// Nearly all pods; the API server gives each tolerations of its own, of nodes that are lost, which are never ready anyway.
fn has_no_wishes(spec: &PodSpec) -> bool {
    let tolerations = spec.tolerations.iter().flatten();
    let lost = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    let mut others =
        tolerations.filter(|one| !one.key.as_deref().is_some_and(|key| lost.contains(&key)));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    spec.node_selector.as_ref().is_none_or(BTreeMap::is_empty)
        && affinity.is_none()
        && others.next().is_none()
}

fn chosen(spec: &PodSpec, nodes: &[Arc<Node>], passed_over: &BTreeSet<String>) -> NodeSet {
    let fit = nodes.iter().filter(|node| will_do(spec, node));
    let names = fit.filter_map(|node| node.metadata.name.clone());
    let names: BTreeSet<String> = names.filter(|name| !passed_over.contains(name)).collect();
    // Many pods that accept all nodes are one kind of demand.
    if names.len() == nodes.len() { NodeSet::default() } else { NodeSet::only(names) }
}

fn will_do(spec: &PodSpec, node: &Node) -> bool {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let selected =
        spec.node_selector.iter().flatten().all(|(key, value)| label(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected
        && required.is_none_or(|required| matches(required, node))
        && is_ready(node)
        && is_tolerated(spec, node)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "Ready")
        .all(|condition| condition.status == "True")
}

fn is_tolerated(spec: &PodSpec, node: &Node) -> bool {
    let node = node.spec.as_ref();
    let unschedulable = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    let closed =
        node.is_some_and(|node| node.unschedulable == Some(true)).then_some(&unschedulable);
    let taints = node.iter().flat_map(|node| node.taints.iter().flatten());
    let mut hard = taints.filter(|taint| taint.effect != "PreferNoSchedule").chain(closed);
    hard.all(|taint| {
        spec.tolerations.iter().flatten().any(|toleration| tolerates(toleration, taint))
    })
}

/// Kubernetes API reference, Toleration.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    if key.is_empty() {
        return exists;
    }
    let value = |text: &Option<String>| text.clone().unwrap_or_default();
    key == taint.key && (exists || value(&toleration.value) == value(&taint.value))
}

/// One term must hold, and all of it.
pub(super) fn matches(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_holds(term, node))
}

fn term_holds(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (expressions, fields) =
        (term.match_expressions.iter().flatten(), term.match_fields.iter().flatten());
    // A term that asks nothing matches nothing (API reference, NodeSelectorTerm).
    if expressions.clone().next().is_none() && fields.clone().next().is_none() {
        return false;
    }
    let label =
        |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key).cloned());
    let field = |key: &str| node.metadata.name.clone().filter(|_| key == "metadata.name");
    expressions.into_iter().all(|one| holds(&one.operator, &one.values, label(&one.key).as_ref()))
        && fields.into_iter().all(|one| holds(&one.operator, &one.values, field(&one.key).as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, more: Value) -> Arc<Node> {
        let mut node = json!({"metadata": {"name": name, "labels": {"zone": name, "cards": "4"}}, "spec": {}, "status": {}});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Arc::new(serde_json::from_value(node).unwrap())
    }

    /// The nodes that will do for a pod.
    fn accepted(spec: Value, all: &[Arc<Node>]) -> Vec<String> {
        let mut full = json!({"containers": []});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": full})).unwrap();
        let set = Eligible::of(all).nodes(&pod, &BTreeSet::new());
        let names = all.iter().filter_map(|node| node.metadata.name.clone());
        names.filter(|name| set.accepts(name)).collect()
    }

    #[test]
    fn selectors_taints_and_readiness_count_as_for_the_scheduler() {
        let tainted =
            json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}});
        let lost = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        let all = [
            node("a", json!({})),
            node("b", tainted),
            node("c", json!({"spec": {"unschedulable": true}})),
            node("d", lost),
        ];
        let affinity = |expression: Value| {
            let required = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
        };
        let tolerates = |toleration: Value| json!({"tolerations": [toleration]});
        for (spec, names) in [
            (json!({}), &["a"][..]),
            (json!({"nodeSelector": {"zone": "b"}}), &[]),
            (tolerates(json!({"key": "gpu", "operator": "Exists"})), &["a", "b"]),
            (tolerates(json!({"key": "gpu", "value": "yes"})), &["a", "b"]),
            (tolerates(json!({"key": "gpu", "value": "no"})), &["a"]),
            (tolerates(json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"})), &["a"]),
            (tolerates(json!({"operator": "Exists"})), &["a", "b", "c"]),
            (affinity(json!({"key": "zone", "operator": "In", "values": ["a", "z"]})), &["a"]),
            (affinity(json!({"key": "zone", "operator": "NotIn", "values": ["a"]})), &[]),
            (affinity(json!({"key": "cards", "operator": "Gt", "values": ["3"]})), &["a"]),
            (affinity(json!({"key": "cards", "operator": "Lt", "values": ["4"]})), &[]),
            (affinity(json!({"key": "none", "operator": "DoesNotExist"})), &["a"]),
            (affinity(json!({"key": "none", "operator": "Exists"})), &[]),
        ] {
            assert_eq!(accepted(spec.clone(), &all), names, "{spec}");
        }
    }
}
