//! What the controller thinks of one pod, for whoever asks: the same world, and nothing is written.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use model::{Policy, Snapshot, WorkloadId};
use serde::de::DeserializeOwned;

use super::observation::{Key, Observation, key};
use super::tell;
use super::tried::Tried;
use super::world::World;
use crate::names;

/// What is known of a pod.
#[derive(Debug)]
pub enum Answer {
    /// It waits or holds, by this number in the world.
    Known {
        /// The world; workloads are called as pods, their owners are namespaces.
        snapshot: Box<Snapshot>,
        /// The pod's number.
        id: WorkloadId,
    },
    /// All that can be said.
    Said(String),
}

/// Asks about a pod.
///
/// * `namespace` — the client's own if there is none.
///
/// # Errors
/// There is no such pod, or the API server does not answer.
pub async fn ask(
    client: &Client,
    policy: &Policy,
    namespace: Option<&str>,
    name: &str,
) -> Result<Answer, String> {
    let namespace = namespace.unwrap_or_else(|| client.default_namespace()).to_owned();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let pod = pods.get(name).await.map_err(|error| format!("pod {namespace}/{name}: {error}"))?;
    match observe(client).await {
        Ok(seen) => Ok(answer(&seen, policy, &pod)),
        // Who may not see the cluster is told what the controller has said of the pod.
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Answer::Said(said(&pod))),
        Err(error) => Err(format!("the cluster cannot be observed: {error}")),
    }
}

async fn observe(client: &Client) -> Result<Observation, kube::Error> {
    let ours = ListParams::default().fields(&format!("spec.driver={}", names::DRIVER));
    let slices = Api::all(client.clone()).list(&ours).await?.items;
    Ok(Observation {
        nodes: listed(client).await?.into_values().collect(),
        pods: listed(client).await?,
        claims: listed(client).await?,
        slices: slices.into_iter().map(Arc::new).collect(),
        classes: listed(client).await?.into_values().collect(),
        budgets: listed(client).await?.into_values().collect(),
        // Who makes templates does not matter to who waits.
        templates: BTreeMap::new(),
    })
}

async fn listed<T>(client: &Client) -> Result<BTreeMap<Key, Arc<T>>, kube::Error>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let all = Api::<T>::all(client.clone()).list(&ListParams::default()).await?;
    Ok(all.items.into_iter().map(|object| (key(object.meta()), Arc::new(object))).collect())
}

fn answer(seen: &Observation, policy: &Policy, pod: &Pod) -> Answer {
    let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
    let world = World::of(seen, &Tried::default(), &policy.modes, now_ms);
    let asked = key(&pod.metadata);
    let is_it = |one: &Arc<Pod>| key(&one.metadata) == asked;
    let waits = world.waiting.iter().find(|(_, waiting)| {
        waiting.members.iter().any(|member| is_it(&member.pod)) || waiting.given.iter().any(is_it)
    });
    let holds = || world.holders.iter().find(|(_, holder)| holder.pod.as_ref().is_some_and(is_it));
    if let Some(id) = waits.map(|(id, _)| *id).or_else(|| holds().map(|(id, _)| *id)) {
        return Answer::Known { snapshot: Box::new(world.snapshot), id };
    }
    let refused = world.refused.iter().find(|(one, _)| is_it(one));
    Answer::Said(refused.map_or_else(|| said(pod), |(_, why)| format!("waits; {}", why.text)))
}

/// What the controller has written on the pod.
fn said(pod: &Pod) -> String {
    let message = tell::said(pod).and_then(|condition| condition.message.clone());
    message.unwrap_or_else(|| {
        "hotpot has nothing to say of it: it asks for none of hotpot's devices, or is over".into()
    })
}
