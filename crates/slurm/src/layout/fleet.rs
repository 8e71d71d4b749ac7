//! The nodes that a plan may change, as slurmctld and they themselves tell of them.

use super::LayoutError;
use super::note;
use super::plan::NodeCards;
use super::standing::{Standing, jobs_on};
use crate::commands::Slurm;
use crate::config::Config;
use crate::hostlist;
use crate::record::Record;
use crate::site::Site;

/// Nodes, and why others are left out.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// Nodes that may be changed.
    pub nodes: Vec<NodeCards>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Whether Slurm has `gres/shard`.
    pub shards: bool,
}

/// Whether Slurm has `gres/shard`.
///
/// # Errors
/// Slurm does not answer.
pub(super) fn has_shards(slurm: Slurm) -> Result<bool, LayoutError> {
    Ok(Config::ask(slurm)?.has("GresTypes", "shard"))
}

impl Fleet {
    /// Asks for nodes with GPUs.
    ///
    /// * `list` — their names, as a Slurm list; all if it is `None`.
    ///
    /// # Errors
    /// Slurm does not answer, or a node that was named is none.
    pub fn ask(slurm: Slurm, site: &Site, list: Option<&str>) -> Result<Self, LayoutError> {
        let records = Record::all(&slurm.call("scontrol", &["show", "node", "-o"])?);
        let named = list.map(hostlist::expand);
        let one = |record: &Record| {
            let name = record.get("NodeName")?.to_owned();
            Standing::of(record, &name).map(|standing| (name, standing))
        };
        let all: Vec<(String, Standing)> = records.iter().filter_map(one).collect();
        if let Some(missing) =
            named.iter().flatten().find(|name| !all.iter().any(|(node, _)| node == *name))
        {
            return Err(LayoutError::Usage(format!("there is no node `{missing}`")));
        }
        let mut fleet = Self { shards: has_shards(slurm)?, ..Self::default() };
        for (name, standing) in all {
            if named.as_ref().is_none_or(|named| named.contains(&name)) {
                fleet.add(slurm, site, name, &standing)?;
            }
        }
        Ok(fleet)
    }

    fn add(
        &mut self,
        slurm: Slurm,
        site: &Site,
        name: String,
        standing: &Standing,
    ) -> Result<(), LayoutError> {
        if !standing.gres.contains("gpu") {
            return Ok(());
        }
        if !standing.is_there() || standing.is_out() {
            self.notes.push(format!("{name} is left out: it is {}", standing.state));
            return Ok(());
        }
        match note::look(site, &name) {
            Ok(told) => {
                let notes = told.notes.iter().map(|note| format!("{name}: {note}"));
                self.notes.extend(notes);
                let jobs = jobs_on(slurm, &name)?.len() as u64;
                self.nodes.push(NodeCards { name, jobs, cards: told.cards });
            }
            Err(error) => self.notes.push(format!("{name} is left out: {error}")),
        }
        Ok(())
    }
}
