//! From what is observed to what the engine decides on: the fleet with everybody who holds something of it, and the pods that
//! wait. Pure.
//!
//! Claims are the book: what a claim's status says is allocated is held, whoever wrote it and whatever runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use model::{Demand, GpuId, Refusal, SharingMode, Snapshot, Workload, WorkloadId};

use super::ask::Classes;
use super::decide::Why;
use super::disruption::Kept;
use super::eligible::Eligible;
use super::fleet::{Host, Machines};
use super::gang::{self, Gangs, Verdict};
use super::held::Held;
use super::holder::{self, Holder};
use super::host;
use super::observation::{
    Key, Observation, Users, created, is_gated, is_over, key, node_of, node_of_claim,
};
use super::stage::{self, Known, Member, Stage};
use super::tell;
use super::tried::Tried;

/// Pods that wait for devices and start together: one, or those of a gang.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// Those who wait.
    pub(super) members: Vec<Member>,
    /// Those of the gang who have been given devices already, and wait for the others.
    pub(super) given: Vec<Arc<Pod>>,
}

/// The world as the engine takes it, and what its numbers mean.
#[derive(Debug, Default)]
pub(super) struct World {
    /// The fleet.
    pub(super) machines: Machines,
    /// The fleet with all who hold and all who wait.
    pub(super) snapshot: Snapshot,
    /// Who uses which claim.
    pub(super) users: Users,
    /// Who waits, by the snapshot's numbers.
    pub(super) waiting: BTreeMap<WorkloadId, Waiting>,
    /// Who holds, by the snapshot's numbers.
    pub(super) holders: BTreeMap<WorkloadId, Holder>,
    /// Pods at our gate whose claims have all been given devices.
    pub(super) ready: Vec<Arc<Pod>>,
    /// Pods that are not even asked for, with the reason.
    pub(super) refused: Vec<(Arc<Pod>, Why)>,
    /// Pods that have their devices and of which it is still said that they wait.
    pub(super) settled: Vec<Arc<Pod>>,
    /// Pods that have been given devices and cannot start, as their gang cannot.
    pub(super) held_back: Vec<Arc<Pod>>,
    /// Pods that the scheduler cannot bind to the node of their devices, with that node.
    pub(super) handed_back: Vec<(Arc<Pod>, String)>,
    /// Claims that hold more than there is, or what is not there any more.
    pub(super) strays: Vec<(Key, String)>,
}

/// Claims are made of templates within this, where nothing is wrong.
const CLAIMS_MADE_MS: u64 = 15_000;

/// What holders are seen by.
struct Rules<'a> {
    /// Of the policy.
    modes: &'a [SharingMode],
    kept: Kept,
    /// How many hold a share of each card.
    tenants: BTreeMap<GpuId, u8>,
}

impl Rules<'_> {
    /// The mode that a share says its card is in, as the policy limits it; whoever sits there already is within the limit.
    fn mode(&self, held: &Held) -> SharingMode {
        let kind = held.share.kind();
        let listed = self.modes.iter().find(|mode| mode.kind() == kind);
        let limit = listed.map_or(SharingMode::TENANTS_MAX, |mode| mode.tenants_max());
        let here = self.tenants.get(&held.gpu).copied().unwrap_or_default();
        held.share.mode(limit.max(here))
    }
}

fn tenants(entries: &[(u64, Key, Entry)]) -> BTreeMap<GpuId, u8> {
    let mut tenants = BTreeMap::new();
    for (_, _, entry) in entries {
        let Entry::Holds(holder) = entry else { continue };
        for one in &holder.held {
            let count: &mut u8 = tenants.entry(one.gpu).or_default();
            *count = count.saturating_add(1);
        }
    }
    tenants
}

/// Waits or holds, before it has a number.
enum Entry {
    Holds(Holder),
    Waits(Waiting, Workload),
}

impl World {
    /// * `tried` — nodes that pods have been handed back from.
    /// * `now_ms` — of the clock that the objects' times are of, in ms since 1970.
    pub(super) fn of(
        seen: &Observation,
        tried: &Tried,
        modes: &[SharingMode],
        now_ms: u64,
    ) -> Self {
        let (users, classes) = (seen.users(), Classes::of(&seen.classes));
        let free = free(seen, &users);
        let machines = Machines::of(&seen.nodes, &seen.slices, &free);
        let (holders, strays) = holder::all(seen, &users, (&machines, &classes));
        let known = Known {
            users: &users,
            classes: &classes,
            eligible: Eligible::of(&seen.nodes),
            tried,
            now_ms,
        };
        let mut world = Self {
            snapshot: Snapshot::new(machines.fleet.clone(), now_ms),
            machines,
            strays,
            ..Self::default()
        };
        // By age; times are in whole seconds, and among equals names tell.
        let mut entries: Vec<(u64, Key, Entry)> = Vec::new();
        for holder in holders {
            entries.push((holder.since_ms(), holder.name(), Entry::Holds(holder)));
        }
        for (waiting, workload) in world.waiting_pods(seen, &known) {
            let first = waiting.members.first().map(|member| key(&member.pod.metadata));
            entries.push((
                workload.submitted_ms,
                first.unwrap_or_default(),
                Entry::Waits(waiting, workload),
            ));
        }
        entries.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        let mut asked = BTreeSet::new();
        entries.retain(|(_, _, entry)| is_first_to_ask(entry, &mut asked));
        let rules = Rules { modes, kept: Kept::of(seen, now_ms), tenants: tenants(&entries) };
        for ((_, _, entry), id) in entries.into_iter().zip((0..).map(WorkloadId)) {
            world.enter(id, entry, &rules);
        }
        Self { users, ..world }
    }

    /// Who waits, gangs together; who waits for nothing more, or in vain, is noted.
    fn waiting_pods(&mut self, seen: &Observation, known: &Known<'_>) -> Vec<(Waiting, Workload)> {
        let (mut gangs, mut waiting) = (Gangs::default(), Vec::new());
        for pod in seen.pods.values().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let Some(stage) = stage::of(seen, known, pod) else {
                continue;
            };
            match gang::of(pod) {
                Ok(None) => waiting.extend(self.apart(pod, stage)),
                Ok(Some(gang)) => gangs.add(gang, Arc::clone(pod), stage),
                Err(why) => self.refused.push((Arc::clone(pod), Why::unfit(&why))),
            }
        }
        for verdict in gangs.verdicts() {
            match verdict {
                Verdict::Apart(pods) => {
                    waiting.extend(
                        pods.into_iter().filter_map(|(pod, stage)| self.apart(&pod, stage)),
                    );
                }
                Verdict::NotYet { waiting, given, why } => {
                    let why = Why::waiting(why);
                    self.refused.extend(waiting.into_iter().map(|pod| (pod, why.clone())));
                    self.held_back.extend(given);
                }
                Verdict::Together { members, workload, given } => {
                    waiting.push((Waiting { members, given }, *workload));
                }
            }
        }
        waiting
    }

    /// A pod by itself: what it waits for, if anything.
    fn apart(&mut self, pod: &Arc<Pod>, stage: Stage) -> Option<(Waiting, Workload)> {
        let pod = Arc::clone(pod);
        match stage {
            Stage::Over => None,
            Stage::Unclaimed(claim) => {
                let waited_ms = self.snapshot.now_ms.saturating_sub(created(&pod.metadata));
                if waited_ms > CLAIMS_MADE_MS {
                    let why = format!(
                        "its claim {claim} has not been made: the claim or the template that it names is not there"
                    );
                    self.refused.push((pod, Why::waiting(why)));
                }
                None
            }
            Stage::Held(gate) => {
                let why = format!("waits at the gate {gate}, which somebody else opens");
                self.refused.push((pod, Why::waiting(why)));
                None
            }
            Stage::Past | Stage::Open => {
                self.settled.extend(Some(pod).filter(|pod| tell::is_told_to_wait(pod)));
                None
            }
            Stage::HandedBack(node) => {
                self.handed_back.push((pod, node));
                None
            }
            Stage::Halfway => {
                self.held_back.push(pod);
                None
            }
            Stage::Ready => {
                self.ready.push(pod);
                None
            }
            Stage::Refused(why) => {
                self.refused.push((pod, Why::unfit(&why)));
                None
            }
            Stage::Waits(claims, workload) => {
                let members = vec![Member { pod, claims }];
                Some((Waiting { members, given: Vec::new() }, *workload))
            }
        }
    }

    fn enter(&mut self, id: WorkloadId, entry: Entry, rules: &Rules<'_>) {
        match entry {
            Entry::Waits(waiting, workload) => {
                self.snapshot.submit(Arc::new(Workload { id, ..workload }));
                self.waiting.insert(id, waiting);
            }
            Entry::Holds(holder) => {
                let held = self.hold(id, &holder, rules);
                let is_wrong = held.is_err() || holder.is_in_doubt;
                self.strays.extend(held.err().map(|why| (holder.name(), why)));
                if is_wrong {
                    // Nobody else is put onto cards of which the book is wrong.
                    for one in &holder.held {
                        let _known = self.snapshot.set_aside(one.gpu, true);
                    }
                    self.keep_back(&holder);
                }
                self.holders.insert(id, holder);
            }
        }
    }

    /// Whoever has not started yet with what is wrong gives it back.
    fn keep_back(&mut self, holder: &Holder) {
        let Some(pod) = holder.pod.as_ref().filter(|pod| is_gated(pod)) else { return };
        self.ready.retain(|ready| key(&ready.metadata) != key(&pod.metadata));
        self.held_back.push(Arc::clone(pod));
    }

    /// Puts a holder where it is.
    fn hold(&mut self, id: WorkloadId, holder: &Holder, rules: &Rules<'_>) -> Result<(), String> {
        for one in &holder.held {
            let mode = rules.mode(one);
            self.snapshot.set_mode(one.gpu, mode).or_else(|refusal| {
                self.is_in(one.gpu, mode).then_some(()).ok_or_else(|| refusal.to_string())
            })?;
        }
        let seats = holder.seats();
        let mut workload = holder.workload(id, &rules.kept);
        self.snapshot.submit(Arc::new(workload.clone()));
        let mut placed = self.snapshot.place(id, &seats, u64::MAX);
        if matches!(placed, Err(Refusal::Cpu { .. } | Refusal::NodeMemory { .. })) {
            // The node has shrunk below what runs on it: the cards are what we answer for.
            workload.demand = Demand::default();
            self.snapshot.submit(Arc::new(workload));
            placed = self.snapshot.place(id, &seats, u64::MAX);
        }
        self.snapshot.runs_since(id, holder.since_ms());
        if placed.is_err() {
            self.snapshot.withdraw(id);
        } else if let Some(by_ms) = holder.leaves_by_ms(self.snapshot.now_ms) {
            let _it_runs = self.snapshot.ask_to_leave(id, by_ms);
        }
        placed.map_err(|refusal| refusal.to_string())
    }

    /// The pod of a number, as namespace and name; of a gang the first.
    pub(super) fn pod(&self, id: WorkloadId) -> Option<String> {
        let waits = self.waiting.get(&id).and_then(|waiting| waiting.members.first());
        let holds = || self.holders.get(&id).map(Holder::name);
        let (namespace, name) = waits.map(|member| key(&member.pod.metadata)).or_else(holds)?;
        Some(format!("{namespace}/{name}"))
    }

    fn is_in(&self, gpu: GpuId, mode: SharingMode) -> bool {
        let node = self.snapshot.fleet().node(gpu.node);
        node.and_then(|node| node.gpus().get(usize::from(gpu.index)))
            .is_some_and(|found| found.mode() == mode)
    }
}

/// Whether nobody before it waits for one of its claims: pods that share one are given it once, and the others go where it is.
fn is_first_to_ask(entry: &Entry, asked: &mut BTreeSet<Key>) -> bool {
    let Entry::Waits(waiting, _) = entry else { return true };
    let claims = waiting.members.iter().flat_map(|member| &member.claims);
    let keys: BTreeSet<Key> = claims.map(|(claim, _)| key(&claim.metadata)).collect();
    let is_first = keys.is_disjoint(asked);
    asked.extend(keys);
    is_first
}

/// What each node has for pods whose claims we give, and for whoever holds: all but what other pods take that have a node.
fn free(seen: &Observation, users: &Users) -> BTreeMap<String, Host> {
    let of_node = |node: &Arc<k8s_openapi::api::core::v1::Node>| {
        Some((node.metadata.name.clone()?, host::allocatable(node)))
    };
    let mut free: BTreeMap<String, Host> = seen.nodes.iter().filter_map(of_node).collect();
    for pod in seen.pods.values().filter(|pod| !is_over(pod) && !holder::is_one(seen, users, pod)) {
        let by_claims =
            || seen.claims_of(pod).into_iter().flatten().find_map(|claim| node_of_claim(claim));
        let Some(node) = node_of(pod).map(str::to_owned).or_else(by_claims) else { continue };
        if let Some(left) = free.get_mut(&node) {
            *left = host::less(*left, host::asked(pod));
        }
    }
    free
}
