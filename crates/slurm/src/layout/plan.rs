//! Which cards should become what, from what is asked and what there is: one card after the other, each time the
//! one that serves most, those of idle nodes first. Few change, not provably the fewest. Pure.

use std::collections::{BTreeMap, BTreeSet};

use model::Catalogue;
use serde::{Deserialize, Serialize};

use super::card::{Becomes, Card, CardLayout};
use super::demand::Demand;
use super::packing::Packing;

/// A node that may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCards {
    /// Its name.
    pub name: String,
    /// Jobs on it.
    pub jobs: u64,
    /// Its cards.
    pub cards: Vec<Card>,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Nodes that change, in this order.
    pub nodes: Vec<NodePlan>,
    /// What is asked for and cannot be had on these nodes, by type.
    #[serde(default)]
    pub unmet: BTreeMap<String, u64>,
}

/// What is to be done to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlan {
    /// Its name.
    pub node: String,
    /// Jobs that were on it, which will be waited for.
    pub jobs: u64,
    /// Its cards that change.
    pub cards: Vec<CardPlan>,
}

/// What is to be done to a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardPlan {
    /// Its UUID.
    pub gpu: String,
    /// Number of its device file.
    pub minor: u32,
    /// How it is divided now.
    pub was: CardLayout,
    /// How it is to be divided.
    pub becomes: CardLayout,
    /// Why.
    pub because: String,
}

impl NodePlan {
    /// What its cards are to become.
    pub fn becomes(&self) -> Vec<Becomes> {
        let one = |card: &CardPlan| (card.gpu.clone(), card.becomes.clone());
        self.cards.iter().map(one).map(|(gpu, layout)| Becomes { gpu, layout }).collect()
    }

    /// What its cards are now.
    pub fn was(&self) -> Vec<Becomes> {
        let one = |card: &CardPlan| (card.gpu.clone(), card.was.clone());
        self.cards.iter().map(one).map(|(gpu, layout)| Becomes { gpu, layout }).collect()
    }
}

/// Finds the changes.
///
/// * `shard_mib` — device memory that one shard stands for; `None` where Slurm has no shards. Where it has
///   some, a node gets instances of one type only, see `mixes`.
pub fn plan(
    nodes: &[NodeCards],
    demand: &Demand,
    shard_mib: Option<u64>,
    catalogue: &Catalogue,
) -> Plan {
    let mut packing = Packing::new(nodes, demand, shard_mib, catalogue);
    while let Some(change) = packing.best() {
        packing.take(change);
    }
    packing.into_plan()
}

/// Whether cards with these layouts have instances of several types. With `gres/shard`, devices of a type that
/// stands behind one without shards are given to nobody, though jobs for them run (measured, 22.05).
pub(super) fn mixes<'a>(layouts: impl Iterator<Item = &'a CardLayout>) -> bool {
    layouts.flat_map(types).collect::<BTreeSet<&str>>().len() > 1
}

/// Types of a layout's instances.
pub(super) fn types(layout: &CardLayout) -> impl Iterator<Item = &str> {
    let instances = match layout {
        CardLayout::Whole => &[][..],
        CardLayout::Mig(instances) => instances,
    };
    instances.iter().map(|(kind, _)| kind.as_str())
}
