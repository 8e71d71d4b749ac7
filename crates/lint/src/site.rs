//! What the configuration files of one call say of the cluster, for the other files.

use std::collections::BTreeMap;

use crate::conf;
use crate::gres_conf;
use crate::input::{Input, Kind};

/// Shards and MPS of cards and nodes, where they are known.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// Shards of the card that has most of them.
    pub(crate) shards_of_card: Option<u64>,
    /// The same of MPS.
    pub(crate) mps_of_card: Option<u64>,
    /// Whether a job's parts may be of several GPUs (slurm.conf manual, SelectTypeParameters).
    pub(crate) may_take_several: bool,
    /// Shards of each node, by slurm.conf.
    pub(crate) shards_of_node: BTreeMap<String, u64>,
}

impl Site {
    pub(crate) fn of(inputs: &[Input]) -> Self {
        let mut site = Self::default();
        for input in inputs {
            match input.kind() {
                Kind::GresConf => {
                    let most = |name| gres_conf::most_of_card(input.text(), name);
                    site.shards_of_card = site.shards_of_card.max(most("shard"));
                    site.mps_of_card = site.mps_of_card.max(most("mps"));
                }
                Kind::SlurmConf => site.read_nodes(input.text()),
                Kind::Sbatch | Kind::Manifest => {}
            }
        }
        site
    }

    fn read_nodes(&mut self, text: &str) {
        for record in conf::records(text) {
            let parameters = record.get("selecttypeparameters");
            let several = |item: &conf::Item| {
                item.value.to_ascii_uppercase().contains("MULTIPLE_SHARING_GRES_PJ")
            };
            self.may_take_several |= parameters.is_some_and(several);
            let (Some(names), Some(gres)) = (record.get("nodename"), record.get("gres")) else {
                continue;
            };
            let of = |name| conf::gres_of(&gres.value, name);
            let each = |name| Some(of(name)?.div_ceil(of("gpu").filter(|gpus| *gpus > 0)?));
            self.shards_of_card = self.shards_of_card.max(each("shard"));
            self.mps_of_card = self.mps_of_card.max(each("mps"));
            for name in conf::expand(&names.value).unwrap_or_default() {
                self.shards_of_node.extend(of("shard").map(|count| (name, count)));
            }
        }
    }
}
