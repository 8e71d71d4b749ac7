//! The command line, as given. Help, completions and the man page come from here.

use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use model::Placement;

/// Many jobs, one GPU: shares GPUs between batch jobs and online services.
#[derive(Debug, Parser)]
#[command(
    name = "hotpot",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 no (refused or failed), 2 wrong usage or unreadable input.\n\
                  Example: hotpot simulate trace.csv --fleet fleet.toml --report report.html"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Replay a trace under one or more policies and compare them.
    Simulate(Simulate),
    /// Decide where workloads would go, and why the rest waits. Nothing is carried out.
    Plan(Plan),
    /// Say for each node and GPU why a workload could or could not sit there.
    Explain(Explain),
    /// Print a completion script for a shell.
    #[command(after_help = "Example: hotpot completions bash > /etc/bash_completion.d/hotpot")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page, of hotpot or of one verb.
    #[command(after_help = "Example: hotpot man simulate | man -l -")]
    Man {
        /// The verb.
        verb: Option<String>,
    },
}

#[derive(Debug, Group)]
#[command(after_long_help = SIMULATE_EXAMPLES)]
pub(crate) struct Simulate {
    /// The trace: an openb task list, a Philly or Gavel list (.csv, also gzipped), an sbatch
    /// script, or workloads in TOML or YAML.
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) fleet: FleetChoice,
    /// Placement policy; repeat to compare. Default: that of the policy file, else best-fit and
    /// hotpot.
    #[arg(long, value_name = "NAME", value_parser = policy_names())]
    pub(crate) policy: Vec<String>,
    /// Placement, quotas, sharing modes, weights and backfill (TOML or YAML).
    #[arg(long, value_name = "FILE")]
    pub(crate) policy_file: Option<PathBuf>,
    /// Ignore all times: tasks arrive in random order until they ask for PERCENT of all GPUs, stay
    /// for ever, and are turned away if they find no place.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) fill: Option<u32>,
    /// Seed of the random order of --fill and of the policy `random`. Default: 42, or the policy
    /// file's.
    #[arg(long, value_name = "NUMBER", value_parser = whole,
          allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// Throughput table (JSON) that gives the running times of a Gavel trace.
    #[arg(long, value_name = "FILE")]
    pub(crate) throughputs: Option<PathBuf>,
    /// Write an HTML report with plots; one file, opens without a network.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write every sample as CSV.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputChoice,
}

const SIMULATE_EXAMPLES: &str = "Examples:
  hotpot simulate data/openb/openb_pod_list_default.csv.gz --fill 130 --report report.html
  hotpot simulate jobs.toml --gpus a100-80gb:16 --policy best-fit --policy fgd --policy hotpot
  hotpot simulate trace.csv --fleet fleet.toml --output json > result.json";

#[derive(Debug, Group)]
#[command(after_help = "Exit code 1 says that some workload can never run on this fleet.\n\
                        Example: hotpot plan jobs.toml --fleet fleet.toml")]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) queue: Queue,
    #[command(flatten)]
    pub(crate) output: OutputChoice,
}

#[derive(Debug, Group)]
#[command(after_help = "Exit code 1 says that the workload does not start now.\n\
                        Example: hotpot explain llama-7b jobs.toml --fleet fleet.toml")]
pub(crate) struct Explain {
    /// Name of the workload, or its number as '#3', in quotes; `plan --output json` tells numbers.
    pub(crate) workload: String,
    #[command(flatten)]
    pub(crate) queue: Queue,
    /// Show every GPU, not only the nodes.
    #[arg(long)]
    pub(crate) gpus_too: bool,
    #[command(flatten)]
    pub(crate) output: OutputChoice,
}

/// A fleet and what waits for it.
#[derive(Debug, Group)]
pub(crate) struct Queue {
    /// The workloads: TOML, YAML, an sbatch script or a trace.
    pub(crate) workloads: PathBuf,
    #[command(flatten)]
    pub(crate) fleet: FleetChoice,
    /// Placement policy. Default: that of the policy file, else hotpot.
    #[arg(long, value_name = "NAME", value_parser = policy_names())]
    pub(crate) policy: Option<String>,
    /// Placement, quotas, sharing modes, weights and backfill (TOML or YAML).
    #[arg(long, value_name = "FILE")]
    pub(crate) policy_file: Option<PathBuf>,
}

#[derive(Debug, Group)]
#[group(multiple = false)]
pub(crate) struct FleetChoice {
    /// The fleet: TOML, YAML, or an openb node list (.csv, also gzipped). Default: the node list
    /// beside an openb task list.
    #[arg(long, value_name = "FILE")]
    pub(crate) fleet: Option<PathBuf>,
    /// A fleet in a word: nodes of up to 8 GPUs of one model, 16 vCPUs and 128 GiB per GPU.
    #[arg(long, value_name = "MODEL:COUNT")]
    pub(crate) gpus: Option<String>,
}

#[derive(Debug, Group)]
pub(crate) struct OutputChoice {
    /// Form of what is printed.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

fn policy_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(Placement::NAMES)
}

fn percent(text: &str) -> Result<u32, &'static str> {
    let percent = text.parse().ok().filter(|percent| (1..=1000).contains(percent));
    percent.ok_or("give a whole number from 1 to 1000")
}

fn whole(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "give a whole number from 0 to 18446744073709551615")
}
