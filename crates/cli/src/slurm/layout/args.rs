//! The command line of `hotpot slurm layout`.

use std::path::PathBuf;

use clap::{Args as Group, Subcommand};

use crate::args::OutputChoice;
use crate::slurm::args::slurm_time_ms;

#[derive(Debug, Group)]
pub(crate) struct Layout {
    #[command(subcommand)]
    pub(crate) verb: LayoutVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LayoutVerb {
    /// Say which cards should become whole or MIG instances, and why. Changes nothing.
    Plan(PlanLayout),
    /// Change cards: drain a node, wait for its jobs, divide its cards, bring it back; then the next one.
    Apply(ApplyLayout),
}

/// What is to be had on which nodes.
#[derive(Debug, Group)]
pub(crate) struct LayoutWish {
    /// Nodes that may be changed, as gpu[01-16]. Default: all.
    #[arg(long, value_name = "LIST")]
    pub(crate) nodes: Option<String>,
    /// How many of which types there should be at least, as 1g.10gb=8,a100=2; `gpu` is a whole card of any
    /// type. Default: what jobs ask that wait for room or run.
    #[arg(long, value_name = "TYPE=NUMBER,...")]
    pub(crate) want: Option<String>,
}

#[derive(Debug, Group)]
#[command(
    after_help = "Example: hotpot slurm layout plan --want 1g.10gb=8,a100=2 --output json > plan.json"
)]
pub(crate) struct PlanLayout {
    #[command(flatten)]
    pub(crate) wish: LayoutWish,
    #[command(flatten)]
    pub(crate) output: OutputChoice,
}

#[derive(Debug, Group)]
#[command(after_help = APPLY_EXAMPLES)]
pub(crate) struct ApplyLayout {
    /// A plan that `layout plan --output json` has printed. Default: plan now.
    #[arg(value_name = "PLAN.json", conflicts_with_all = ["nodes", "want"])]
    pub(crate) plan: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wish: LayoutWish,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Go on with the last change, which was interrupted.
    #[arg(long, conflicts_with_all = ["plan", "nodes", "want", "undo"])]
    pub(crate) resume: bool,
    /// Bring the nodes of the last change back to what they were.
    #[arg(long, conflicts_with_all = ["plan", "nodes", "want"])]
    pub(crate) undo: bool,
    /// How long jobs on a node may go on, as sbatch's --time; then the node is left as it was. Default: for
    /// ever.
    #[arg(long, value_name = "TIME", value_parser = slurm_time_ms)]
    pub(crate) wait: Option<u64>,
    /// Seconds within which a node must be back; else it goes back to what it was.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) back_within: u64,
}

const APPLY_EXAMPLES: &str = "Examples:
  hotpot slurm layout apply --nodes 'gpu[01-04]' --want 1g.10gb=14
  hotpot slurm layout apply plan.json --yes --wait 2:00:00
  hotpot slurm layout apply --resume

Exit codes: 0 done, 1 not (a node that could not be changed is as it was), 2 wrong usage.";

/// What a node is asked by the machine that changes it.
#[derive(Debug, Group)]
pub(crate) struct LayoutOfNode {
    /// The node as Slurm calls it.
    #[arg(long, env = "SLURMD_NODENAME")]
    pub(crate) node: String,
    /// Do what standard input asks for, in JSON, before telling.
    #[arg(long)]
    pub(crate) set: bool,
}
