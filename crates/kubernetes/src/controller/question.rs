//! What the controller thinks of one pod, for whoever asks: the same world, and nothing is written.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use model::{Gpu, Policy, Seat, Share, Snapshot, WorkloadId};
use serde::de::DeserializeOwned;

use super::holder::Holder;
use super::observation::{Key, Observation, is_gated, is_over, key};
use super::tell;
use super::tried::Tried;
use super::world::World;
use crate::names;

/// What is known of a pod.
#[derive(Debug)]
pub enum Answer {
    /// It waits, by this number in the world.
    Waits {
        /// The world; workloads are called as pods, their owners are namespaces.
        snapshot: Box<Snapshot>,
        /// The pod's number.
        id: WorkloadId,
    },
    /// It has been given this.
    Holds(String),
    /// All that can be said of one that holds nothing.
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
    let pod = pods.get(name).await.map_err(|error| not_read(&error, &namespace, name))?;
    match observe(client).await {
        Ok(seen) => Ok(answer(&seen, policy, &pod)),
        // Who may not see the cluster is told what the controller has said of the pod.
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Answer::Said(said(&pod))),
        Err(error) => Err(format!("the cluster cannot be observed: {}", shortly(&error))),
    }
}

fn not_read(error: &kube::Error, namespace: &str, name: &str) -> String {
    if matches!(error, kube::Error::Api(status) if status.code == 404) {
        return format!(
            "there is no pod {name} in namespace {namespace}; name another by --namespace"
        );
    }
    format!("pod {namespace}/{name}: {}", shortly(error))
}

/// What the API server has said, or why it could not be asked.
fn shortly(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    crate::plugin::runtime::cause(error)
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
    if let Some((id, _)) = waits {
        return Answer::Waits { id: *id, snapshot: Box::new(world.snapshot) };
    }
    let holds = |holder: &&Holder| holder.pod.as_ref().is_some_and(is_it);
    if let Some(holder) = world.holders.values().find(holds) {
        return Answer::Holds(held(holder, &world));
    }
    let refused = world.refused.iter().find(|(one, _)| is_it(one));
    Answer::Said(refused.map_or_else(|| said(pod), |(_, why)| format!("waits; {}", why.text)))
}

/// `holds on n1: gpu0 memory-capped 10690 MiB`.
fn held(holder: &Holder, world: &World) -> String {
    let node = |seat: &Seat| {
        let node = world.machines.fleet.node(seat.node);
        let gpus = node.map_or(&[][..], model::Node::gpus);
        let one = |(index, share): &(u8, Share)| {
            let gpu = gpus.get(usize::from(*index));
            format!("gpu{index} {}", gpu.map_or_else(String::new, |gpu| share_of(gpu, *share)))
        };
        let shares: Vec<String> = seat.shares.iter().map(one).collect();
        format!("{}: {}", node.map_or("", model::Node::name), shares.join(", "))
    };
    let seats: Vec<String> = holder.seats().iter().map(node).collect();
    format!("holds on {}", seats.join("; "))
}

fn share_of(gpu: &Gpu, share: Share) -> String {
    let compute =
        |milli: u32| if milli == 0 { String::new() } else { format!(", {milli}/1000 of compute") };
    match share {
        Share::Exclusive => "alone".into(),
        Share::TimeSlice { memory_mib } => format!("time-slice, {memory_mib} MiB booked"),
        Share::Mps { compute_milli, memory_mib } => {
            format!("mps {memory_mib} MiB{}", compute(compute_milli))
        }
        Share::MemoryCapped { memory_mib, compute_milli } => {
            format!("memory-capped {memory_mib} MiB{}", compute(compute_milli))
        }
        Share::Mig { profile, start } => {
            let found = gpu.model().mig.as_ref().and_then(|geometry| geometry.profile(profile));
            format!("mig {} at {start}", found.map_or("", |found| found.name.as_str()))
        }
    }
}

/// What the controller has written on the pod.
fn said(pod: &Pod) -> String {
    let message = tell::said(pod).and_then(|condition| condition.message.clone());
    message.unwrap_or_else(|| match (is_gated(pod), is_over(pod)) {
        (true, _) => {
            "waits at hotpot's gate; its claims have not all been made: is the claim or the template there that it names?".into()
        }
        (false, true) => "is over".into(),
        (false, false) => "asks for none of hotpot's devices".into(),
    })
}
