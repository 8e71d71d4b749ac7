//! What a node is before it is changed, and whether it may be.

use node::tool::ToolError;

use super::card::{Becomes, Card, CardLayout, NodeLayout, Request};
use super::fleet::has_shards;
use super::journal::Old;
use super::plan::mixes;
use super::standing::Standing;
use super::steps::Way;
use super::{LayoutError, files};
use crate::commands::Slurm;
use crate::gres;
use crate::site::{Site, conf_folder};

/// What a node tells of itself.
pub(super) fn look(site: &Site, node: &str) -> Result<NodeLayout, LayoutError> {
    ask(site, node, None)
}

pub(super) fn ask(
    site: &Site,
    node: &str,
    request: Option<&Request>,
) -> Result<NodeLayout, LayoutError> {
    let mut line = site.ways.hotpot.clone();
    line.extend(["slurm", "layout-of-node", "--node", node].map(str::to_owned));
    line.extend(request.map(|_| "--set".to_owned()));
    let input = request.map(serde_json::to_string).transpose();
    let input = input.map_err(|error| LayoutError::node(node, error))?;
    let text = match site.ways.on_node(node, &line, &input.unwrap_or_default()) {
        // What was asked is long, what it says is enough.
        Err(ToolError::Failed { said, .. }) => {
            return Err(LayoutError::node(node, said.trim_start_matches("hotpot: ")));
        }
        other => other?,
    };
    let answer = serde_json::from_str(text.trim());
    answer
        .map_err(|error| LayoutError::node(node, format!("its answer is not understood: {error}")))
}

impl Way<'_> {
    /// Looks at the node; nothing is changed by that.
    pub(super) fn note(&self) -> Result<Old, LayoutError> {
        let standing = self.in_use()?;
        let told = look(self.site, self.node())?;
        self.check_cards(&told)?;
        let gres_conf = self.lines(&told)?;
        self.check_lines(&gres_conf, &told)?;
        let shards = has_shards(Slurm)?;
        if shards && mixes(self.afterwards(&told).iter()) {
            return Err(self.wrong(
                "it would have instances of several types, and Slurm has gres/shard: jobs for one of them \
                 would run without any",
            ));
        }
        let (dynamic, cards) = (standing.is_dynamic(), self.plan.was());
        let gres = self.gres(&standing, &told)?;
        Ok(Old { dynamic, shards, gres, gres_conf, cards })
    }

    /// Who is out of use is so for a reason, and is not put into use by us.
    fn in_use(&self) -> Result<Standing, LayoutError> {
        let standing = Standing::ask(Slurm, self.node())?;
        let standing = standing.ok_or_else(|| self.wrong("slurmctld does not know it"))?;
        if !standing.is_there() || standing.is_out() {
            let Standing { state, reason, .. } = &standing;
            return Err(self.wrong(format!("it is {state} ({reason}); it must be in use")));
        }
        Ok(standing)
    }

    fn check_cards(&self, told: &NodeLayout) -> Result<(), LayoutError> {
        let stands = |card: &Becomes| {
            told.cards.iter().any(|it| it.gpu == card.gpu && it.layout == card.layout)
        };
        match self.plan.was().iter().all(stands) {
            true => Ok(()),
            false => Err(self.wrong("its cards are not as the plan says any more; plan again")),
        }
    }

    /// Its lines of gres.conf: from its own file, else from the one here.
    fn lines(&self, told: &NodeLayout) -> Result<String, LayoutError> {
        if let Some(lines) = told.present.clone().filter(|lines| !lines.is_empty()) {
            return Ok(lines);
        }
        let here = match self.site.ways.own_gres_conf {
            true => String::new(),
            false => files::devices_of(&conf_folder(), self.node())?,
        };
        let why = "no gres.conf names its GPUs; `hotpot slurm conf` prints the lines";
        if here.is_empty() { Err(self.wrong(why)) } else { Ok(here) }
    }

    /// Cards are called as they will be when they are whole again.
    fn check_lines(&self, gres_conf: &str, told: &NodeLayout) -> Result<(), LayoutError> {
        for line in gres::devices_of(gres_conf, self.node()).iter().filter(|it| !it.is_instance) {
            let card = told.cards.iter().find(|card| Some(card.minor) == line.minor);
            if let (Some(card), Some(kind)) = (card, &line.kind)
                && card.kind != *kind
            {
                let model = card.model.as_deref().unwrap_or("its model");
                return Err(self.wrong(format!(
                    "gres.conf calls a card {kind}, hotpot would call it {}; say CardTypes={model}:{kind} \
                     in hotpot.conf",
                    card.kind
                )));
            }
        }
        Ok(())
    }

    /// How its cards are divided in the end.
    fn afterwards(&self, told: &NodeLayout) -> Vec<CardLayout> {
        let becomes = self.plan.becomes();
        let of = |card: &Card| {
            let change = becomes.iter().find(|it| it.gpu == card.gpu);
            change.map_or(&card.layout, |it| &it.layout).clone()
        };
        told.cards.iter().map(of).collect()
    }

    /// Its `Gres=`, as written.
    fn gres(&self, standing: &Standing, told: &NodeLayout) -> Result<String, LayoutError> {
        if standing.is_dynamic() {
            return Ok(told.gres.clone().unwrap_or_else(|| standing.gres.clone()));
        }
        files::gres_of(&conf_folder(), self.node())
    }
}
