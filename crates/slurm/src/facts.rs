//! What the site has, as the rules of `job_submit.lua` need it: cards with their shards, and MIG types. From
//! the nodes as slurmctld knows them, so that it is true of the whole cluster.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::Catalogue;

use crate::commands::{Slurm, SlurmError};
use crate::gres::{self, Amount};
use crate::profiles::{Profile, profile};
use crate::record::Record;
use crate::site::Site;

/// Memory that a CUDA context takes of a card that the catalogue does not know.
const CONTEXT_MIB: u64 = 500;

/// Cards of one type on nodes that are alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cards {
    kind: String,
    shards: u64,
    per_node: u64,
}

/// Instances of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Instances {
    profile: Profile,
    count: u64,
}

/// The site's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    cards: BTreeMap<Cards, u64>,
    instances: BTreeMap<String, Instances>,
}

impl Facts {
    /// Asks slurmctld for all nodes.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn ask(slurm: Slurm) -> Result<Self, SlurmError> {
        let text = slurm.call("scontrol", &["show", "node", "-o"])?;
        Ok(Self::of(&Record::all(&text)))
    }

    /// Takes the facts out of nodes' records.
    pub fn of(nodes: &[Record]) -> Self {
        let mut facts = Self::default();
        for gres in nodes.iter().filter_map(|node| node.get("Gres")) {
            facts.add_node(gres);
        }
        facts
    }

    /// * `gres` — such as `gpu:a100:4(S:0),shard:a100:320(S:0)`.
    fn add_node(&mut self, gres: &str) {
        let mut whole: BTreeMap<String, u64> = BTreeMap::new();
        let mut shards = 0;
        for Amount { name, kind, count } in gres::amounts(gres) {
            match (name, kind) {
                ("shard", _) => shards += count,
                ("gpu", Some(kind)) => match profile(kind) {
                    Some(profile) => {
                        let entry = self.instances.entry(kind.to_owned());
                        entry.or_insert(Instances { profile, count: 0 }).count += count;
                    }
                    None => *whole.entry(kind.to_owned()).or_default() += count,
                },
                ("gpu", None) => *whole.entry(String::new()).or_default() += count,
                _ => {}
            }
        }
        let all: u64 = whole.values().sum();
        for (kind, per_node) in whole.into_iter().filter(|(_, count)| *count > 0) {
            let cards = Cards { kind, shards: shards / all.max(1), per_node };
            *self.cards.entry(cards).or_default() += 1;
        }
    }

    /// The table that `hotpot.lua` reads.
    pub fn lua(&self, site: &Site) -> String {
        let mut text = String::from("-- Written by `hotpot slurm facts`; do not edit.\nreturn {\n");
        let _ = writeln!(text, "  shard_mib = {},", site.shard_mib);
        let _ = writeln!(text, "  sharing = {},", quoted(site.sharing_word()));
        text.push_str("  cards = {\n");
        for (cards, nodes) in &self.cards {
            let memory_mib = cards.shards * site.shard_mib;
            let _ = writeln!(
                text,
                "    {{ type = {}, memory_mib = {memory_mib}, context_mib = {}, shards = {}, \
                 per_node = {}, nodes = {nodes} }},",
                quoted(&cards.kind),
                context_mib(&cards.kind, memory_mib),
                cards.shards,
                cards.per_node,
            );
        }
        text.push_str("  },\n  mig = {\n");
        for (kind, found) in &self.instances {
            let _ = writeln!(
                text,
                "    {{ type = {}, memory_mib = {}, compute_milli = {}, count = {} }},",
                quoted(kind),
                found.profile.memory_mib,
                found.profile.compute_milli,
                found.count,
            );
        }
        text.push_str("  },\n}\n");
        text
    }
}

/// What a context takes on a card: of the model whose name begins like the type and whose memory is nearest.
pub(crate) fn context_mib(kind: &str, memory_mib: u64) -> u64 {
    let plain = kind.to_ascii_lowercase().replace('_', "-");
    let Ok(catalogue) = Catalogue::shipped() else { return CONTEXT_MIB };
    let alike =
        catalogue.iter().filter(|model| !plain.is_empty() && model.name.starts_with(&plain));
    let nearest = alike.min_by_key(|model| model.memory_mib.abs_diff(memory_mib));
    nearest.map_or(CONTEXT_MIB, |model| model.context_mib)
}

fn quoted(text: &str) -> String {
    let plain = text.chars().filter(|letter| !letter.is_control() && !"\"\\".contains(*letter));
    format!("\"{}\"", plain.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_and_instances_are_counted_over_all_nodes() {
        let lines = "NodeName=n1 Gres=gpu:a100:4(S:0),shard:a100:1264(S:0)\n\
                     NodeName=n2 Gres=gpu:a100:4,shard:1264\n\
                     NodeName=n3 Gres=gpu:1g.10gb:7,gpu:a100:1,shard:316\n\
                     NodeName=n4 Gres=(null)\n";
        let facts = Facts::of(&Record::all(lines));
        let text = facts.lua(&Site::default());
        let cards =
            |per_node, nodes| format!("shards = 316, per_node = {per_node}, nodes = {nodes} }}");
        assert!(text.contains(&cards(4, 2)) && text.contains(&cards(1, 1)), "{text}");
        assert!(
            text.contains(
                "{ type = \"1g.10gb\", memory_mib = 9595, compute_milli = 142, count = 7 }"
            ),
            "{text}"
        );
        assert!(text.contains("memory_mib = 80896"), "{text}");
    }
}
