//! Who holds devices: a pod with all that its claims were given or, where several pods share a claim, the claim. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use model::{Demand, GpuDemand, NodeId, Owner, Seat, Share, Workload, WorkloadId};

use super::ask::Classes;
use super::disruption::{self, Kept};
use super::fleet::Machines;
use super::held::{self, Held};
use super::host;
use super::observation::{Key, Observation, Users, created, key, node_of};
use super::stage;

/// Who holds devices.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    /// The pod, if it is the only one.
    pub(super) pod: Option<Arc<Pod>>,
    /// The claims.
    claims: Vec<Arc<ResourceClaim>>,
    /// What they hold.
    pub(super) held: Vec<Held>,
    /// What they have asked; `None` if that is not for us to give.
    gpus: Option<GpuDemand>,
    /// Nobody uses it any more: the pod is over or gone, and the claim goes or is taken back.
    is_left: bool,
    /// It holds what is not published any more: nobody else is put onto its cards.
    pub(super) is_in_doubt: bool,
}

impl Holder {
    fn new(pod: Option<Arc<Pod>>) -> Self {
        Self {
            pod,
            claims: Vec::new(),
            held: Vec::new(),
            gpus: None,
            is_left: false,
            is_in_doubt: false,
        }
    }

    fn with_demand(self, classes: &Classes) -> Self {
        let claims: Vec<&Arc<ResourceClaim>> = self.claims.iter().collect();
        let asked = stage::asked(&claims, classes).and_then(|asked| stage::demand(&asked));
        Self { gpus: asked.ok(), ..self }
    }

    fn meta(&self) -> Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta> {
        let pod = self.pod.as_ref().map(|pod| &pod.metadata);
        pod.or_else(|| self.claims.first().map(|claim| &claim.metadata))
    }

    /// Namespace and name of the pod, or of the claim.
    pub(super) fn name(&self) -> Key {
        self.meta().map(key).unwrap_or_default()
    }

    /// Since when it is there, in ms since 1970.
    pub(super) fn since_ms(&self) -> u64 {
        self.meta().map(created).unwrap_or_default()
    }

    /// Where it sits: a seat for each node.
    pub(super) fn seats(&self) -> Vec<Seat> {
        let mut seats: BTreeMap<NodeId, Vec<(u8, Share)>> = BTreeMap::new();
        for one in &self.held {
            seats.entry(one.gpu.node).or_default().push((one.gpu.index, one.share));
        }
        let seat = |(node, mut shares): (NodeId, Vec<(u8, Share)>)| {
            shares.sort_by_key(|(index, _)| *index);
            Seat { node, shares }
        };
        seats.into_iter().map(seat).collect()
    }

    /// When it is gone at the latest, in ms since 1970, if it has been asked to leave or has left already.
    pub(super) fn leaves_by_ms(&self, now_ms: u64) -> Option<u64> {
        if self.is_left {
            return Some(now_ms);
        }
        disruption::leaves_by_ms(self.pod.as_ref()?, now_ms)
    }

    /// What it is to the engine; with a pod's CPU and memory if there is one.
    pub(super) fn workload(&self, id: WorkloadId, kept: &Kept) -> Workload {
        let (namespace, name) = self.name();
        let host = self.pod.as_ref().map(|pod| host::asked(pod)).unwrap_or_default();
        let demand = Demand {
            cpu_milli: host.cpu_milli,
            memory_mib: host.memory_mib,
            gpus: self.gpus.clone(),
            ..Demand::default()
        };
        let spec = self.pod.as_ref().and_then(|pod| pod.spec.as_ref());
        Workload {
            class: self.held.iter().find_map(|one| one.class).unwrap_or_default(),
            priority: spec.and_then(|spec| spec.priority).unwrap_or_default(),
            submitted_ms: self.since_ms(),
            preemptible: self.pod.as_ref().is_some_and(|pod| kept.let_go(pod)),
            ..Workload::new(id, name, Owner::new(&namespace), demand)
        }
    }

    /// Whether two of its shares are on one card, as claims of one pod may be that others have given.
    fn doubles(&self) -> bool {
        let cards: BTreeSet<_> = self.held.iter().map(|one| one.gpu).collect();
        let nodes: BTreeSet<_> = self.held.iter().map(|one| one.gpu.node).collect();
        cards.len() < self.held.len() || nodes.len() > 1
    }

    fn apart(self) -> Vec<Self> {
        let one = |claim: Arc<ResourceClaim>, held: Vec<Held>| Self {
            pod: None,
            claims: vec![claim],
            held,
            gpus: None,
            is_left: false,
            is_in_doubt: false,
        };
        let claims = self.claims.into_iter();
        let mut left = self.held.into_iter();
        claims
            .map(|claim| {
                let count = held::count(&claim);
                one(claim, left.by_ref().take(count).collect())
            })
            .collect()
    }
}

/// Whether a pod is a holder by itself, so that its CPU and memory are counted with it.
pub(super) fn is_one(seen: &Observation, users: &Users, pod: &Pod) -> bool {
    let claims = seen.claims_of(pod);
    claims.into_iter().flatten().any(|claim| held::count(claim) > 0 && sole(users, claim).is_some())
}

/// The one pod that uses a claim: of those that are bound, if any is, so that nobody makes his claim a shared one by a pod that never runs.
fn sole<'a>(users: &'a Users, claim: &ResourceClaim) -> Option<&'a Arc<Pod>> {
    let all = users.get(&key(&claim.metadata))?;
    let mut bound = all.iter().filter(|pod| node_of(pod).is_some());
    match (bound.next(), bound.next(), all.as_slice()) {
        (Some(pod), None, _) | (None, _, [pod]) => Some(pod),
        _ => None,
    }
}

/// All who hold devices of ours; and claims that hold what is not published, with the reason.
pub(super) fn all(
    seen: &Observation,
    users: &Users,
    (machines, classes): (&Machines, &Classes),
) -> (Vec<Holder>, Vec<(Key, String)>) {
    let (mut by_pod, mut shared, mut strays) = (BTreeMap::new(), Vec::new(), Vec::new());
    for claim in seen.claims.values() {
        let (held, missing) = held::of(claim, machines);
        if let Some(why) = &missing {
            strays.push((key(&claim.metadata), why.clone()));
        }
        if held.is_empty() && missing.is_none() {
            continue;
        }
        let holder: &mut Holder = match sole(users, claim) {
            Some(pod) => by_pod
                .entry(key(&pod.metadata))
                .or_insert_with(|| Holder::new(Some(Arc::clone(pod)))),
            None => {
                let is_left = !users.contains_key(&key(&claim.metadata));
                shared.push(Holder { is_left, ..Holder::new(None) });
                let Some(last) = shared.last_mut() else { continue };
                last
            }
        };
        holder.claims.push(Arc::clone(claim));
        holder.held.extend(held);
        holder.is_in_doubt |= missing.is_some();
    }
    let of_pods = by_pod
        .into_values()
        .flat_map(|holder| if holder.doubles() { holder.apart() } else { vec![holder] });
    let all = of_pods.chain(shared).map(|holder| holder.with_demand(classes)).collect();
    (all, strays)
}
