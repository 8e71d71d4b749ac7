//! Pictures of a cluster: slurmctld says who holds what, the nodes' agents what was measured.

use std::thread;
use std::time::Duration;

use slurm::Slurm;
use slurm::agents::{self, Agents};
use slurm::queue_view::QueueView;
use slurm::site::Site;

use super::seats;
use super::source::{Source, Whom};
use crate::args::Top;
use crate::failure::Failure;

const SLURM: Whom = Whom {
    name: "Slurm",
    way_out: "try `scontrol ping`",
    // Slurm's own programs wait for 10 s, and try again.
    silence: Duration::from_secs(25),
};
/// slurmctld is not asked more often.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// Pictures of the whole cluster, every `interval`.
pub(super) fn source(options: &Top, interval: Duration) -> Result<Source, Failure> {
    if interval < EVERY_MIN {
        let text = "--slurm asks slurmctld for all nodes and jobs each time; give an --interval of 1s or more";
        return Err(Failure::Usage(text.into()));
    }
    let site = Site::read().map_err(|error| Failure::Usage(error.to_string()))?;
    let (mut agents, trouble) = agents(options, &site)?;
    Ok(Source::start(interval, SLURM, move |sender| {
        loop {
            let view = QueueView::ask_seats(Slurm, site.shard_mib);
            let view = view.map_err(|error| error.to_string())?;
            let up =
                view.nodes.iter().filter(|node| !node.devices.is_empty() && node.state.is_there());
            let told = agents.as_mut().map(|agents| agents.ask(up));
            let picture = seats::picture(&view, &site, told.as_ref(), trouble.as_deref());
            if sender.send(Ok(picture)).is_err() {
                return Ok(());
            }
            thread::sleep(interval);
        }
    }))
}

/// The agents to ask; or why none are, where hotpot.conf names a token that not everybody may read.
fn agents(options: &Top, site: &Site) -> Result<(Option<Agents>, Option<String>), Failure> {
    let Some(template) = options.agents.as_ref().or(site.agents.as_ref()) else {
        return Ok((None, None));
    };
    let path = options.agents_token.as_ref().or(site.agents_token.as_ref());
    let token = match path.map(|path| agents::token(path)).transpose() {
        Err(why) if options.agents_token.is_none() => return Ok((None, Some(why))),
        token => token.map_err(Failure::Usage)?,
    };
    let agents = Agents::new(template, token).map_err(Failure::Usage)?;
    Ok((Some(agents), None))
}
