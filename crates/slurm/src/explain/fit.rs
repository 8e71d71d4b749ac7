//! Could a job run on a node, now or once others have ended, and what is missing?

use serde::Serialize;

use crate::queue_view::{Device, GresNeed, Holder, JobView, NodeView, QueueView};

/// What a node lacks for a job. `total` is what the node has at all: where more is asked, waiting does not help.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "lack", rename_all = "kebab-case")]
pub enum Lack {
    /// The job is to run elsewhere.
    NotNamed,
    /// The job is not to run here.
    Excluded,
    /// A feature that it must have.
    Features {
        /// What is asked, as Slurm writes it.
        asked: String,
    },
    /// It takes no jobs.
    OutOfUse {
        /// Why.
        why: String,
    },
    /// A reservation keeps it for others.
    Reserved {
        /// The reservation.
        by: String,
    },
    /// CPUs.
    Cpus {
        /// Asked on this node.
        asked: u64,
        /// Free now.
        free: u64,
        /// All that there are.
        total: u64,
    },
    /// Memory of the host, in MiB.
    Memory {
        /// Asked on this node.
        asked: u64,
        /// Free now.
        free: u64,
        /// All that there is.
        total: u64,
    },
    /// Whole cards or MIG instances.
    Devices {
        /// Their type; empty for any.
        kind: String,
        /// Asked on this node.
        asked: u64,
        /// Nobody is on them.
        free: u64,
        /// All that there are.
        total: u64,
    },
    /// Shares of one card.
    Parts {
        /// `shard` or `mps`.
        name: String,
        /// Asked of one card.
        asked: u64,
        /// The most that is free on one card.
        free: u64,
        /// All that a card has.
        total: u64,
    },
}

impl Lack {
    /// Whether it stays so whoever ends.
    pub fn is_for_ever(&self) -> bool {
        match self {
            Self::NotNamed | Self::Excluded | Self::Features { .. } => true,
            Self::Cpus { asked, total, .. }
            | Self::Memory { asked, total, .. }
            | Self::Devices { asked, total, .. }
            | Self::Parts { asked, total, .. } => asked > total,
            Self::OutOfUse { .. } | Self::Reserved { .. } => false,
        }
    }
}

/// What a job lacks on a node at a moment, when the jobs that must have ended by then have.
pub(super) fn lacks(view: &QueueView, node: &NodeView, job: &JobView, at_s: u64) -> Vec<Lack> {
    if let Some(unwanted) = unwanted(node, job) {
        return vec![unwanted];
    }
    let mut lacks = of_place(view, node, job);
    let gone = view.on_node(&node.name).filter(|other| other.end_s.is_some_and(|end| end <= at_s));
    let (mut cpus_gone, mut memory_gone) = (0_u64, 0_u64);
    for part in gone.flat_map(|other| &other.held).filter(|part| part.node == node.name) {
        cpus_gone = part.cpus.saturating_add(cpus_gone);
        memory_gone = part.memory_mib.saturating_add(memory_gone);
    }
    let free = |total: u64, held: u64, gone: u64| total.saturating_sub(held.saturating_sub(gone));
    let cpus = free(node.cpus, node.cpus_held, cpus_gone);
    if job.need.cpus > cpus {
        lacks.push(Lack::Cpus { asked: job.need.cpus, free: cpus, total: node.cpus });
    }
    let memory = free(node.memory_mib, node.memory_held_mib, memory_gone);
    if job.need.memory_mib > memory {
        let asked = job.need.memory_mib;
        lacks.push(Lack::Memory { asked, free: memory, total: node.memory_mib });
    }
    lacks.extend(job.need.gres.iter().filter_map(|need| of_gres(view, node, need, at_s)));
    lacks
}

/// Whether its user does not want it there.
fn unwanted(node: &NodeView, job: &JobView) -> Option<Lack> {
    let chosen = job.required.len() >= job.nodes_min as usize;
    if chosen && !job.required.contains(&node.name) {
        return Some(Lack::NotNamed);
    }
    job.excluded.contains(&node.name).then_some(Lack::Excluded)
}

/// What does not depend on who else is there.
fn of_place(view: &QueueView, node: &NodeView, job: &JobView) -> Vec<Lack> {
    let mut lacks = Vec::new();
    if let Some(asked) = job.features.as_ref().filter(|asked| !has_features(node, asked)) {
        lacks.push(Lack::Features { asked: asked.clone() });
    }
    lacks.extend(node.out_of_use().map(|why| Lack::OutOfUse { why }));
    let others = view.reservations.iter().filter(|one| one.nodes.contains(&node.name));
    let mut others = others.filter(|one| job.reservation.as_ref() != Some(&one.name));
    lacks.extend(others.next().map(|one| Lack::Reserved { by: one.name.clone() }));
    lacks
}

/// `a&b` needs both, `a|b` one. Counts and brackets are left to Slurm: what cannot be told is not held
/// against a node.
fn has_features(node: &NodeView, asked: &str) -> bool {
    if asked.contains(['[', '(', '*', '!']) {
        return true;
    }
    let has = |one: &str| node.features.iter().any(|feature| feature == one.trim());
    asked.split(['&', ',']).all(|all| all.split('|').any(has))
}

fn of_gres(view: &QueueView, node: &NodeView, need: &GresNeed, at_s: u64) -> Option<Lack> {
    let (asked, name) = (need.count, need.name.clone());
    let held = |device: &Device| held_of(&view.holders(&node.name, device.index), at_s);
    match need.name.as_str() {
        "gpu" => {
            let is_one = |device: &&Device| need.kind.is_empty() || device.kind == need.kind;
            let all: Vec<&Device> = node.devices.iter().filter(is_one).collect();
            let free = all.iter().filter(|device| held(device) == Held::default()).count() as u64;
            let (kind, total) = (need.kind.clone(), all.len() as u64);
            (asked > free).then_some(Lack::Devices { kind, asked, free, total })
        }
        "shard" | "mps" => {
            let free = node.devices.iter().map(|device| free_parts(device, &name, held(device)));
            let free = free.max().unwrap_or(0);
            let total = node.devices.iter().map(|device| parts(device, &name)).max();
            let total = total.unwrap_or(0);
            (asked > free).then_some(Lack::Parts { name, asked, free, total })
        }
        // What Slurm says of other GRES is not read.
        _ => None,
    }
}

/// What is held of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) whole: bool,
    pub(super) parts: u64,
}

/// * `at_s` — when: jobs that must have ended by then hold nothing.
pub(super) fn held_of(holders: &[Holder<'_>], at_s: u64) -> Held {
    let mut held = Held::default();
    for holder in holders.iter().filter(|one| one.job.end_s.is_none_or(|end| end > at_s)) {
        held.whole |= holder.portion.is_whole();
        held.parts = held.parts.saturating_add(holder.portion.parts());
    }
    held
}

/// All shares that a card has.
pub(super) fn parts(device: &Device, name: &str) -> u64 {
    if name == "mps" { device.mps } else { device.shards }
}

pub(super) fn free_parts(device: &Device, name: &str, held: Held) -> u64 {
    if held.whole { 0 } else { parts(device, name).saturating_sub(held.parts) }
}

/// When the job could start on this node at the latest, in seconds from now, if the running jobs take
/// their whole limit; `None` if that cannot be told.
pub(super) fn earliest_s(view: &QueueView, node: &NodeView, job: &JobView) -> Option<u64> {
    let ends = view.on_node(&node.name).filter_map(|other| other.end_s);
    let mut moments: Vec<u64> = ends.filter(|end| *end > view.now_s).collect();
    moments.push(view.now_s);
    moments.sort_unstable();
    moments.dedup();
    let fits = |at: &u64| lacks(view, node, job, *at).is_empty();
    moments.into_iter().find(fits).map(|at| at - view.now_s)
}
