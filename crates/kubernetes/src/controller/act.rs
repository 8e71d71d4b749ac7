//! Writing what was decided. Each write is one attempt on the version that was decided on: if somebody was faster, the API server
//! refuses it, and the next cycle decides anew.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::decide::Act;
use crate::names;

/// What the API server has answered to writes.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Claims as they are now.
    pub(super) claims: Vec<ResourceClaim>,
    /// Pods as they are now.
    pub(super) pods: Vec<Pod>,
    /// What went wrong.
    pub(super) errors: Vec<String>,
}

impl Written {
    /// Notes what went wrong; that somebody was faster, or that the object is gone, is nothing wrong.
    pub(super) fn went_wrong(&mut self, what: &str, error: &kube::Error) {
        let kube::Error::Api(status) = error else {
            self.errors.push(format!("{what}: {error}"));
            return;
        };
        if !status.is_conflict() && !status.is_not_found() {
            self.errors.push(format!("{what}: {}", status.message));
        }
    }
}

/// Carries out one act.
pub(super) async fn carry_out(client: &Client, act: &Act) -> Written {
    let mut written = Written::default();
    match act {
        Act::Give { pod, claims } => give(client, pod, claims, &mut written).await,
        Act::Open { pod } => open(client, pod, &mut written).await,
        Act::TakeBack { claim } => {
            let nothing = json!({"allocation": null});
            let _taken = write(client, claim, &nothing, &mut written).await;
        }
        Act::Tell { pod, why } => super::tell::tell(client, pod, why, &mut written).await,
    }
    written
}

async fn give(
    client: &Client,
    pod: &Arc<Pod>,
    claims: &[(Arc<ResourceClaim>, AllocationResult)],
    written: &mut Written,
) {
    for (claim, allocation) in claims {
        // The scheduler need not write again what says for which pod it is.
        let status = json!({"allocation": allocation, "reservedFor": reserved_for(claim, pod)});
        if !write(client, claim, &status, written).await {
            return;
        }
    }
    if super::observation::is_gated(pod) {
        open(client, pod, written).await;
    }
}

/// For whom a claim is reserved, the pod among them.
fn reserved_for(claim: &ResourceClaim, pod: &Pod) -> Vec<Value> {
    let (_, name) = super::observation::key(&pod.metadata);
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
    let (namespace, name) = super::observation::key(meta);
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

/// Takes our gate off a pod; other gates stay.
async fn open(client: &Client, pod: &Pod, written: &mut Written) {
    let (namespace, name) = super::observation::key(&pod.metadata);
    let patch = json!({
        "metadata": {"uid": pod.metadata.uid},
        "spec": {"schedulingGates": [{"name": names::GATE, "$patch": "delete"}]},
    });
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    match api.patch(&name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(pod) => written.pods.push(pod),
        Err(error) => written.went_wrong(&format!("pod {namespace}/{name}"), &error),
    }
}
