//! One cycle's decisions: from what is observed to what is to be written. Pure; the engine decides, and its check has the last word.

use std::sync::Arc;

use engine::Planner;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use model::{Action, Policy, Refusal, Seat, SharingMode, WorkloadId};

use super::allocation;
use super::observation::{Key, Observation, is_over, key};
use super::tried::Tried;
use super::world::World;

/// Tenants of a card where the policy sets no number: 48 as under MPS (NVIDIA MPS guide, client limits).
const TENANTS_MAX: u8 = 48;

/// Something to write, in one attempt. What came of it the next cycle sees.
#[derive(Clone, Debug)]
pub enum Act {
    /// Give a pod's claims their devices, one after the other, and then open its gate.
    Give {
        /// The pod.
        pod: Arc<Pod>,
        /// Its claims with what each is given.
        claims: Vec<(Arc<ResourceClaim>, AllocationResult)>,
    },
    /// Open the gate of a pod whose claims have been given devices.
    Open {
        /// The pod.
        pod: Arc<Pod>,
    },
    /// Take back what nobody uses any more.
    TakeBack {
        /// The claim.
        claim: Arc<ResourceClaim>,
    },
    /// Say why a pod waits.
    Tell {
        /// The pod.
        pod: Arc<Pod>,
        /// Why.
        why: Why,
    },
}

/// Why a pod waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The fleet, or a rule, in amounts.
    Refused(Refusal),
    /// It asks for what cannot be granted.
    Unfit(String),
}

/// What a cycle came to.
#[derive(Debug, Default)]
pub struct Decided {
    /// What to write, in order.
    pub acts: Vec<Act>,
    /// What is wrong with the book or the plan, for whoever runs the controller.
    pub alarms: Vec<String>,
}

/// Decides on what is observed.
///
/// * `tried` — nodes that pods have been handed back from, to which this cycle's are added.
/// * `now` — the moment; `share_id` — gives a new UUID for each share of a card.
pub fn decide(
    seen: &Observation,
    planner: &mut Planner,
    tried: &mut Tried,
    now: &Time,
    mut share_id: impl FnMut() -> String,
) -> Decided {
    let now_ms = u64::try_from(now.0.as_millisecond()).unwrap_or_default();
    let world = World::of(seen, tried, tenants_max(planner.policy()), now_ms);
    let mut decided = Decided::default();
    decided.acts.extend(world.ready.iter().map(|pod| Act::Open { pod: Arc::clone(pod) }));
    decided.acts.extend(unused(seen).map(|claim| Act::TakeBack { claim }));
    let tells = world
        .refused
        .iter()
        .map(|(pod, why)| Act::Tell { pod: Arc::clone(pod), why: Why::Unfit(why.clone()) });
    decided.acts.extend(tells);
    let strays = world
        .strays
        .iter()
        .map(|((namespace, name), why)| format!("claim {namespace}/{name}: {why}"));
    decided.alarms.extend(strays);
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
        if let Action::Place { workload, seats } = &step.action {
            match give(&world, *workload, seats, now, &mut share_id) {
                Ok((act, uid, node)) => {
                    tried.note(&uid, &node, now_ms);
                    decided.acts.push(act);
                }
                Err(why) => decided.alarms.push(format!("{workload}: {why}")),
            }
        }
    }
    let told = plan.waiting.iter().filter_map(|(id, refusal)| {
        let waiting = world.waiting.get(id)?;
        Some(Act::Tell { pod: Arc::clone(&waiting.pod), why: Why::Refused(refusal.clone()) })
    });
    decided.acts.extend(told);
    decided
}

fn give(
    world: &World,
    id: WorkloadId,
    seats: &[Seat],
    now: &Time,
    share_id: &mut impl FnMut() -> String,
) -> Result<(Act, String, String), String> {
    let waiting = world.waiting.get(&id).ok_or("no such pod waits")?;
    let seat = seats.first().ok_or("it has no seat")?;
    let given = allocation::of(waiting, seat, &world.machines, now, share_id)?;
    let claims = waiting.claims.iter().map(|(claim, _)| Arc::clone(claim)).zip(given).collect();
    let node = world.machines.fleet.node(seat.node).map_or("", model::Node::name).to_owned();
    let uid = waiting.pod.metadata.uid.clone().unwrap_or_default();
    Ok((Act::Give { pod: Arc::clone(&waiting.pod), claims }, uid, node))
}

/// Claims that hold devices of ours, that nobody has reserved, and that no pod names which is not over.
fn unused(seen: &Observation) -> impl Iterator<Item = Arc<ResourceClaim>> {
    let live = seen.pods.values().filter(|pod| !is_over(pod));
    let named: std::collections::BTreeSet<Key> = live
        .flat_map(|pod| seen.claims_of(pod))
        .flatten()
        .map(|claim| key(&claim.metadata))
        .collect();
    let free = seen.claims.values().filter(move |claim| {
        let status = claim.status.as_ref();
        let reserved = status
            .is_some_and(|status| status.reserved_for.as_ref().is_some_and(|all| !all.is_empty()));
        super::held::holds_ours(claim) && !reserved && !named.contains(&key(&claim.metadata))
    });
    free.cloned()
}

/// The most tenants that the policy allows on a card in any mode.
fn tenants_max(policy: &Policy) -> u8 {
    let of_modes = policy
        .modes
        .iter()
        .filter(|mode| !matches!(mode, SharingMode::Exclusive | SharingMode::Mig));
    of_modes.map(|mode| mode.tenants_max()).max().unwrap_or(TENANTS_MAX)
}
