//! A node as slurmctld tells of it.

use crate::gres::{self, Booked};
use crate::node_state::NodeState;
use crate::profiles::profile;
use crate::record::Record;

/// Parts of a card under MPS (gres.conf manual, `Count` of mps: 100 a GPU by default).
const MPS_PER_CARD: u64 = 100;

/// A GPU or MIG instance of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Position by which jobs' records name it.
    pub index: u32,
    /// Its type, such as `a100` or `1g.10gb`; empty without one.
    pub kind: String,
    /// Shards of it; 0 where it has none.
    pub shards: u64,
    /// Percent of MPS; 0 where it has none.
    pub mps: u64,
    /// Part of a whole GPU's compute, in thousandths.
    pub compute_milli: u32,
    /// Memory of a MIG instance; `None` for a whole card.
    pub instance_mib: Option<u64>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Where slurmctld reaches it: a host name or an address.
    pub address: String,
    /// Whether it is there and takes jobs.
    pub state: NodeState,
    /// Why it is out of use, if somebody said so.
    pub reason: Option<String>,
    /// CPUs for jobs.
    pub cpus: u64,
    /// Those that jobs hold.
    pub cpus_held: u64,
    /// Memory for jobs.
    pub memory_mib: u64,
    /// What jobs hold of it.
    pub memory_held_mib: u64,
    /// Features that it has now.
    pub features: Vec<String>,
    /// Its GPUs and instances.
    pub devices: Vec<Device>,
    /// Which of them are in use, whoever uses them. Releases before 26.05 tell of shards on which devices they
    /// are held, not how many.
    pub used: Vec<Booked>,
}

impl NodeView {
    pub(super) fn of(record: &Record) -> Option<Self> {
        let name = record.get("NodeName")?.to_owned();
        let number = |field| record.number(field).unwrap_or(0);
        let features = record.get("ActiveFeatures").unwrap_or_default();
        let reason = record.get("Reason").map(|text| {
            // Behind it stands who said so and when.
            text.split(" [").next().unwrap_or(text).to_owned()
        });
        Some(Self {
            state: NodeState::new(record.get("State").unwrap_or("UNKNOWN")),
            reason,
            cpus: record.number("CPUEfctv").unwrap_or_else(|| number("CPUTot")),
            cpus_held: number("CPUAlloc"),
            memory_mib: number("RealMemory"),
            memory_held_mib: number("AllocMem"),
            features: features.split(',').filter(|one| !one.is_empty()).map(Into::into).collect(),
            devices: devices(record.get("Gres").unwrap_or_default()),
            used: used(record.get("GresUsed").unwrap_or_default()),
            address: record.get("NodeAddr").unwrap_or(&name).to_owned(),
            name,
        })
    }

    /// Why it takes no jobs, in a few words; `None` if it does.
    pub fn out_of_use(&self) -> Option<String> {
        let words = self.state.out_of_use()?;
        Some(match &self.reason {
            Some(reason) => format!("{words} ({reason})"),
            None => words.to_string(),
        })
    }
}

fn used(text: &str) -> Vec<Booked> {
    let mut used = gres::booked(text);
    used.retain(|one| gres::is_of_gpus(&one.name));
    used
}

/// In the order of `Gres=`, by which Slurm counts them (measured, 22.05).
fn devices(gres: &str) -> Vec<Device> {
    let all = gres::amounts(gres);
    let words: Vec<_> =
        all.map(|one| (one.name, one.kind.unwrap_or_default(), one.count)).collect();
    let named = words.iter().filter(|(name, ..)| *name == "gpu");
    let kinds: Vec<String> = named
        .flat_map(|(_, kind, count)| std::iter::repeat_n((*kind).to_owned(), *count as usize))
        .collect();
    let whole = |kind: &str| profile(kind).is_none();
    let parts = |name: &str, kind: &str| {
        let alike = |typed: bool| {
            let counted = words.iter().filter(|(of, ty, _)| *of == name && ty.is_empty() != typed);
            let counted = counted.filter(|(_, ty, _)| !typed || *ty == kind);
            let total: u64 = counted.map(|(.., count)| count).sum();
            let cards = kinds.iter().filter(|one| whole(one) && (!typed || *one == kind)).count();
            total / (cards as u64).max(1)
        };
        if whole(kind) { alike(true).max(alike(false)) } else { 0 }
    };
    (0..)
        .zip(&kinds)
        .map(|(index, kind)| Device {
            index,
            kind: kind.clone(),
            shards: parts("shard", kind),
            mps: parts("mps", kind).min(MPS_PER_CARD),
            compute_milli: profile(kind).map_or(1000, |profile| profile.compute_milli),
            instance_mib: profile(kind).map(|profile| profile.memory_mib),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_in_the_order_of_gres_with_their_shards() {
        let gres = "gpu:a100:2(S:0),gpu:1g.10gb:1,shard:a100:634,shard:1g.10gb:0";
        let told: Vec<_> = devices(gres).iter().map(|one| (one.kind.clone(), one.shards)).collect();
        let of = |kind: &str, shards| (kind.to_owned(), shards);
        assert_eq!(told, [of("a100", 317), of("a100", 317), of("1g.10gb", 0)]);
        assert_eq!(devices("gpu:2,shard:8")[1].shards, 4);
        assert!(devices("(null)").is_empty());
    }
}
