//! Saying why a pod waits, in amounts: a condition of the pod, and events.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::act::{Hands, Written};
use super::decide::Why;
use super::observation::{is_gated, key, nominated};

/// The condition's type.
pub(super) const CONDITION: &str = "hotpot.dev/Placed";
/// Amounts alone are told anew no more often, in s: many wait, and every departure changes what is free.
const AMOUNTS_EVERY_S: i64 = 10;
/// Length of an event's note (API reference, Event).
const NOTE_MAX: usize = 1000;

/// What a pod's condition says now.
pub(super) fn said(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == CONDITION)
}

/// Whether the condition says it already.
pub(super) fn is_said(pod: &Pod, why: &Why) -> bool {
    said(pod).is_some_and(|condition| {
        condition.message.as_deref() == Some(&why.text)
            && condition.reason.as_deref() == Some(why.reason)
    })
}

/// Whether it has to wait until it is told that only the amounts have changed.
fn is_too_early(pod: &Pod, why: &Why, now: &Time) -> bool {
    said(pod).is_some_and(|condition| {
        let told = condition.last_transition_time.as_ref().map_or(0, |time| time.0.as_second());
        condition.reason.as_deref() == Some(why.reason)
            && now.0.as_second() - told < AMOUNTS_EVERY_S
    })
}

/// Says why a pod waits: by its condition, which is kept true, and by an event if the reason is a new one.
pub(super) async fn tell(hands: &Hands<'_>, pod: &Pod, why: &Why, written: &mut Written) {
    let now = Time(Timestamp::now());
    // What it had was taken back: no room is held for it any more. Who has never waited at the gate is the scheduler's.
    let is_stale = nominated(pod).is_some() && (is_gated(pod) || why.reason != Why::UNFIT);
    if !is_stale && (is_said(pod, why) || is_too_early(pod, why, &now)) {
        return;
    }
    let Why { reason, text } = why;
    let is_new = said(pod).and_then(|condition| condition.reason.as_deref()) != Some(*reason);
    let kind = if *reason == Why::WAITING { EventType::Normal } else { EventType::Warning };
    let mut status = json!({"conditions": [condition("False", reason, text)]});
    if is_stale {
        status["nominatedNodeName"] = Value::Null;
    }
    write(hands, pod, &status, written).await;
    if is_new {
        event(hands, pod, kind, (reason, text), written).await;
    }
}

/// Whether its condition says that it waits.
pub(super) fn is_told_to_wait(pod: &Pod) -> bool {
    said(pod).is_some_and(|condition| condition.status == "False")
}

/// Says of a pod that it has been given devices: if it has waited that it need not any more, and on which node they are.
///
/// The scheduler tries that node first and keeps CPU and memory of it for the pod until it is bound, and need not write it itself, which with
/// claims would be a second of the requests that its own limit counts (Kubernetes documentation, "Assigning Pods to Nodes", nominated node
/// name).
///
/// * `node` — `None` if the pod is bound or the scheduler knows already.
pub(super) async fn given(hands: &Hands<'_>, pod: &Pod, node: Option<&str>, written: &mut Written) {
    let (node, has_waited) =
        (node.filter(|node| nominated(pod) != Some(*node)), is_told_to_wait(pod));
    let text = "its claims have been given devices";
    let mut status = json!({});
    if let Some(node) = node {
        status["nominatedNodeName"] = node.into();
    }
    if has_waited {
        status["conditions"] = json!([condition("True", "Given", text)]);
    }
    if node.is_some() || has_waited {
        write(hands, pod, &status, written).await;
    }
    if has_waited {
        event(hands, pod, EventType::Normal, ("Given", text), written).await;
    }
}

fn condition(status: &str, reason: &str, text: &str) -> Value {
    let now = Time(Timestamp::now());
    json!({"type": CONDITION, "status": status, "reason": reason, "message": text, "lastTransitionTime": now})
}

/// Writes parts of a pod's status.
async fn write(hands: &Hands<'_>, pod: &Pod, status: &Value, written: &mut Written) {
    let (namespace, name) = key(&pod.metadata);
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let api: Api<Pod> = Api::namespaced(hands.client.clone(), &namespace);
    match api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(pod) => written.pods.push(pod),
        Err(error) => written.went_wrong(&format!("pod {namespace}/{name}"), &error),
    }
}

pub(super) async fn event(
    hands: &Hands<'_>,
    pod: &Pod,
    type_: EventType,
    (reason, note): (&str, &str),
    written: &mut Written,
) {
    let event = Event {
        type_,
        reason: reason.into(),
        note: Some(note.chars().take(NOTE_MAX).collect()),
        action: "Placing".into(),
        secondary: None,
    };
    if let Err(error) = hands.events.publish(&event, &pod.object_ref(&())).await {
        let (namespace, name) = key(&pod.metadata);
        written.went_wrong(&format!("event of pod {namespace}/{name}"), &error);
    }
}
