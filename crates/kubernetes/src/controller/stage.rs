//! How far a pod has come on its way to devices, and what it asks if it waits. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use model::{Class, Demand, GpuDemand, NodeSet, Owner, Workload, WorkloadId};

use super::ask::{Asked, Classes};
use super::disruption;
use super::eligible::Eligible;
use super::fleet::Host;
use super::host;
use super::observation::{
    Observation, Users, created, foreign_gate, is_gated, is_over, key, node_of, node_of_claim,
};
use super::tried::Tried;

/// Claims that have been given nothing yet, with what they ask.
pub(super) type Asking = Vec<(Arc<ResourceClaim>, Vec<Asked>)>;

/// A pod that waits for devices.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The pod.
    pub(super) pod: Arc<Pod>,
    /// Its claims that have been given nothing yet, with what they ask.
    pub(super) claims: Asking,
}

/// How far a pod has come.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// It has been bound.
    Past,
    /// It is over.
    Over,
    /// Its claims have been given devices, and the scheduler may bind it.
    Open,
    /// Its claims have been given devices, and its gate is closed.
    Ready,
    /// It waits at this gate of somebody else, as of one who admits jobs by their quota: until it is through, it is given nothing.
    Held(String),
    /// Its claims have been given devices of this node for a while, and the scheduler finds that it cannot run there, whatever else stands in the way:
    /// what it has goes back.
    HandedBack(String),
    /// This claim of it has not been made yet.
    Unclaimed(String),
    /// Some of its claims have been given devices and others not, as when a controller died in between: what they have goes back.
    Halfway,
    /// It asks for what we cannot grant.
    Refused(String),
    /// It waits for devices.
    Waits(Asking, Box<Workload>),
}

/// What is looked up for every pod.
pub(super) struct Known<'a> {
    pub(super) users: &'a Users,
    pub(super) classes: &'a Classes,
    pub(super) eligible: Eligible<'a>,
    pub(super) tried: &'a Tried,
    pub(super) now_ms: u64,
}

/// How far a pod has come; `None` if it asks for nothing of ours.
pub(super) fn of(seen: &Observation, known: &Known<'_>, pod: &Arc<Pod>) -> Option<Stage> {
    let claims = seen.claims_of(pod);
    let ours: Vec<&Arc<ResourceClaim>> = claims
        .iter()
        .copied()
        .flatten()
        .filter(|claim| known.classes.concern(&claim.spec))
        .collect();
    let has_all = claims.iter().flatten().all(|claim| is_allocated(claim));
    // One that was bound without devices, as when its claim was made anew under it, is given them where it is.
    if is_over(pod) || node_of(pod).is_some() && has_all {
        let stage = if is_over(pod) { Stage::Over } else { Stage::Past };
        return (!ours.is_empty()).then_some(stage);
    }
    if let Some(gate) = foreign_gate(pod) {
        return (is_gated(pod) || !ours.is_empty()).then(|| Stage::Held(gate.to_owned()));
    }
    if let Some(at) = claims.iter().position(Option::is_none) {
        let names = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
        let name = names.into_iter().nth(at).map(|claim| claim.name.clone()).unwrap_or_default();
        return is_gated(pod).then_some(Stage::Unclaimed(name));
    }
    let mut closed = claims.iter().copied().flatten().filter(|claim| !is_allocated(claim));
    if let Some(class) = closed.find_map(|claim| known.classes.missing(&claim.spec)) {
        let why = format!("there is no device class {class}, which its claim names");
        return is_gated(pod).then_some(Stage::Refused(why));
    }
    let open: Vec<&Arc<ResourceClaim>> =
        ours.iter().copied().filter(|claim| !is_allocated(claim)).collect();
    let given = || ours.iter().copied().find(|claim| is_given_long(claim, known.now_ms));
    if open.is_empty()
        && !is_gated(pod)
        && is_unschedulable(pod)
        && let Some(node) = given().and_then(|claim| node_of_claim(claim))
    {
        return Some(Stage::HandedBack(node));
    }
    if open.is_empty() {
        let stage = if is_gated(pod) { Stage::Ready } else { Stage::Open };
        return (is_gated(pod) || !ours.is_empty()).then_some(stage);
    }
    let is_own = |claim: &&Arc<ResourceClaim>| {
        is_allocated(claim)
            && known.users.get(&key(&claim.metadata)).is_none_or(|all| all.len() < 2)
    };
    if ours.iter().any(is_own) {
        return Some(Stage::Halfway);
    }
    let asked = match asked(&open, known.classes).and_then(|asked| Ok((demand(&asked)?, asked))) {
        Ok(asked) => asked,
        Err(why) => return Some(Stage::Refused(why)),
    };
    let (gpus, asked) = asked;
    let bound = node_of(pod).map(str::to_owned);
    let nodes = match ours.iter().find_map(|claim| node_of_claim(claim)).or(bound) {
        Some(node) => NodeSet::only([node].into()),
        None if is_gated(pod) => known.eligible.nodes(pod, &BTreeSet::new()),
        None => {
            let passed_over = known.tried.passed_over(&uid(&pod.metadata), known.now_ms);
            known.eligible.nodes(pod, &passed_over)
        }
    };
    // CPU and memory of whoever is bound are counted where he is.
    let host = if node_of(pod).is_some() { Host::default() } else { host::asked(pod) };
    let demand =
        Demand { cpu_milli: host.cpu_milli, memory_mib: host.memory_mib, gpus: Some(gpus), nodes };
    let workload = Box::new(workload(pod, demand, &asked));
    Some(Stage::Waits(asked, workload))
}

/// What claims ask, each of them.
pub(super) fn asked(claims: &[&Arc<ResourceClaim>], classes: &Classes) -> Result<Asking, String> {
    let one = |claim: &&Arc<ResourceClaim>| Ok((Arc::clone(claim), classes.asked(claim)?));
    claims.iter().map(one).collect()
}

/// One demand for all requests of a pod, which must ask the same of each card.
pub(super) fn demand(asked: &[(Arc<ResourceClaim>, Vec<Asked>)]) -> Result<GpuDemand, String> {
    let mut all = asked.iter().flat_map(|(_, asked)| asked);
    let first = all.next().ok_or("it asks for no device")?;
    let count = first.each.count + all.clone().map(|one| one.each.count).sum::<u32>();
    let alike = |one: &Asked| GpuDemand { count: 0, ..one.each.clone() };
    match all.find(|one| alike(one) != alike(first)) {
        None => Ok(GpuDemand { count, ..first.each.clone() }),
        Some(other) => Err(format!(
            "requests {} and {} ask for different things; hotpot gives all cards of a pod alike",
            first.request, other.request
        )),
    }
}

fn workload(pod: &Pod, demand: Demand, asked: &[(Arc<ResourceClaim>, Vec<Asked>)]) -> Workload {
    let owner = Owner::new(pod.metadata.namespace.as_deref().unwrap_or_default());
    let name = pod.metadata.name.clone().unwrap_or_default();
    let class = asked.iter().flat_map(|(_, asked)| asked).find_map(|one| one.class);
    Workload {
        class: class.unwrap_or(Class::Batch),
        priority: pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default(),
        submitted_ms: created(&pod.metadata),
        preempts: disruption::preempts(pod),
        ..Workload::new(WorkloadId(0), name, owner, demand)
    }
}

/// A pod whose devices are given is bound within this, or something else stands in its way.
const BOUND_WITHIN_MS: u64 = 15_000;

/// Whether the claim was given its devices long enough ago that its pod should have been bound.
fn is_given_long(claim: &ResourceClaim, now_ms: u64) -> bool {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let at = allocation.and_then(|allocation| allocation.allocation_timestamp.as_ref());
    let at_ms = at.and_then(|at| u64::try_from(at.0.as_millisecond()).ok());
    at_ms.is_some_and(|at_ms| now_ms > at_ms.saturating_add(BOUND_WITHIN_MS))
}

/// Whether the scheduler has looked at it and found no node.
fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })
}

fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

fn uid(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> String {
    meta.uid.clone().unwrap_or_default()
}
