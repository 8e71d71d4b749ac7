//! Whether claims could ever be given what they ask, by the cards that are published and as if nobody held any of them: what the
//! webhook asks before a pod comes in. Pure; the engine says what fits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimSpec, ResourceSlice,
};
use model::{
    Demand, Fleet, Gpu, GpuAsk, GpuDemand, GpuId, MigProfile, NodeId, Owner, Policy, Refusal,
    Snapshot, Workload, WorkloadId,
};

use super::ask::Classes;
use super::fleet::Machines;
use super::stage;

/// Profiles and models that a sentence lists.
const LISTED_MAX: usize = 12;

/// Our classes and cards, all of them idle and in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prospect {
    classes: Classes,
    idle: Snapshot,
}

impl Prospect {
    /// By classes and by slices of our driver.
    pub(crate) fn of(classes: &[Arc<DeviceClass>], slices: &[Arc<ResourceSlice>]) -> Self {
        let pools: BTreeSet<&str> =
            slices.iter().map(|slice| slice.spec.pool.name.as_str()).collect();
        let node = |name: &str| {
            let mut node = Node::default();
            node.metadata.name = Some(name.to_owned());
            Arc::new(node)
        };
        let nodes: Vec<Arc<Node>> = pools.into_iter().map(node).collect();
        let fleet = Machines::of(&nodes, slices, &BTreeMap::new()).fleet;
        Self { classes: Classes::of(classes), idle: in_use(fleet) }
    }

    /// Whether a claim is of one of our classes.
    pub(crate) fn concerns(&self, claim: &ResourceClaimSpec) -> bool {
        self.classes.concern(claim)
    }

    /// Looks for what is wrong with a claim by itself.
    ///
    /// # Errors
    /// What we cannot grant, in words for whoever wrote it.
    pub(crate) fn is_sound(&self, claim: &ResourceClaimSpec) -> Result<(), String> {
        self.demand(std::slice::from_ref(claim)).map(drop)
    }

    /// Looks whether a pod's claims could all be given what they ask, on one node. Where no card is published, that is not known,
    /// and nothing stands in the way.
    ///
    /// # Errors
    /// What stands in the way, with amounts and the nearest thing that could be had.
    pub(crate) fn could_be_given(
        &self,
        claims: &[ResourceClaimSpec],
        namespace: &str,
        policy: &Policy,
    ) -> Result<(), String> {
        let gpus = self.demand(claims)?;
        if self.cards().next().is_none() {
            return Ok(());
        }
        match self.never(&gpus, namespace, policy) {
            Some(because) => Err(self.words(&because, &gpus, (namespace, policy))),
            None => Ok(()),
        }
    }

    /// Why no node could ever give that.
    fn never(&self, gpus: &GpuDemand, namespace: &str, policy: &Policy) -> Option<Refusal> {
        let id = WorkloadId(0);
        let demand = Demand { gpus: Some(gpus.clone()), ..Demand::default() };
        let workload = Workload::new(id, String::new(), Owner::new(namespace), demand);
        let mut snapshot = self.idle.clone();
        snapshot.submit(Arc::new(workload));
        match engine::plan(&snapshot, policy).waiting.remove(&id) {
            Some(Refusal::Never { because }) => Some(*because),
            Some(_) | None => None,
        }
    }

    fn demand(&self, claims: &[ResourceClaimSpec]) -> Result<GpuDemand, String> {
        let one = |spec: &ResourceClaimSpec| {
            let claim = ResourceClaim { spec: spec.clone(), ..ResourceClaim::default() };
            let asked = self.classes.asked(&claim)?;
            Ok((Arc::new(claim), asked))
        };
        let asked = claims.iter().map(one).collect::<Result<Vec<_>, String>>()?;
        stage::demand(&asked)
    }

    fn cards(&self) -> impl Iterator<Item = &Gpu> {
        self.idle.fleet().nodes().iter().flat_map(|node| node.gpus())
    }

    /// What was asked, what there is, and what to ask instead.
    fn words(&self, refusal: &Refusal, asked: &GpuDemand, by: (&str, &Policy)) -> String {
        if refusal.is_of_limits() {
            return format!("{refusal}; ask for less, or have the quota raised");
        }
        let mut lacking = lacking(refusal).clone();
        let instead = self.instead(&lacking, asked, by);
        // A way of sharing may count a CUDA context on top; nobody has asked for that.
        if let (Refusal::GpuMemory { asked_mib, .. }, Some(mib)) = (&mut lacking, memory_of(asked))
        {
            *asked_mib = mib;
        }
        let count = asked.count;
        let each = if count == 1 { String::new() } else { format!(" (for each of {count} cards)") };
        format!(
            "no card of this cluster could ever carry that, even idle: {lacking}{each}; {instead}"
        )
    }

    /// The nearest thing that could be had.
    fn instead(&self, lacking: &Refusal, asked: &GpuDemand, by: (&str, &Policy)) -> String {
        match lacking {
            Refusal::GpuMemory { asked_mib, offered_mib } => {
                let most_mib = self.most_mib(asked, (*asked_mib, *offered_mib), by);
                let instance = self.all_profiles().max_by_key(|profile| profile.memory_mib);
                let instance = instance.map(|it| format!(", or the MIG profile {}", it.name));
                let instance = instance.unwrap_or_default();
                format!("ask at most {most_mib} MiB of a card, or whole cards{instance}")
            }
            Refusal::MigProfile { .. } | Refusal::MigPlacement { .. } => match self.profiles() {
                profiles if profiles.is_empty() => {
                    "no card here can be divided by MIG; ask a part of one by its memory".to_owned()
                }
                profiles => format!("profiles here are {}", profiles.join(", ")),
            },
            Refusal::BelowContext { context_mib, .. } => {
                format!("ask more than {context_mib} MiB, which a CUDA context alone takes")
            }
            Refusal::GpuModel { .. } => format!("models here are {}", self.models().join(", ")),
            Refusal::GpuCount { offered, .. } => {
                format!("ask at most {offered} cards in a pod, and make more pods")
            }
            Refusal::Compute { offered_milli, .. } => {
                format!("ask at most {offered_milli}/1000 of a card's compute")
            }
            Refusal::NoMode { .. } | Refusal::Mode { .. } => {
                "leave `sharing` out of GpuShare, or name a way that is offered".to_owned()
            }
            Refusal::Cpu { .. }
            | Refusal::NodeMemory { .. }
            | Refusal::NoSuchPlace { .. }
            | Refusal::NotAccepted
            | Refusal::SetAside
            | Refusal::Occupied { .. }
            | Refusal::Tenants { .. }
            | Refusal::TooSlow { .. }
            | Refusal::SlowsOthers { .. }
            | Refusal::Quota { .. }
            | Refusal::ArrayLimit { .. }
            | Refusal::Gang { .. }
            | Refusal::GangTooLarge { .. }
            | Refusal::KeptForHead { .. }
            | Refusal::BehindHead { .. }
            | Refusal::NotWaiting { .. }
            | Refusal::MakingRoom { .. }
            | Refusal::NotRunning { .. }
            | Refusal::BeyondDepth { .. }
            | Refusal::Never { .. } => "ask for less".to_owned(),
        }
    }

    /// The most memory of a card that can be asked: all that the best has or, where each way of sharing counts something on
    /// top, that much less.
    fn most_mib(
        &self,
        asked: &GpuDemand,
        (counted_mib, offered_mib): (u64, u64),
        (owner, policy): (&str, &Policy),
    ) -> u64 {
        let GpuAsk::Fraction { compute_milli, memory_mib } = asked.each else { return offered_mib };
        let each = GpuAsk::Fraction { compute_milli, memory_mib: offered_mib };
        match self.never(&GpuDemand { each, ..asked.clone() }, owner, policy) {
            None => offered_mib,
            Some(_) => offered_mib.saturating_sub(counted_mib.saturating_sub(memory_mib)),
        }
    }

    fn profiles(&self) -> Vec<String> {
        let names: BTreeSet<String> =
            self.all_profiles().map(|profile| profile.name.clone()).collect();
        names.into_iter().take(LISTED_MAX).collect()
    }

    fn all_profiles(&self) -> impl Iterator<Item = &MigProfile> {
        self.cards().filter_map(|card| card.model().mig.as_ref()).flat_map(|mig| &mig.profiles)
    }

    fn models(&self) -> Vec<String> {
        let names: BTreeSet<String> = self.cards().map(|card| card.model().name.clone()).collect();
        names.into_iter().take(LISTED_MAX).collect()
    }
}

/// A card that is closed now may be opened again.
fn in_use(fleet: Fleet) -> Snapshot {
    let cards = fleet.nodes().iter().zip((0..).map(NodeId)).flat_map(|(found, node)| {
        let cards = found.gpus().iter().zip(0..=u8::MAX);
        cards.map(move |(card, index)| (card.is_set_aside(), GpuId { node, index }))
    });
    let closed: Vec<GpuId> =
        cards.filter(|(is_closed, _)| *is_closed).map(|(_, gpu)| gpu).collect();
    let mut idle = Snapshot::new(fleet, 0);
    for gpu in closed {
        let _known = idle.set_aside(gpu, false);
    }
    idle
}

/// The memory that is asked of each card, if an amount is.
fn memory_of(asked: &GpuDemand) -> Option<u64> {
    match &asked.each {
        GpuAsk::Fraction { memory_mib, .. } => Some(*memory_mib).filter(|mib| *mib > 0),
        GpuAsk::Whole | GpuAsk::Profile(_) => None,
    }
}

/// What the nearest card lacks, where none would do.
fn lacking(refusal: &Refusal) -> &Refusal {
    if let Refusal::GpuCount { offered: 0, because: Some(because), .. } = refusal {
        return lacking(because);
    }
    refusal
}
