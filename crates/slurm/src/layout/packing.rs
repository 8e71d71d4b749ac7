//! The search for a plan: one card after the other, the one whose change serves most of what is missing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use model::{Catalogue, GpuModel, MigGeometry};

use super::card::{Card, CardLayout};
use super::demand::{Asked, Demand};
use super::plan::{CardPlan, NodeCards, NodePlan, Plan, types};

/// Parts of a card by which types are weighed: a multiple of 4 and 8, the numbers of memory slices.
const CARD: u64 = 840;
/// Whole cards of whatever type.
const ANY: &str = "gpu";

/// A card of a node, by their positions.
type At = (usize, usize);

/// A card that becomes something, and what that is worth.
pub(super) struct Change {
    at: At,
    becomes: CardLayout,
    worth: (u64, bool, u64, bool, u64, u64, Reverse<At>),
}

/// What is asked, what there is, and what has been changed so far.
pub(super) struct Packing<'a> {
    nodes: &'a [NodeCards],
    models: BTreeMap<&'a str, &'a GpuModel>,
    asked: BTreeMap<String, Asked>,
    has: BTreeMap<String, u64>,
    weights: BTreeMap<String, u64>,
    /// Types of whole cards.
    whole: BTreeSet<&'a str>,
    /// Whether a node may have instances of one type only.
    one_type: bool,
    /// What has become of cards, and why.
    done: BTreeMap<At, (CardLayout, String)>,
    /// The others, by kind: of one kind the first is as good as any.
    left: BTreeMap<Kind<'a>, BTreeSet<At>>,
}

impl<'a> Packing<'a> {
    pub(super) fn new(
        nodes: &'a [NodeCards],
        demand: &Demand,
        shard_mib: Option<u64>,
        catalogue: &'a Catalogue,
    ) -> Self {
        let cards = || nodes.iter().flat_map(|node| &node.cards);
        let named = cards().filter_map(|card| {
            let model = catalogue.get(card.model.as_deref()?)?;
            Some((model.name.as_str(), &**model))
        });
        let models: BTreeMap<&str, &GpuModel> = named.collect();
        let memory_mib = models.values().map(|model| model.memory_mib).min().unwrap_or(0);
        let mut has = BTreeMap::new();
        for card in cards() {
            add(&mut has, &offers(card, &card.layout));
        }
        let mut packing = Self {
            nodes,
            asked: asked(demand, memory_mib / shard_mib.unwrap_or(1).max(1)),
            has,
            weights: weights(nodes, &models),
            models,
            whole: cards().map(|card| card.kind.as_str()).collect(),
            one_type: shard_mib.is_some(),
            done: BTreeMap::new(),
            left: BTreeMap::new(),
        };
        (0..nodes.len()).for_each(|node| packing.enter(node));
        packing
    }

    /// Enters a node's cards that may yet be changed.
    fn enter(&mut self, node: usize) {
        for (at, kind) in self.kinds(node) {
            self.left.entry(kind).or_default().insert(at);
        }
    }

    /// Takes them out, before any of them changes.
    fn leave(&mut self, node: usize) {
        for (at, kind) in self.kinds(node) {
            if let Some(same) = self.left.get_mut(&kind) {
                same.remove(&at);
                if same.is_empty() {
                    self.left.remove(&kind);
                }
            }
        }
    }

    fn kinds(&self, node: usize) -> Vec<(At, Kind<'a>)> {
        let changes = self.done.range((node, 0)..(node + 1, 0)).next().is_some();
        let NodeCards { jobs, cards, .. } = &self.nodes[node];
        let kind = |(card, it): (usize, &'a Card)| {
            let at = (node, card);
            let model = it.model.as_deref().filter(|_| !self.done.contains_key(&at))?;
            let beside = self.beside(at);
            Some((at, Kind { model, layout: &it.layout, beside, jobs: *jobs, changes }))
        };
        cards.iter().enumerate().filter_map(kind).collect()
    }

    fn weight(&self, kind: &str) -> u64 {
        self.weights.get(kind).copied().unwrap_or(0)
    }

    /// What is missing of each type.
    fn missing(&self, has: &BTreeMap<String, u64>) -> BTreeMap<&str, u64> {
        let count = |kind: &str| has.get(kind).copied().unwrap_or(0);
        let mut missing = BTreeMap::new();
        // Cards that are asked for by type are not there for those who take any.
        let mut spoken_for = 0;
        for (kind, asked) in &self.asked {
            if self.whole.contains(kind.as_str()) {
                spoken_for += asked.all().min(count(kind));
            }
        }
        for (kind, asked) in &self.asked {
            let need = asked.all();
            let there = match kind.as_str() {
                ANY => count(ANY).saturating_sub(spoken_for),
                kind => count(kind),
            };
            if there < need {
                missing.insert(kind.as_str(), need - there);
            }
        }
        missing
    }

    fn weighed(&self, has: &BTreeMap<String, u64>) -> u64 {
        self.missing(has).iter().map(|(kind, count)| self.weight(kind) * count).sum()
    }

    /// The change that serves most of what is missing; of equals the one of an idle node, then the one
    /// that destroys least.
    pub(super) fn best(&self) -> Option<Change> {
        let before = self.weighed(&self.has);
        if before == 0 {
            return None;
        }
        let mut choices: BTreeMap<_, Option<Choice>> = BTreeMap::new();
        let mut best: Option<Change> = None;
        for (kind, cards) in &self.left {
            let Some(at) = cards.first().copied() else { continue };
            let card = &self.nodes[at.0].cards[at.1];
            let choice = choices
                .entry((kind.model, kind.layout, &kind.beside))
                .or_insert_with(|| self.choice(card, &kind.beside, before));
            let Some(choice) = choice.clone() else { continue };
            let few = |number: u64| u64::MAX - number;
            let Choice { becomes, gain, lost, useful } = choice;
            let (idle, jobs) = (kind.jobs == 0, few(kind.jobs));
            let worth = (gain, idle, few(lost), kind.changes, jobs, useful, Reverse(at));
            if best.as_ref().is_none_or(|best| worth > best.worth) {
                best = Some(Change { at, becomes, worth });
            }
        }
        best
    }

    /// Types of instances on the other cards of a node, where they matter.
    fn beside(&self, at: At) -> BTreeSet<String> {
        let cards = self.nodes[at.0].cards.iter().enumerate();
        let others = cards.filter(|(card, _)| self.one_type && *card != at.1);
        let layout = |(card, it): (usize, &'a Card)| {
            self.done.get(&(at.0, card)).map_or(&it.layout, |(becomes, _)| becomes)
        };
        others.map(layout).flat_map(types).map(str::to_owned).collect()
    }

    /// Whether a card may become this beside what others of its node are.
    fn goes(&self, becomes: &CardLayout, beside: &BTreeSet<String>) -> bool {
        let all: BTreeSet<&str> = beside.iter().map(String::as_str).chain(types(becomes)).collect();
        !self.one_type || all.len() <= beside.len().max(1)
    }

    /// The best that cards of one kind could become.
    fn choice(&self, card: &Card, beside: &BTreeSet<String>, before: u64) -> Option<Choice> {
        let geometry = self.models.get(card.model.as_deref()?)?.mig.as_ref()?;
        let mut rest = self.has.clone();
        remove(&mut rest, &offers(card, &card.layout));
        let layouts = geometry.layouts();
        let instances = layouts.iter().map(|layout| named(geometry, layout.instances()));
        let all = instances.map(CardLayout::Mig).chain([CardLayout::Whole]);
        let mut best: Option<Choice> = None;
        let other = |it: &CardLayout| *it != card.layout && self.goes(it, beside);
        for becomes in all.filter(other) {
            let mut has = rest.clone();
            let offered = offers(card, &becomes);
            add(&mut has, &offered);
            let gain = before.saturating_sub(self.weighed(&has));
            let lost = self.lost(card, &becomes);
            let choice = Choice { becomes, gain, lost, useful: self.useful(&offered) };
            if gain > 0 && best.as_ref().is_none_or(|best| choice.worth() > best.worth()) {
                best = Some(choice);
            }
        }
        best
    }

    /// What somebody asks for; and what nobody asks for is better than nothing.
    fn useful(&self, offered: &[String]) -> u64 {
        let wanted = offered.iter().filter(|kind| self.asked.contains_key(*kind));
        let sum = |all: &mut dyn Iterator<Item = &String>| -> u64 {
            all.map(|kind| self.weight(kind)).sum()
        };
        sum(&mut wanted.into_iter()) * CARD * 2 + sum(&mut offered.iter())
    }

    /// What of a card goes away.
    fn lost(&self, card: &Card, becomes: &CardLayout) -> u64 {
        let weight = |kind: &str| self.weight(kind);
        match (&card.layout, becomes) {
            (CardLayout::Whole, CardLayout::Whole) => 0,
            (CardLayout::Whole, CardLayout::Mig(_)) => CARD,
            (CardLayout::Mig(was), CardLayout::Whole) => {
                was.iter().map(|(kind, _)| weight(kind)).sum()
            }
            (CardLayout::Mig(was), CardLayout::Mig(now)) => {
                let gone = was.iter().filter(|one| !now.contains(one));
                gone.map(|(kind, _)| weight(kind)).sum()
            }
        }
    }

    pub(super) fn take(&mut self, change: Change) {
        let Change { at, becomes, .. } = change;
        let nodes = self.nodes;
        let card = &nodes[at.0].cards[at.1];
        let because = self.because(card, &becomes, nodes[at.0].jobs);
        remove(&mut self.has, &offers(card, &card.layout));
        add(&mut self.has, &offers(card, &becomes));
        self.leave(at.0);
        self.done.insert(at, (becomes, because));
        self.enter(at.0);
    }

    fn because(&self, card: &Card, becomes: &CardLayout, jobs: u64) -> String {
        let missing = self.missing(&self.has);
        let given: BTreeSet<String> = offers(card, becomes).into_iter().collect();
        let served = missing.iter().filter(|(kind, _)| given.contains(**kind));
        let words = served.map(|(kind, count)| {
            let asked = self.asked.get(*kind).cloned().unwrap_or_default();
            let jobs = asked.jobs.join(", ");
            let by = if jobs.is_empty() { String::new() } else { format!(" by jobs {jobs}") };
            let kind = if *kind == ANY { "whole cards" } else { kind };
            format!("{} × {kind} asked{by}, {count} missing", asked.all())
        });
        let words: Vec<String> = words.collect();
        let node = match jobs {
            0 => "the node is idle".to_owned(),
            1 => "1 job on the node ends first".to_owned(),
            jobs => format!("{jobs} jobs on the node end first"),
        };
        format!("{}; {node}", words.join("; "))
    }

    pub(super) fn into_plan(self) -> Plan {
        let nodes = self.nodes;
        let missing = self.missing(&self.has);
        let unmet = missing.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect();
        let mut plan = Plan { nodes: Vec::new(), unmet };
        for ((at, card), (becomes, because)) in self.done {
            let (node, card) = (&nodes[at], &nodes[at].cards[card]);
            let change = CardPlan {
                gpu: card.gpu.clone(),
                minor: card.minor,
                was: card.layout.clone(),
                becomes,
                because,
            };
            match plan.nodes.last_mut().filter(|last| last.node == node.name) {
                Some(last) => last.cards.push(change),
                None => {
                    let (name, jobs) = (node.name.clone(), node.jobs);
                    plan.nodes.push(NodePlan { node: name, jobs, cards: vec![change] });
                }
            }
        }
        // Idle nodes are done first: nobody waits for them.
        plan.nodes.sort_by_key(|node| node.jobs);
        plan
    }
}

/// What makes one card as good as another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind<'a> {
    model: &'a str,
    layout: &'a CardLayout,
    /// Types of instances on the node's other cards.
    beside: BTreeSet<String>,
    /// Jobs on its node.
    jobs: u64,
    /// Whether its node changes anyway.
    changes: bool,
}

/// What cards of one kind could become.
#[derive(Clone)]
struct Choice {
    becomes: CardLayout,
    gain: u64,
    lost: u64,
    useful: u64,
}

impl Choice {
    fn worth(&self) -> (u64, u64, u64) {
        (self.gain, u64::MAX - self.lost, self.useful)
    }
}

fn named(geometry: &MigGeometry, instances: &[(model::ProfileIndex, u8)]) -> Vec<(String, u8)> {
    let name = |index| geometry.profile(index).map_or_else(String::new, |it| it.name.clone());
    instances.iter().map(|(profile, start)| (name(*profile), *start)).collect()
}

/// Types that a card offers, each as often as it is there.
fn offers(card: &Card, layout: &CardLayout) -> Vec<String> {
    match layout {
        CardLayout::Whole => vec![card.kind.clone(), ANY.to_owned()],
        CardLayout::Mig(instances) => instances.iter().map(|(kind, _)| kind.clone()).collect(),
    }
}

/// What is asked for, shards in whole cards.
fn asked(demand: &Demand, shards_per_card: u64) -> BTreeMap<String, Asked> {
    let mut asked = demand.types.clone();
    let shards = &demand.shards;
    if shards.all() > 0 {
        let cards = |shards: u64| shards.div_ceil(shards_per_card.max(1));
        let any = asked.entry(ANY.to_owned()).or_default();
        any.waiting += cards(shards.all()) - cards(shards.running);
        any.running += cards(shards.running);
        any.jobs.extend(shards.jobs.iter().cloned());
    }
    asked
}

/// What part of a card each type is.
fn weights(nodes: &[NodeCards], models: &BTreeMap<&str, &GpuModel>) -> BTreeMap<String, u64> {
    let cards = nodes.iter().flat_map(|node| &node.cards);
    let whole = cards.map(|card| card.kind.clone()).chain([ANY.to_owned()]);
    let mut weights: BTreeMap<String, u64> = whole.map(|kind| (kind, CARD)).collect();
    for geometry in models.values().filter_map(|model| model.mig.as_ref()) {
        let all = u64::from(geometry.memory_slices.max(1));
        for profile in &geometry.profiles {
            let part = u64::from(profile.memory_slices) * CARD / all;
            weights.insert(profile.name.clone(), part);
        }
    }
    weights
}

fn add(has: &mut BTreeMap<String, u64>, kinds: &[String]) {
    for kind in kinds {
        *has.entry(kind.clone()).or_default() += 1;
    }
}

fn remove(has: &mut BTreeMap<String, u64>, kinds: &[String]) {
    for kind in kinds {
        if let Some(count) = has.get_mut(kind) {
            *count = count.saturating_sub(1);
        }
    }
}
