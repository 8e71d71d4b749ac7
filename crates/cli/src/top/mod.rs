//! `hotpot top`: the GPUs of this machine, or of a cluster, as pots. A view on a terminal, one picture elsewhere.

mod bar;
mod cluster;
mod details;
mod draw;
mod groups;
mod lines;
mod live;
mod machine;
mod parts;
mod pot;
mod print;
mod rows;
#[cfg(test)]
mod sample_machine;
#[cfg(test)]
mod screens;
mod seats;
mod source;
mod view;

use std::io::IsTerminal;
use std::time::Duration;

use node::inventory::DriverFacts;

use crate::args::{Output, Top};
use crate::failure::{Answer, Failure};
use crate::{screen, simulated};
use source::Source;

/// Time between two pictures unless somebody says otherwise.
const MACHINE_EVERY: Duration = Duration::from_secs(1);
/// Each asks slurmctld for all nodes and jobs.
const CLUSTER_EVERY: Duration = Duration::from_secs(2);

/// What is shown: a machine or a cluster at one moment.
#[derive(Clone, Debug)]
struct Picture {
    /// When, in ms since 1970.
    at_ms: u64,
    /// The driver is a simulated one.
    simulated: bool,
    of: Shown,
    pots: Vec<pot::Pot>,
}

/// Whose GPUs they are.
#[derive(Clone, Debug)]
enum Shown {
    /// This machine's, under this driver.
    Machine(DriverFacts),
    /// Those of Slurm's nodes.
    Cluster(groups::Cluster),
}

impl Picture {
    /// The node whose GPUs begin with this one.
    ///
    /// * `before` — the GPU that is shown before it.
    fn node_before(&self, before: Option<&pot::Pot>, pot: &pot::Pot) -> Option<&groups::OfNode> {
        let Shown::Cluster(cluster) = &self.of else { return None };
        let node = |pot: &pot::Pot| pot.on.as_ref().map(|on| on.node.clone());
        let own = node(pot)?;
        (before.and_then(node).as_ref() != Some(&own)).then(|| cluster.node(&own))?
    }
}

pub(crate) fn run(options: &Top) -> Result<Answer, Failure> {
    let machine = simulated::machine(options.simulate_gpus.as_deref())?;
    let json = options.output.output == Output::Json;
    let once = options.once || json || !std::io::stdout().is_terminal();
    if once {
        let picture = start(options)?.0.wait().map_err(Failure::Machine)?;
        return screen::print(&if json {
            print::json(&picture)
        } else {
            print::table(&picture, screen::width())
        });
    }
    let signals = live::Signals::hold().map_err(Failure::Screen)?;
    let (mut source, interval) = start(options)?;
    let first = source.wait().map_err(Failure::Machine)?;
    let came = live::show(source, first, &signals, interval).map_err(Failure::Screen)?;
    // A signal would leave a simulated machine behind.
    drop(machine);
    signals.release(came).map_err(Failure::Screen)?;
    Ok(Answer::Yes)
}

/// Begins to ask, and says how often.
fn start(options: &Top) -> Result<(Source, Duration), Failure> {
    if options.slurm {
        let interval = options.interval.unwrap_or(CLUSTER_EVERY);
        return Ok((cluster::source(options, interval)?, interval));
    }
    let interval = options.interval.unwrap_or(MACHINE_EVERY);
    Ok((machine::source(interval), interval))
}
