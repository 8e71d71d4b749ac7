//! From what is observed to what the engine decides on: the fleet with everybody who holds something of it, and the pods that
//! wait. Pure.
//!
//! Claims are the book: what a claim's status says is allocated is held, whoever wrote it and whatever runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use model::{
    Class, Demand, GpuDemand, GpuId, NodeId, NodeSet, Owner, Seat, Share, SharingMode, Snapshot,
    Workload, WorkloadId,
};

use super::ask::{Asked, Classes};
use super::fleet::{Host, Machines};
use super::held::{self, Held};
use super::observation::{Key, Observation, is_gated, is_over, key, node_of};
use super::tried::Tried;
use super::{eligible, host};
use crate::names;

/// Claims that have been given nothing yet, with what they ask.
pub(super) type Asking = Vec<(Arc<ResourceClaim>, Vec<Asked>)>;

/// A pod that waits for devices.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// The pod.
    pub(super) pod: Arc<Pod>,
    /// Its claims that have been given nothing yet, with what they ask.
    pub(super) claims: Asking,
}

/// The world as the engine takes it, and what its numbers mean.
#[derive(Debug, Default)]
pub(super) struct World {
    /// The fleet.
    pub(super) machines: Machines,
    /// The fleet with all who hold and all who wait.
    pub(super) snapshot: Snapshot,
    /// Who waits, by the snapshot's numbers.
    pub(super) waiting: BTreeMap<WorkloadId, Waiting>,
    /// Who holds, by the snapshot's numbers: the claim.
    pub(super) holders: BTreeMap<WorkloadId, Key>,
    /// Pods at our gate whose claims have all been given devices.
    pub(super) ready: Vec<Arc<Pod>>,
    /// Pods that ask for what we cannot grant, with the reason.
    pub(super) refused: Vec<(Arc<Pod>, String)>,
    /// Pods at our gate of which a claim has not been made yet.
    pub(super) unclaimed: Vec<Arc<Pod>>,
    /// Claims that hold more than there is, or what is not there any more.
    pub(super) strays: Vec<(Key, String)>,
}

/// Waits or holds, before it has a number.
enum Entry {
    Holds(Arc<ResourceClaim>, Vec<Held>),
    Waits(Arc<Pod>, Asking, Workload),
}

impl World {
    /// * `tried` — nodes that pods have been handed back from.
    /// * `now_ms` — of the clock that the objects' times are of, in ms since 1970.
    pub(super) fn of(seen: &Observation, tried: &Tried, tenants_max: u8, now_ms: u64) -> Self {
        let machines = Machines::of(&seen.nodes, &seen.slices, &free(seen));
        let mut world = Self {
            snapshot: Snapshot::new(machines.fleet.clone(), now_ms),
            machines,
            ..Self::default()
        };
        let classes = Classes::of(&seen.classes);
        // By age; times are in whole seconds, and among equals names tell.
        let mut entries: Vec<(u64, Key, Entry)> = Vec::new();
        for claim in seen.claims.values() {
            let held = held::of(claim, &world.machines);
            match held {
                Ok(held) if held.is_empty() => {}
                Ok(held) => entries.push((
                    created(&claim.metadata),
                    key(&claim.metadata),
                    Entry::Holds(Arc::clone(claim), held),
                )),
                Err(why) => world.strays.push((key(&claim.metadata), why)),
            }
        }
        for pod in seen.pods.values().filter(|pod| !is_over(pod) && node_of(pod).is_none()) {
            if let Some(entry) = world.pod(seen, &classes, tried, pod) {
                entries.push((created(&pod.metadata), key(&pod.metadata), entry));
            }
        }
        entries.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        for ((_, _, entry), id) in entries.into_iter().zip((0..).map(WorkloadId)) {
            world.enter(id, entry, tenants_max);
        }
        world
    }

    /// What a pod without a node waits for; nothing if that is none of ours.
    fn pod(
        &mut self,
        seen: &Observation,
        classes: &Classes,
        tried: &Tried,
        pod: &Arc<Pod>,
    ) -> Option<Entry> {
        let claims = seen.claims_of(pod);
        if claims.iter().any(Option::is_none) {
            if is_gated(pod) {
                self.unclaimed.push(Arc::clone(pod));
            }
            return None;
        }
        let ours: Vec<&Arc<ResourceClaim>> =
            claims.into_iter().flatten().filter(|claim| classes.concern(&claim.spec)).collect();
        let open: Vec<&Arc<ResourceClaim>> =
            ours.iter().copied().filter(|claim| !is_allocated(claim)).collect();
        if open.is_empty() {
            if is_gated(pod) {
                self.ready.push(Arc::clone(pod));
            }
            return None;
        }
        match asked(&open, classes).and_then(|asked| Ok((demand(&asked)?, asked))) {
            Err(why) => {
                self.refused.push((Arc::clone(pod), why));
                None
            }
            Ok((gpus, asked)) => {
                let nodes = match ours.iter().find_map(|claim| node_of_claim(claim)) {
                    Some(node) => NodeSet::only([node].into()),
                    None if is_gated(pod) => eligible::nodes(pod, &seen.nodes, &BTreeSet::new()),
                    None => {
                        let passed_over =
                            tried.passed_over(&uid(&pod.metadata), self.snapshot.now_ms);
                        eligible::nodes(pod, &seen.nodes, &passed_over)
                    }
                };
                let host = host::asked(pod);
                let demand = Demand {
                    cpu_milli: host.cpu_milli,
                    memory_mib: host.memory_mib,
                    gpus: Some(gpus),
                    nodes,
                };
                Some(Entry::Waits(Arc::clone(pod), asked.clone(), workload(pod, demand, &asked)))
            }
        }
    }

    fn enter(&mut self, id: WorkloadId, entry: Entry, tenants_max: u8) {
        match entry {
            Entry::Waits(pod, claims, workload) => {
                self.snapshot.submit(Arc::new(Workload { id, ..workload }));
                self.waiting.insert(id, Waiting { pod, claims });
            }
            Entry::Holds(claim, held) => {
                let name = key(&claim.metadata);
                if let Err(why) = self.hold(id, &claim, &held, tenants_max) {
                    self.strays.push((name.clone(), why));
                    // Nobody else is put onto cards of which the book is wrong.
                    for one in &held {
                        let _known = self.snapshot.set_aside(one.gpu, true);
                    }
                }
                self.holders.insert(id, name);
            }
        }
    }

    /// Puts a holder where it is.
    fn hold(
        &mut self,
        id: WorkloadId,
        claim: &ResourceClaim,
        held: &[Held],
        tenants_max: u8,
    ) -> Result<(), String> {
        let owner = Owner::new(claim.metadata.namespace.as_deref().unwrap_or_default());
        let name = claim.metadata.name.clone().unwrap_or_default();
        let workload = Workload {
            class: held.iter().find_map(|one| one.class).unwrap_or_default(),
            submitted_ms: created(&claim.metadata),
            ..Workload::new(id, name, owner, Demand::default())
        };
        let mut seats: BTreeMap<NodeId, Vec<(u8, Share)>> = BTreeMap::new();
        for one in held {
            let mode = one.share.mode(tenants_max);
            self.snapshot.set_mode(one.gpu, mode).or_else(|refusal| {
                self.is_in(one.gpu, mode).then_some(()).ok_or_else(|| refusal.to_string())
            })?;
            seats.entry(one.gpu.node).or_default().push((one.gpu.index, one.share));
        }
        let seats: Vec<Seat> = seats
            .into_iter()
            .map(|(node, mut shares)| {
                shares.sort_by_key(|(index, _)| *index);
                Seat { node, shares }
            })
            .collect();
        self.snapshot.submit(Arc::new(workload));
        let placed = self.snapshot.place(id, &seats, u64::MAX);
        if placed.is_err() {
            self.snapshot.withdraw(id);
        }
        placed.map_err(|refusal| refusal.to_string())
    }

    fn is_in(&self, gpu: GpuId, mode: SharingMode) -> bool {
        let node = self.snapshot.fleet().node(gpu.node);
        node.and_then(|node| node.gpus().get(usize::from(gpu.index)))
            .is_some_and(|found| found.mode() == mode)
    }
}

/// What every pod that has a node, or will have one by its claims, leaves of that node.
fn free(seen: &Observation) -> BTreeMap<String, Host> {
    let of_node = |node: &Arc<k8s_openapi::api::core::v1::Node>| {
        Some((node.metadata.name.clone()?, host::allocatable(node)))
    };
    let mut free: BTreeMap<String, Host> = seen.nodes.iter().filter_map(of_node).collect();
    for pod in seen.pods.values().filter(|pod| !is_over(pod)) {
        let by_claims =
            || seen.claims_of(pod).into_iter().flatten().find_map(|claim| node_of_claim(claim));
        let Some(node) = node_of(pod).map(str::to_owned).or_else(by_claims) else { continue };
        if let Some(left) = free.get_mut(&node) {
            *left = host::less(*left, host::asked(pod));
        }
    }
    free
}

fn asked(claims: &[&Arc<ResourceClaim>], classes: &Classes) -> Result<Asking, String> {
    let one = |claim: &&Arc<ResourceClaim>| Ok((Arc::clone(claim), classes.asked(claim)?));
    claims.iter().map(one).collect()
}

/// One demand for all requests of a pod, which must ask the same of each card.
fn demand(asked: &[(Arc<ResourceClaim>, Vec<Asked>)]) -> Result<GpuDemand, String> {
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
        ..Workload::new(WorkloadId(0), name, owner, demand)
    }
}

fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

/// The node that a claim's devices of ours are of: its pool.
fn node_of_claim(claim: &ResourceClaim) -> Option<String> {
    let devices = claim.status.as_ref()?.allocation.as_ref()?.devices.as_ref()?;
    devices
        .results
        .iter()
        .flatten()
        .find(|result| result.driver == names::DRIVER)
        .map(|result| result.pool.clone())
}

/// When it was made, in ms since 1970.
fn created(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> u64 {
    let at = meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
    u64::try_from(at).unwrap_or_default()
}

fn uid(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> String {
    meta.uid.clone().unwrap_or_default()
}
