//! From what Slurm has booked to pots: who holds which part of which GPU, and what is free. Figures come from the
//! nodes' agents; what no agent tells is not known.

use std::collections::BTreeMap;

use simulator::report::harmless;
use slurm::agents::{CardFigures, Figures, Told, catalogue_mib};
use slurm::queue_view::{Device, Holder, NodeView, Portion, QueueView, not_shown};
use slurm::site::Site;

use super::groups::{Agent, Cluster, OfNode};
use super::pot::{Class, OfJob, OnNode, Part, Pot, Sharing, granted};
use super::{Picture, Shown};

const MIB: u64 = 1 << 20;
/// Whom Slurm says that a GPU is in use by, but does not show (slurm.conf manual, `PrivateData=jobs`).
const NOT_SHOWN: &str = "a job not shown";

/// The cluster as a picture.
///
/// * `told` — what agents have told, by node; `None` if none are asked.
/// * `trouble` — why none are.
pub(super) fn picture(
    view: &QueueView,
    site: &Site,
    told: Option<&BTreeMap<String, Told>>,
    trouble: Option<&str>,
) -> Picture {
    let (with, without): (Vec<&NodeView>, Vec<&NodeView>) =
        view.nodes.iter().partition(|node| !node.devices.is_empty());
    let books = Books { view, site, card_mib: card_mib(&with, site) };
    let pots = with.iter().flat_map(|node| {
        let figures = told.and_then(|told| told.get(&node.name)?.as_ref().ok());
        books.pots(node, figures)
    });
    let cluster = Cluster {
        nodes: with.iter().map(|node| of_node(view, node, told)).collect(),
        without_gpus: without.len(),
        waiting: view.jobs.iter().filter(|job| job.waits()).count(),
        trouble: trouble.map(str::to_owned),
        not_shown: not_shown(&view.unread),
    };
    let pots = pots.collect();
    Picture { at_ms: view.now_s * 1000, simulated: false, of: Shown::Cluster(cluster), pots }
}

fn of_node(view: &QueueView, node: &NodeView, told: Option<&BTreeMap<String, Told>>) -> OfNode {
    let agent = match told.map(|told| told.get(&node.name)) {
        None => Agent::NotAsked,
        Some(None) => Agent::Silent("not asked, as the node is down".into()),
        Some(Some(Ok(_))) => Agent::Answers,
        Some(Some(Err(why))) => Agent::Silent(why.clone()),
    };
    OfNode {
        name: harmless(&node.name),
        state: node.state.to_string(),
        out_of_use: node.out_of_use(),
        jobs: view.on_node(&node.name).map(|job| job.name.clone()).collect(),
        cpus: node.cpus,
        cpus_held: node.cpus_held,
        agent,
    }
}

/// Memory of whole cards by their type, where the catalogue knows it.
fn card_mib<'a>(nodes: &[&'a NodeView], site: &Site) -> BTreeMap<&'a str, Option<u64>> {
    let mut known = BTreeMap::new();
    for device in nodes.iter().flat_map(|node| &node.devices) {
        known.entry(device.kind.as_str()).or_insert_with(|| catalogue_mib(&device.kind, site));
    }
    known
}

/// What the pots are made of.
struct Books<'a> {
    view: &'a QueueView,
    site: &'a Site,
    card_mib: BTreeMap<&'a str, Option<u64>>,
}

impl Books<'_> {
    fn pots(&self, node: &NodeView, figures: Option<&Figures>) -> Vec<Pot> {
        let cards = figures.map(|figures| figures.of_devices(&node.devices, self.site));
        let card = |at: usize| cards.as_ref().and_then(|cards| cards.get(at)?.as_ref());
        let devices = node.devices.iter().enumerate();
        let seen = |at| card(at).zip(figures);
        devices.map(|(at, device)| self.pot(node, device, seen(at))).collect()
    }

    fn pot(&self, node: &NodeView, device: &Device, seen: Option<(&CardFigures, &Figures)>) -> Pot {
        let holders = self.view.holders(&node.name, device.index);
        let card = seen.map(|(card, _)| card);
        let booked = self.memory_bytes(device);
        let memory_total_bytes = card.and_then(|card| card.memory_total_bytes).or(booked);
        let hidden = hidden(node, device).filter(|_| holders.is_empty());
        let mut parts = self.parts(device, &holders, memory_total_bytes, seen);
        parts.extend(hidden.map(|_| Part {
            label: NOT_SHOWN.into(),
            class: Class::Other,
            to: 1.0,
            ..Part::default()
        }));
        let free_bytes = match hidden {
            _ if node.out_of_use().is_some() => Some(0),
            Some(of) => (of == "gpu").then_some(0),
            None => self.free_bytes(device, &holders, memory_total_bytes),
        };
        let is_lost = card.is_some_and(|card| card.lost);
        Pot {
            on: Some(OnNode { node: harmless(&node.name), free_bytes }),
            index: device.index,
            uuid: card.map(|card| card.uuid.clone()).unwrap_or_default(),
            model: model(device, card),
            sharing: if is_lost { Sharing::Lost } else { self.sharing(device, &holders, hidden) },
            // What is in force is seen on the node only.
            enforcement: "–",
            busy_ratio: card.and_then(|card| card.busy_ratio),
            memory_total_bytes,
            memory_used_bytes: card.and_then(|card| card.memory_used_bytes),
            temperature_celsius: card.and_then(|card| card.temperature_celsius),
            power_watts: card.and_then(|card| card.power_watts),
            alpha: None,
            xid: card.and_then(|card| card.xid),
            parts,
            processes: Vec::new(),
            accounts: Vec::new(),
            backends: None,
            facts: facts(device, &holders, card),
        }
    }

    /// What Slurm has to give of a device.
    fn memory_bytes(&self, device: &Device) -> Option<u64> {
        let shards = (device.shards > 0).then(|| device.shards.saturating_mul(self.view.shard_mib));
        let card = || self.card_mib.get(device.kind.as_str()).copied().flatten();
        device.instance_mib.or(shards).or_else(card).map(|mib| mib.saturating_mul(MIB))
    }

    fn parts(
        &self,
        device: &Device,
        holders: &[Holder<'_>],
        total: Option<u64>,
        seen: Option<(&CardFigures, &Figures)>,
    ) -> Vec<Part> {
        let mut at = 0.0;
        let one = |holder: &Holder<'_>| {
            let (wide, room_bytes) = self.held(device, holder, total);
            let had = seen.and_then(|(card, figures)| figures.tenant(card, holder.job.job.id));
            let from = at;
            at = f64::min(at + wide, 1.0);
            Part {
                label: label(holder),
                class: Class::Slurm,
                job: Some(of_job(holder)),
                profile: device.instance_mib.map(|_| device.kind.clone()),
                from,
                to: at,
                room_bytes,
                used_bytes: had.and_then(|had| had.memory_bytes),
                compute_milli: holder.job.job.asked().ok().and_then(|ask| ask.compute_milli),
                sm_ratio: had.and_then(|had| had.sm_ratio),
                processes: had.map_or(0, |had| had.processes),
                ..Part::default()
            }
        };
        holders.iter().map(one).collect()
    }

    /// Which part of a device, and how much memory.
    fn held(&self, device: &Device, holder: &Holder<'_>, total: Option<u64>) -> (f64, Option<u64>) {
        let of = |parts: u64, all: u64| parts as f64 / all.max(1) as f64;
        match holder.portion {
            Portion::Whole => (1.0, total),
            Portion::Parts(shards) if holder.name == "shard" => {
                let mib = shards.saturating_mul(self.view.shard_mib);
                (of(shards, device.shards), Some(mib.saturating_mul(MIB)))
            }
            Portion::Parts(percent) => (of(percent, device.mps), None),
        }
    }

    fn free_bytes(
        &self,
        device: &Device,
        holders: &[Holder<'_>],
        total: Option<u64>,
    ) -> Option<u64> {
        let held = |name: &str| -> u64 {
            let of_it = holders.iter().filter(|holder| holder.name == name);
            of_it.map(|holder| holder.portion.parts()).fold(0, u64::saturating_add)
        };
        if holders.iter().any(|holder| holder.portion.is_whole()) {
            return Some(0);
        }
        if device.shards > 0 {
            let left = device.shards.saturating_sub(held("shard"));
            return Some(left.saturating_mul(self.view.shard_mib).saturating_mul(MIB));
        }
        let left = device.mps.saturating_sub(held("mps"));
        total?.checked_div(device.mps).map_or(total, |one| Some(one.saturating_mul(left)))
    }

    /// * `hidden` — as what it is in use by whom Slurm does not show.
    fn sharing(&self, device: &Device, holders: &[Holder<'_>], hidden: Option<&str>) -> Sharing {
        let whole = holders.iter().any(|holder| holder.portion.is_whole());
        let first = holders.first();
        let asked = || first.and_then(|holder| holder.job.job.asked().ok()?.sharing);
        match first.map(|holder| holder.name).or(hidden) {
            _ if device.instance_mib.is_some() => Sharing::Mig,
            None => Sharing::Idle,
            Some("gpu") => Sharing::Exclusive,
            _ if whole => Sharing::Exclusive,
            Some("mps") => Sharing::Mps,
            Some(_) => granted(asked().unwrap_or(self.site.sharing)),
        }
    }
}

/// As what a device is in use by the node's own record.
fn hidden<'a>(node: &'a NodeView, device: &Device) -> Option<&'a str> {
    let used = node
        .used
        .iter()
        .find(|used| used.of_device.get(&device.index).is_some_and(|amount| *amount > 0));
    used.map(|used| used.name.as_str())
}

/// The job's number first: it stays where the rest is cut off.
fn label(holder: &Holder<'_>) -> String {
    let OfJob { id, user, name, .. } = of_job(holder);
    format!("{id} {user} {name}")
}

/// Names come from users, so nothing that steers a terminal gets through.
fn of_job(holder: &Holder<'_>) -> OfJob {
    let clean = |text: &str| harmless(text).replace(['\n', '\t'], " ");
    OfJob {
        id: holder.job.name.clone(),
        user: clean(&holder.job.user),
        name: clean(&holder.job.title),
        of: holder.name.to_owned(),
        amount: holder.portion.parts(),
    }
}

/// By its type, as users ask for it.
fn model(device: &Device, card: Option<&CardFigures>) -> String {
    let known = card.and_then(|card| card.model.as_deref()).unwrap_or("–");
    harmless(if device.kind.is_empty() { known } else { &device.kind })
}

fn facts(
    device: &Device,
    holders: &[Holder<'_>],
    card: Option<&CardFigures>,
) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    facts.extend(card.and_then(|card| card.model.as_ref()).map(|it| ("model", harmless(it))));
    let shards = holders.iter().filter(|it| it.name == "shard");
    let held = shards.map(|it| it.portion.parts()).fold(0, u64::saturating_add);
    if device.shards > 0 {
        facts.push(("shards held", format!("{held} of {}", device.shards)));
    }
    facts
}

#[cfg(test)]
mod tests;
