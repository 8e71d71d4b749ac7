//! Saying why a pod waits: a condition of the pod, in amounts.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::act::Written;
use super::decide::Why;

/// The condition's type.
pub(super) const CONDITION: &str = "hotpot.dev/Placed";

/// The condition's reason and text.
pub(super) fn words(why: &Why) -> (&'static str, String) {
    match why {
        Why::Refused(refusal) if refusal.is_never() => ("NeverFits", refusal.to_string()),
        Why::Refused(refusal) => ("Waiting", refusal.to_string()),
        Why::Unfit(text) => ("NotSupported", text.clone()),
    }
}

/// What a pod's condition says now.
pub(super) fn said(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == CONDITION)
}

/// Whether the condition says it already.
pub(super) fn is_said(pod: &Pod, why: &Why) -> bool {
    let (reason, text) = words(why);
    said(pod).is_some_and(|condition| {
        condition.message.as_deref() == Some(&text) && condition.reason.as_deref() == Some(reason)
    })
}

/// Writes the condition, unless it is there.
pub(super) async fn tell(client: &Client, pod: &Pod, why: &Why, written: &mut Written) {
    if is_said(pod, why) {
        return;
    }
    let (namespace, name) = super::observation::key(&pod.metadata);
    let (reason, text) = words(why);
    let now = Time(Timestamp::now());
    let patch = json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {"conditions": [
            {"type": CONDITION, "status": "False", "reason": reason, "message": text, "lastTransitionTime": now},
        ]},
    });
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    match api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(pod) => written.pods.push(pod),
        Err(error) => written.went_wrong(&format!("pod {namespace}/{name}"), &error),
    }
}
