//! `hotpot slurm conf` and `facts`: what Slurm and its plugins are to be told of the GPUs.

use node::driver::Driver;
use slurm::Slurm;
use slurm::conf::{self, Conf};
use slurm::facts::Facts;
use slurm::site::Site;

use super::args::{ConfOf, Part};
use crate::failure::{Answer, Failure};
use crate::{screen, simulated};

/// Prints the parts of gres.conf and slurm.conf for nodes like this machine.
pub(super) fn conf(of: &ConfOf) -> Result<Answer, Failure> {
    let _taken_away_at_the_end = simulated::machine(of.simulate_gpus.as_deref())?;
    let machine = |error: &dyn std::fmt::Display| Failure::Machine(error.to_string());
    let driver = Driver::open().map_err(|error| machine(&error))?;
    let inventory = driver.inventory().map_err(|error| machine(&error))?;
    let nodes = of.nodes.clone().unwrap_or_else(host);
    let mut site = site()?;
    site.shard_mib = of.shard_mib.unwrap_or(site.shard_mib);
    let (told, devices) = (site.capabilities_of(&nodes), site.devices_of(&nodes));
    let conf = conf::render(&nodes, &inventory, &site, |gpu, instance, inside| {
        conf::capability_files(&told, &devices, (gpu, instance, inside))
    });
    let conf = conf.map_err(|error| machine(&error))?;
    conf.notes.iter().for_each(|note| screen::note(note));
    screen::print(&text(&nodes, &conf, of.part))
}

/// Prints the table that `hotpot.lua` reads.
pub(super) fn facts() -> Result<Answer, Failure> {
    let facts = Facts::ask(Slurm).map_err(|error| Failure::Machine(error.to_string()))?;
    screen::print(&facts.lua(&site()?))
}

fn site() -> Result<Site, Failure> {
    Site::read().map_err(|error| Failure::Usage(error.to_string()))
}

fn text(nodes: &str, conf: &Conf, part: Option<Part>) -> String {
    let Conf { gres, node_gres, .. } = conf;
    let types = if node_gres.contains("shard") { "gpu,shard" } else { "gpu" };
    match part {
        Some(Part::Gres) => gres.clone(),
        Some(Part::Node) => format!("{node_gres}\n"),
        None => format!(
            "# gres.conf\n{gres}\n# slurm.conf: GresTypes once; Gres= belongs into the line of the \
             nodes\nGresTypes={types}\nNodeName={nodes} Gres={node_gres}\n"
        ),
    }
}

/// This machine's name without its domain, as Slurm names nodes.
pub(super) fn host() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}
