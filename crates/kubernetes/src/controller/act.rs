//! Writing what was decided. Each write is one attempt on the version that was decided on: if somebody was faster, the API server
//! refuses it, and the next cycle decides anew.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::{EventType, Recorder};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::decide::{Act, Given, Seated};
use super::leader::Term;
use super::observation::{is_gated, key, node_of_allocation};
use crate::names;

/// What the API server has answered to writes.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Claims as they are now.
    pub(super) claims: Vec<ResourceClaim>,
    /// Pods as they are now.
    pub(super) pods: Vec<Pod>,
    /// Templates as they are now.
    pub(super) templates: Vec<ResourceClaimTemplate>,
    /// What went wrong.
    pub(super) errors: Vec<String>,
    /// Of some write it is not known whether it was done.
    pub(super) is_unknown: bool,
}

impl Written {
    /// Notes that answers are missing still.
    pub(super) fn give_up(&mut self, after: Duration) {
        self.errors
            .push(format!("the API server has not answered writes within {} s", after.as_secs()));
        self.is_unknown = true;
    }

    /// Notes what went wrong; that somebody was faster, that the object is gone, or that a budget allows no disruption now is
    /// nothing wrong.
    pub(super) fn went_wrong(&mut self, what: &str, error: &kube::Error) {
        let kube::Error::Api(status) = error else {
            self.errors.push(format!("{what}: {error}"));
            self.is_unknown = true;
            return;
        };
        let is_ordinary = [404, 409, 429].contains(&status.code);
        if !is_ordinary {
            self.errors.push(format!("{what}: {}", status.message));
        }
    }
}

/// What writes, and by which right.
pub(super) struct Hands<'a> {
    /// The API server.
    pub(super) client: &'a Client,
    /// The term, after which nothing is written.
    pub(super) term: &'a Term,
    /// Publishes events.
    pub(super) events: &'a Recorder,
}

/// Carries out one act, if the term is not over.
///
/// * `written` — gets each answer as it comes; what has come by then counts if the rest is given up.
pub(super) async fn carry_out(hands: &Hands<'_>, act: &Act, written: &mut Written) {
    if !hands.term.holds() {
        return;
    }
    match act {
        Act::Give { members, given } => give(hands, (members, given), written).await,
        Act::Open(Seated { pod, node }) => open(hands, pod, node.as_deref(), written).await,
        Act::TakeBack { claim } => {
            // Without an allocation nobody can be named for whom it is reserved.
            let nothing = json!({"allocation": null, "reservedFor": null});
            let _taken = write(hands.client, claim, &nothing, written).await;
        }
        Act::Evict { pod, by_ms, newcomer } => {
            evict(hands, pod, (*by_ms, newcomer), written).await;
        }
        Act::Template(change) => {
            super::templates::carry_out(hands.client, change, written).await;
        }
        Act::Settle { pod } => super::tell::given(hands, pod, None, written).await,
        Act::Tell { pod, why } => super::tell::tell(hands, pod, why, written).await,
    }
}

async fn give(hands: &Hands<'_>, (members, given): (&[Given], &[Seated]), written: &mut Written) {
    for Given { pod, claims } in members {
        for (claim, allocation) in claims {
            // The scheduler need not write again what says for which pod it is.
            let status = json!({"allocation": allocation, "reservedFor": reserved_for(claim, pod)});
            if !hands.term.holds() || !write(hands.client, claim, &status, written).await {
                return;
            }
        }
    }
    for Given { pod, claims } in members {
        let node = claims.iter().find_map(|(_, allocation)| node_of_allocation(allocation));
        open(hands, pod, node.as_deref(), written).await;
    }
    for Seated { pod, node } in given {
        open(hands, pod, node.as_deref(), written).await;
    }
}

/// Asks a pod to leave, with the grace that it wants, if that is not too long; budgets of disruption have the last word.
async fn evict(
    hands: &Hands<'_>,
    pod: &Arc<Pod>,
    (by_ms, newcomer): (u64, &str),
    written: &mut Written,
) {
    let (namespace, name) = key(&pod.metadata);
    let left_ms = i64::try_from(by_ms).unwrap_or(i64::MAX) - Timestamp::now().as_millisecond();
    let own_s = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    // Without any, the API server would forget a pod that still runs.
    let most_s = u32::try_from(left_ms / 1000).unwrap_or_default().max(1);
    let grace_s = own_s.and_then(|own_s| u32::try_from(own_s).ok()).unwrap_or(most_s).min(most_s);
    let preconditions = Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() };
    let delete_options = DeleteParams {
        grace_period_seconds: Some(grace_s),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    let params = EvictParams { delete_options: Some(delete_options), ..EvictParams::default() };
    let api: Api<Pod> = Api::namespaced(hands.client.clone(), &namespace);
    let note = format!("evicted: makes room for pod {newcomer}, of higher priority");
    match api.evict(&name, &params).await {
        Ok(_) => {
            // Until the watch says so too.
            let mut leaving = Pod::clone(pod);
            let by = Timestamp::now() + SignedDuration::from_secs(i64::from(grace_s));
            leaving.metadata.deletion_timestamp = Some(Time(by));
            written.pods.push(leaving);
            let type_ = EventType::Warning;
            super::tell::event(hands, pod, type_, ("Evicted", &note), written).await;
        }
        Err(error) => written.went_wrong(&format!("evicting pod {namespace}/{name}"), &error),
    }
}

/// For whom a claim is reserved, the pod among them.
fn reserved_for(claim: &ResourceClaim, pod: &Pod) -> Vec<Value> {
    let (_, name) = key(&pod.metadata);
    let known = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    let known =
        known.filter(|one| Some(&one.uid) != pod.metadata.uid.as_ref()).map(|one| json!(one));
    known.chain([json!({"resource": "pods", "name": name, "uid": pod.metadata.uid})]).collect()
}

/// Writes parts of a claim's status; whether that was done.
async fn write(
    client: &Client,
    claim: &ResourceClaim,
    status: &Value,
    written: &mut Written,
) -> bool {
    let meta = &claim.metadata;
    let (namespace, name) = key(meta);
    let patch = json!({
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": status,
    });
    let api: Api<ResourceClaim> = Api::namespaced(client.clone(), &namespace);
    match api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(claim) => {
            written.claims.push(claim);
            true
        }
        Err(error) => {
            written.went_wrong(&format!("claim {namespace}/{name}"), &error);
            false
        }
    }
}

/// Says where a pod's devices are, and takes our gate off it if it has one; other gates stay.
async fn open(hands: &Hands<'_>, pod: &Pod, node: Option<&str>, written: &mut Written) {
    super::tell::given(hands, pod, node, written).await;
    if !is_gated(pod) {
        return;
    }
    let (namespace, name) = key(&pod.metadata);
    let patch = json!({
        "metadata": {"uid": pod.metadata.uid},
        "spec": {"schedulingGates": [{"name": names::GATE, "$patch": "delete"}]},
    });
    let api: Api<Pod> = Api::namespaced(hands.client.clone(), &namespace);
    match api.patch(&name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(pod) => written.pods.push(pod),
        Err(error) => written.went_wrong(&format!("pod {namespace}/{name}"), &error),
    }
}
