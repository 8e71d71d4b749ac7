//! One cycle's decisions: from what is observed to what is to be written. Pure; the engine decides, and its check has the last word.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::Planner;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use k8s_openapi::jiff::Timestamp;
use model::{Action, Reason, Refusal, Seat, WorkloadId};

use super::allocation::{self, Stamp};
use super::observation::{Observation, Users, key, node_of_claim};
use super::templates::{self, Change};
use super::tried::Tried;
use super::world::World;

/// Something to write, in one attempt. What came of it the next cycle sees.
#[derive(Clone, Debug)]
pub enum Act {
    /// Give the claims of pods that start together their devices, and then, if all have theirs, open the pods' gates.
    Give {
        /// The pods.
        members: Vec<Given>,
        /// Pods of their gang that have theirs already.
        given: Vec<Seated>,
    },
    /// Open the gate of a pod whose claims have been given devices.
    Open(Seated),
    /// Take back what nobody uses any more.
    TakeBack {
        /// The claim.
        claim: Arc<ResourceClaim>,
    },
    /// See to a template of claims for asks by resource names.
    Template(Change),
    /// Ask a pod to leave for a more important one.
    Evict {
        /// The pod.
        pod: Arc<Pod>,
        /// When it has to be gone, in ms since 1970.
        by_ms: u64,
        /// For whom, as namespace and name.
        newcomer: String,
    },
    /// Say of a pod that it need not wait any more.
    Settle {
        /// The pod.
        pod: Arc<Pod>,
    },
    /// Say why a pod waits.
    Tell {
        /// The pod.
        pod: Arc<Pod>,
        /// Why.
        why: Why,
    },
}

/// A pod whose claims have been given devices.
#[derive(Clone, Debug)]
pub struct Seated {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The node of its devices.
    pub node: Option<String>,
}

/// What a pod is given.
#[derive(Clone, Debug)]
pub struct Given {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Its claims with what each is given.
    pub claims: Vec<(Arc<ResourceClaim>, AllocationResult)>,
}

impl Seated {
    fn of(seen: &Observation, pod: &Arc<Pod>) -> Self {
        let mut claims = seen.claims_of(pod).into_iter().flatten();
        Self { pod: Arc::clone(pod), node: claims.find_map(|claim| node_of_claim(claim)) }
    }
}

/// Why a pod waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// In one word.
    pub reason: &'static str,
    /// In amounts.
    pub text: String,
}

impl Why {
    /// It fits on some card, but not now.
    pub const WAITING: &str = "Waiting";
    /// It asks for what hotpot does not give, or has come in without being translated.
    pub const UNFIT: &str = "NotSupported";

    /// It asks for what cannot be granted.
    pub fn unfit(text: &str) -> Self {
        Self { reason: Self::UNFIT, text: text.to_owned() }
    }

    /// It might start later.
    pub fn waiting(text: String) -> Self {
        Self { reason: Self::WAITING, text }
    }

    /// As it is where the scheduler has handed a pod back from these nodes: nothing is for ever then.
    fn after(self, nodes: &BTreeSet<String>) -> Self {
        if nodes.is_empty() || self.reason == Self::WAITING {
            return self;
        }
        let nodes = nodes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        Self::waiting(format!(
            "the scheduler has handed it back from {nodes}, tried again later; elsewhere: {}",
            self.text
        ))
    }

    /// The fleet, or a rule.
    fn refused(refusal: &Refusal, world: &World) -> Self {
        let pod =
            |id| world.pod(id).map_or_else(|| "another pod".into(), |name| format!("pod {name}"));
        let text = if let Refusal::MakingRoom { leaving, by_ms } = refusal {
            format!(
                "waits for {leaving} pod(s) of lower priority that were asked to leave, by {} at the latest",
                moment(*by_ms)
            )
        } else if let Refusal::KeptForHead { head, until_ms } = refusal {
            format!(
                "fits only on nodes kept for {}, expected to start at {}",
                pod(*head),
                moment(*until_ms)
            )
        } else if let Refusal::BehindHead { head } = refusal {
            format!("stands behind {}, and the policy lets nobody go ahead", pod(*head))
        } else {
            refusal.to_string()
        };
        let reason = if refusal.is_never() { "NeverFits" } else { Self::WAITING };
        Self { reason, text }
    }
}

/// `2026-01-01T00:01:30Z`.
fn moment(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(
        || "no time that is known".into(),
        |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    )
}

/// What a cycle came to.
#[derive(Debug, Default)]
pub struct Decided {
    /// What to write, in any order.
    pub acts: Vec<Act>,
    /// What is wrong with the book or the plan, for whoever runs the controller.
    pub alarms: Vec<String>,
}

/// Decides on what is observed.
///
/// * `tried` — nodes that pods have been handed back from, to which this cycle's are added.
/// * `stamp` — the moment, and in whose term; `share_id` — gives a new UUID for each share of a card.
pub fn decide(
    seen: &Observation,
    planner: &mut Planner,
    tried: &mut Tried,
    stamp: &Stamp,
    mut share_id: impl FnMut() -> String,
) -> Decided {
    let now_ms = u64::try_from(stamp.at.0.as_millisecond()).unwrap_or_default();
    let world = World::of(seen, tried, &planner.policy().modes, now_ms);
    let mut decided = Decided::default();
    decided.without_plan(seen, &world);
    for (pod, node) in &world.handed_back {
        tried.note(pod.metadata.uid.as_deref().unwrap_or_default(), node, now_ms);
        decided.take_back((seen, &world), std::slice::from_ref(pod));
    }
    decided.acts.extend(templates::changes(seen, &stamp.at).into_iter().map(Act::Template));
    let plan = planner.plan(&world.snapshot);
    let violations = engine::check(&world.snapshot, &plan, planner.policy());
    if !violations.is_empty() {
        // A defect of the planner: nothing of it is carried out.
        decided
            .alarms
            .extend(violations.iter().map(|violation| format!("the plan is wrong: {violation}")));
        return decided;
    }
    for step in &plan.steps {
        match &step.action {
            Action::Place { workload, seats } => {
                match give((seen, &world), *workload, seats, stamp, &mut share_id) {
                    Ok((act, chosen)) => {
                        chosen.iter().for_each(|(uid, node)| tried.note(uid, node, now_ms));
                        decided.acts.push(act);
                    }
                    Err(why) => decided.alarms.push(format!("{workload}: {why}")),
                }
            }
            Action::Preempt { workload, by_ms } => {
                decided.acts.extend(evict(&world, *workload, *by_ms, &step.because));
            }
            // A card's mode is what the shares on it say.
            Action::SetMode { .. } => {}
        }
    }
    for (id, refusal) in &plan.waiting {
        let Some(waiting) = world.waiting.get(id) else { continue };
        let pods = || waiting.members.iter().map(|member| &member.pod);
        let uids = pods().filter_map(|pod| pod.metadata.uid.as_deref());
        let nodes: BTreeSet<String> = uids.flat_map(|uid| tried.passed_over(uid, now_ms)).collect();
        decided.tell(pods(), &Why::refused(refusal, &world).after(&nodes));
        decided.take_back((seen, &world), &waiting.given);
    }
    decided
}

impl Decided {
    /// What follows from the world by itself.
    fn without_plan(&mut self, seen: &Observation, world: &World) {
        self.acts.extend(world.ready.iter().map(|pod| Act::Open(Seated::of(seen, pod))));
        self.acts.extend(unused(seen, &world.users).map(|claim| Act::TakeBack { claim }));
        self.take_back((seen, world), &world.held_back);
        for (pod, why) in &world.refused {
            self.tell([pod], why);
        }
        for pod in &super::missed::pods(seen) {
            self.tell([pod], &Why::unfit(super::missed::WHY));
        }
        let settled = world.settled.iter();
        self.acts.extend(settled.map(|pod| Act::Settle { pod: Arc::clone(pod) }));
        let strays = world.strays.iter();
        self.alarms.extend(
            strays
                .map(|((namespace, name), why)| format!("claim or pod {namespace}/{name}: {why}")),
        );
    }

    fn tell<'a>(&mut self, pods: impl IntoIterator<Item = &'a Arc<Pod>>, why: &Why) {
        let tell = |pod: &Arc<Pod>| Act::Tell { pod: Arc::clone(pod), why: why.clone() };
        self.acts.extend(pods.into_iter().map(tell));
    }

    /// Takes back what pods of a gang were given that cannot start.
    fn take_back(&mut self, (seen, world): (&Observation, &World), pods: &[Arc<Pod>]) {
        let claims = pods.iter().flat_map(|pod| seen.claims_of(pod)).flatten();
        let is_own = |claim: &&Arc<ResourceClaim>| {
            world.users.get(&key(&claim.metadata)).is_none_or(|all| all.len() < 2)
        };
        let ours = claims.filter(is_own).filter(|claim| super::held::count(claim) > 0);
        self.acts.extend(ours.map(|claim| Act::TakeBack { claim: Arc::clone(claim) }));
    }
}

fn evict(world: &World, id: WorkloadId, by_ms: u64, because: &Reason) -> Option<Act> {
    let Reason::MakesRoomFor(newcomer) = because else { return None };
    let pod = world.holders.get(&id)?.pod.clone()?;
    Some(Act::Evict { pod, by_ms, newcomer: world.pod(*newcomer)? })
}

/// The act, and for each pod its UID and the node that it is to go to.
fn give(
    (seen, world): (&Observation, &World),
    id: WorkloadId,
    seats: &[Seat],
    stamp: &Stamp,
    share_id: &mut impl FnMut() -> String,
) -> Result<(Act, Vec<(String, String)>), String> {
    let waiting = world.waiting.get(&id).ok_or("no such pod waits")?;
    let (mut members, mut chosen) = (Vec::new(), Vec::new());
    for (member, seat) in waiting.members.iter().zip(seats) {
        let given = allocation::of(member, seat, &world.machines, stamp, &mut *share_id)?;
        let claims = member.claims.iter().map(|(claim, _)| Arc::clone(claim)).zip(given).collect();
        members.push(Given { pod: Arc::clone(&member.pod), claims });
        let node = world.machines.fleet.node(seat.node).map_or("", model::Node::name).to_owned();
        chosen.push((member.pod.metadata.uid.clone().unwrap_or_default(), node));
    }
    if members.len() < waiting.members.len() {
        return Err("it has fewer seats than members".into());
    }
    let given = waiting.given.iter().map(|pod| Seated::of(seen, pod)).collect();
    Ok((Act::Give { members, given }, chosen))
}

/// Claims that hold devices of ours, that nobody has reserved, and that no pod names which is not over.
fn unused(seen: &Observation, users: &Users) -> impl Iterator<Item = Arc<ResourceClaim>> {
    let free = seen.claims.values().filter(|claim| {
        let status = claim.status.as_ref();
        let reserved = status
            .is_some_and(|status| status.reserved_for.as_ref().is_some_and(|all| !all.is_empty()));
        super::held::count(claim) > 0 && !reserved && !users.contains_key(&key(&claim.metadata))
    });
    free.cloned()
}

#[cfg(test)]
mod tests;
