//! One picture as text, for pipes and `--once`: a table for people, JSON for programs.

use std::fmt::Write;

use ratatui::text::Line;
use serde::Serialize;

use super::draw::summary;
use super::groups::{Answered, OfNode};
use super::pot::Pot;
use super::rows::Columns;
use super::{Picture, Shown, groups, lines};

/// The table, the bars and below each its tenants, without colour.
pub(super) fn table(picture: &Picture, width: usize) -> String {
    let mut text = summary(picture) + "\n";
    if picture.pots.is_empty() {
        return text;
    }
    let pots: Vec<&Pot> = picture.pots.iter().collect();
    let columns = Columns::fitting(width, &pots, false);
    let mut add = |line: &Line<'_>| {
        let _ = writeln!(text, "{}", line.to_string().trim_end());
    };
    add(&columns.head());
    for (at, pot) in pots.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| pots[before]);
        picture.node_before(before, pot).map(groups::line).iter().for_each(&mut add);
        columns.rows(pot, false).iter().for_each(&mut add);
        lines::of(pot, width).into_iter().map(Line::raw).for_each(|line| add(&line));
    }
    text
}

#[derive(Serialize)]
struct Named<'a> {
    format: &'static str,
    at_ms: u64,
    simulated: bool,
    driver: &'a node::inventory::DriverFacts,
    gpus: &'a [Pot],
}

#[derive(Serialize)]
struct NamedCluster<'a> {
    format: &'static str,
    at_ms: u64,
    jobs_waiting: usize,
    /// `None` where none are asked.
    agents: Option<Answered>,
    agents_trouble: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs_not_shown: Option<&'a str>,
    nodes_without_gpus: usize,
    nodes: Vec<NamedNode<'a>>,
}

#[derive(Serialize)]
struct NamedNode<'a> {
    #[serde(flatten)]
    node: &'a OfNode,
    gpus: Vec<&'a Pot>,
}

/// What was measured, with names; what is unknown is `null`.
pub(super) fn json(picture: &Picture) -> String {
    let Picture { at_ms, simulated, of, pots } = picture;
    match of {
        Shown::Machine(driver) => crate::words::to_json(&Named {
            format: "hotpot-top/1",
            at_ms: *at_ms,
            simulated: *simulated,
            driver,
            gpus: pots,
        }),
        Shown::Cluster(cluster) => crate::words::to_json(&NamedCluster {
            format: "hotpot-top-slurm/1",
            at_ms: *at_ms,
            jobs_waiting: cluster.waiting,
            agents: cluster.answered(),
            agents_trouble: cluster.trouble.as_deref(),
            jobs_not_shown: cluster.not_shown.as_deref(),
            nodes_without_gpus: cluster.without_gpus,
            nodes: cluster.nodes.iter().map(|node| with_gpus(node, pots)).collect(),
        }),
    }
}

fn with_gpus<'a>(node: &'a OfNode, pots: &'a [Pot]) -> NamedNode<'a> {
    let is_on = |pot: &&Pot| pot.on.as_ref().is_some_and(|on| on.node == node.name);
    NamedNode { node, gpus: pots.iter().filter(is_on).collect() }
}
