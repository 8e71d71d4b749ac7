//! The command line of `hotpot slurm`.

use std::path::PathBuf;

use clap::{Args as Group, Subcommand, ValueEnum};

use super::layout::args::{Layout, LayoutOfNode};
use crate::args::OutputChoice;

#[derive(Debug, Group)]
pub(crate) struct Slurm {
    #[command(subcommand)]
    pub(crate) verb: SlurmVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SlurmVerb {
    /// Submit an array as a few pilot jobs that pull its tasks, so that no GPU waits between two of
    /// them. Everything else goes to sbatch as it is.
    Run(RunArray),
    /// Show where the tasks of an array stand.
    Tasks(Tasks),
    /// Print gres.conf and the nodes' part of slurm.conf for nodes like this machine.
    Conf(ConfOf),
    /// Print what job_submit.lua needs to know of all nodes, as hotpot_site.lua.
    #[command(after_help = "Example: hotpot slurm facts > /etc/slurm/hotpot_site.lua")]
    Facts,
    /// Say whether all that hotpot needs of Slurm and of this machine is in place, and the way out where not.
    #[command(
        after_help = "Exit code 1 says that something is wrong. Run it where slurmctld runs and on nodes."
    )]
    Check(CheckOf),
    /// Move nodes' cards from one layout to another: whole, or MIG instances.
    Layout(Layout),
    /// Tell what this node's cards are, or change them; what `layout` runs on nodes.
    #[command(hide = true)]
    LayoutOfNode(LayoutOfNode),
    /// Say why a job waits, where it could run and what is missing there; or what became of it.
    #[command(after_help = "Exit code 2 says that Slurm knows no such job.\n\
                            Examples:\n  hotpot slurm explain 4711\n  hotpot slurm explain 4711_3 --output json")]
    Explain(ExplainJob),
    /// Print the size to ask for jobs of a name, by what they used: an option for sbatch.
    #[command(after_help = SIZE_HELP)]
    Size(super::report::SizeOf),
    /// Bring what jobs used on this node into Slurm's accounting; what Epilog starts.
    #[command(hide = true)]
    KeepUsage {
        /// The node as Slurm calls it.
        #[arg(long, env = "SLURMD_NODENAME")]
        node: String,
    },
    /// Make a job's shares real on this node; for Slurm's Prolog.
    #[command(after_help = ON_NODE)]
    Prolog(OfJob),
    /// Take back what a job held on this node; for Slurm's Epilog.
    #[command(after_help = ON_NODE)]
    Epilog(OfJob),
    /// Take back what jobs hold that are gone from this node; for HealthCheckProgram.
    Tidy {
        /// The node as Slurm calls it.
        #[arg(long, env = "SLURMD_NODENAME")]
        node: String,
    },
    /// Send a job back into the queue; what Prolog starts.
    #[command(hide = true)]
    SendBack {
        /// The job.
        job: u32,
        /// The reason.
        why: String,
    },
    /// Do tasks of an array; what its pilot jobs run.
    #[command(hide = true)]
    Pilot {
        /// The array's folder.
        folder: PathBuf,
    },
}

#[derive(Debug, Group)]
pub(crate) struct CheckOf {
    /// The node that this machine is, as Slurm calls it. Default: this machine's name.
    #[arg(long, env = "SLURMD_NODENAME")]
    pub(crate) node: Option<String>,
}

const SIZE_HELP: &str = "Exit code 1 says that nothing is to be changed, or too little is known.\n\
                         Example: sbatch $(hotpot slurm size embed || echo --gpu-mem=8G) embed.sbatch";

#[derive(Debug, Group)]
pub(crate) struct ExplainJob {
    /// Its number; of a task of an array ARRAY_TASK.
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) output: OutputChoice,
}

#[derive(Debug, Group)]
#[command(after_long_help = RUN_EXAMPLES)]
pub(crate) struct RunArray {
    /// Most pilots: jobs that hold the resources of one task each. Default: as many as tasks may run
    /// at once (%N), 256 at most.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) pilots: Option<u32>,
    /// Time limit of a pilot, as sbatch's --time. Default: enough for its part of the tasks at their
    /// limit, within that of the partition.
    #[arg(long, value_name = "TIME", value_parser = slurm_time_ms)]
    pub(crate) pilot_time: Option<u64>,
    /// Where the array's folder is made. Default: .hotpot/arrays in the job's working folder. It must
    /// be on a file system that all nodes share.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Ask the GPU memory that earlier runs of this user and name have used, as `hotpot slurm size` tells, instead
    /// of what the script asks; scripts without an array too. A --gpu-mem among sbatch's words counts all the
    /// same. An array that is resumed keeps what it has.
    #[arg(long, env = "HOTPOT_RIGHT_SIZE", value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) right_size: bool,
    /// Wait for the end of the array and say what it came to.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Continue the array of this job, or in this folder. Tasks that came to an end are not repeated.
    #[arg(long, value_name = "JOB|FOLDER", conflicts_with_all = ["words", "folder"])]
    pub(crate) resume: Option<String>,
    /// With --resume: do tasks once more that ended badly.
    #[arg(long, requires = "resume")]
    pub(crate) retry_failed: bool,
    /// As for sbatch: its options, the script, and what the script is given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SBATCH'S WORDS")]
    pub(crate) words: Vec<String>,
}

const RUN_EXAMPLES: &str = "Examples:
  hotpot slurm run embed.sbatch
  hotpot slurm run --pilots 4 --wait -p gpu --array=1-1000%10 embed.sbatch input/
  hotpot slurm run --right-size embed.sbatch
  hotpot slurm run --resume 4711 --retry-failed

Options of hotpot come first, those of sbatch behind them.
Exit codes: 0 submitted (with --wait: all tasks done), 1 refused or some failed, 2 wrong usage.";

#[derive(Debug, Group)]
#[command(after_help = "Exit code 1 says that some task has failed.\n\
                        Example: hotpot slurm tasks 4711 --all")]
pub(crate) struct Tasks {
    /// Number of the array's job, or its folder.
    pub(crate) array: String,
    /// List each task.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) output: OutputChoice,
}

const ON_NODE: &str = "Slurm sets the variables. It is to run as root; see deploy/slurm.";

/// A job on a node.
#[derive(Debug, Group)]
pub(crate) struct OfJob {
    /// The job.
    #[arg(long, env = "SLURM_JOB_ID")]
    pub(crate) job: u32,
    /// The node as Slurm calls it.
    #[arg(long, env = "SLURMD_NODENAME")]
    pub(crate) node: String,
}

#[derive(Debug, Group)]
#[command(after_long_help = CONF_EXAMPLES)]
pub(crate) struct ConfOf {
    /// Names of the nodes that are like this one. Default: this machine's.
    #[arg(long, value_name = "LIST")]
    pub(crate) nodes: Option<String>,
    /// MiB of GPU memory that one shard stands for. Default: ShardMiB of hotpot.conf, else 256.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) shard_mib: Option<u64>,
    /// Print one part alone.
    #[arg(long)]
    pub(crate) part: Option<Part>,
    /// Use simulated GPUs, such as a100-80gb:4, instead of this machine's.
    #[arg(long, value_name = "MODEL:COUNT|FOLDER")]
    pub(crate) simulate_gpus: Option<String>,
}

/// A part of the configuration.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Part {
    /// The lines of gres.conf.
    Gres,
    /// What follows `Gres=` in the nodes' line of slurm.conf.
    Node,
}

const CONF_EXAMPLES: &str = "Examples:
  hotpot slurm conf --nodes 'gpu[01-16]'
  hotpot slurm conf --part gres >> /etc/slurm/gres.conf
  hotpot slurm conf --simulate-gpus a100-80gb:4 --nodes n1

Check what Slurm makes of it with: slurmd -G";

pub(crate) fn slurm_time_ms(text: &str) -> Result<u64, String> {
    let time = formats::quantity::slurm_time_ms(text).map_err(|complaint| complaint.to_string())?;
    time.ok_or_else(|| "give a time such as 60 (minutes) or 1-12:00:00".to_string())
}
