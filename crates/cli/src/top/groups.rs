//! The nodes of a cluster: what is said of each, on a line above its GPUs, and of all of them together.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use serde::Serialize;
use simulator::report::harmless;

/// A cluster's nodes at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    /// Those with GPUs, in Slurm's order.
    pub(super) nodes: Vec<OfNode>,
    /// How many have none.
    pub(super) without_gpus: usize,
    /// Jobs in the queue.
    pub(super) waiting: usize,
    /// Why no agent is asked though the site names them.
    pub(super) trouble: Option<String>,
    /// That jobs are not shown, if there are any.
    pub(super) not_shown: Option<String>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct OfNode {
    pub(super) name: String,
    /// As Slurm writes it.
    pub(super) state: String,
    /// Why it takes no jobs.
    pub(super) out_of_use: Option<String>,
    /// Numbers of the jobs that are on it.
    pub(super) jobs: Vec<String>,
    pub(super) cpus: u64,
    pub(super) cpus_held: u64,
    pub(super) agent: Agent,
}

/// What a node's agent says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Agent {
    /// Nobody has said where it is.
    NotAsked,
    Answers,
    /// Why not.
    Silent(String),
}

/// Agents that answer, of those there should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Answered {
    pub(super) answered: usize,
    pub(super) of: usize,
}

impl Cluster {
    /// A node by its name.
    pub(super) fn node(&self, name: &str) -> Option<&OfNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// `None` where no agent is asked.
    pub(super) fn answered(&self) -> Option<Answered> {
        let asked = self.nodes.iter().filter(|node| node.agent != Agent::NotAsked);
        let of = asked.clone().count();
        let answered = asked.filter(|node| node.agent == Agent::Answers).count();
        (of > 0).then_some(Answered { answered, of })
    }

    /// The cluster in a line.
    ///
    /// * `gpus`, `shares` — how many there are.
    pub(super) fn summary(&self, gpus: usize, shares: usize) -> String {
        let mut parts = vec![counted(self.nodes.len(), "node"), counted(gpus, "GPU")];
        parts.extend(self.answered().map(|it| format!("agents {} of {}", it.answered, it.of)));
        parts.push(format!("{} in use", counted(shares, "share")));
        parts.push(format!("{} waiting", counted(self.waiting, "job")));
        let out = self.nodes.iter().filter(|node| node.out_of_use.is_some()).count();
        parts.extend((out > 0).then(|| format!("{} out of use", counted(out, "node"))));
        let bare = self.without_gpus;
        parts.extend((bare > 0).then(|| format!("{} without GPUs", counted(bare, "node"))));
        parts.extend(self.not_shown.clone());
        parts.extend(self.trouble.as_ref().map(|why| format!("no agents: {}", harmless(why))));
        parts.join(" · ")
    }
}

/// `1 node`, `2 nodes`.
fn counted(count: usize, of: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {of}{plural}")
}

/// The line above a node's GPUs.
pub(super) fn line(node: &OfNode) -> Line<'static> {
    let mut parts = vec![node.state.to_lowercase()];
    parts.push(counted(node.jobs.len(), "job"));
    parts.push(format!("{} of {} CPUs", node.cpus_held, node.cpus));
    let mut line = Line::from(vec![
        Span::styled(format!(" {}", node.name), Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("  {}", parts.join(" · "))),
    ]);
    let red = Style::new().fg(Color::Red);
    if let Some(why) = &node.out_of_use {
        line.push_span(Span::styled(format!(" · {}", harmless(why)), red));
    }
    if let Agent::Silent(why) = &node.agent {
        line.push_span(Span::styled(format!(" · agent: {}", harmless(why)), red));
    }
    line
}
