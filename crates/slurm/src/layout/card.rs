//! A node's cards as it tells of them, and what they are to become.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a card is divided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CardLayout {
    /// Not at all.
    Whole,
    /// Into MIG instances, by profile and first memory slice.
    Mig(Vec<(String, u8)>),
}

impl CardLayout {
    /// In few words: `whole` or `7 × 1g.10gb`.
    pub fn words(&self) -> String {
        match self {
            Self::Whole => "whole".to_owned(),
            Self::Mig(instances) if instances.is_empty() => "MIG without instances".to_owned(),
            Self::Mig(instances) => {
                let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
                for (profile, _) in instances {
                    *counts.entry(profile).or_default() += 1;
                }
                let words: Vec<String> =
                    counts.iter().map(|(profile, count)| format!("{count} × {profile}")).collect();
                words.join(", ")
            }
        }
    }
}

/// One card of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Its UUID.
    pub gpu: String,
    /// Number of its device file.
    pub minor: u32,
    /// Its name in the catalogue.
    pub model: Option<String>,
    /// What Slurm calls it as a whole.
    pub kind: String,
    /// How it is divided.
    pub layout: CardLayout,
}

/// What a node tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLayout {
    /// Its cards, by number of device file.
    pub cards: Vec<Card>,
    /// The lines of gres.conf that its cards need.
    pub gres_conf: String,
    /// Their part of `Gres=`.
    pub node_gres: String,
    /// The lines that its own gres.conf has of it; `None` if it has no such file.
    pub present: Option<String>,
    /// The `Gres=` with which it registers itself, if it does.
    pub gres: Option<String>,
    /// Cards that are left out, and why.
    pub notes: Vec<String>,
}

/// What a card is to become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Becomes {
    /// Its UUID.
    pub gpu: String,
    /// How it is to be divided.
    pub layout: CardLayout,
}

/// What a node is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Divide cards.
    Divide(Vec<Becomes>),
    /// Write files.
    Files(Files),
}

/// A node's part of Slurm's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Number of the change of layout.
    pub id: u64,
    /// Its lines of gres.conf.
    pub gres_conf: String,
    /// Its `Gres=`.
    pub gres: String,
    /// Whether it registers itself, and slurm.conf does not name it.
    pub dynamic: bool,
}
