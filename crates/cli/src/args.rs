//! The command line, as given. Help, completions and the man page come from here.

use std::path::PathBuf;
use std::time::Duration;

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
    /// Run jobs on this machine: queued, packed onto its GPUs, capped, logged.
    Run(Run),
    /// Replay a trace under one or more policies and compare them.
    Simulate(Simulate),
    /// Say how workloads should share GPUs, how many that takes, and what they lose.
    Advise(crate::advise::Advise),
    /// Decide where workloads would go, and why the rest waits. Nothing is carried out.
    Plan(Plan),
    /// Say for each node and GPU why a workload could or could not sit there.
    Explain(Explain),
    /// Find mistakes in sbatch scripts, Slurm's configuration and Kubernetes manifests, and mend them.
    Check(crate::check::Check),
    /// Serve what this machine's GPUs do as Prometheus metrics.
    Agent(Agent),
    /// Show this machine's or a Slurm cluster's GPUs as pots: who sits where, what is free.
    Top(Top),
    /// Report what was held of GPUs and what was used, and the right sizes to ask.
    Report(crate::report::Report),
    /// What hotpot adds to Slurm: arrays of short tasks that keep their GPUs busy.
    Slurm(crate::slurm::args::Slurm),
    /// What runs in a Kubernetes cluster: GPUs as devices, pods placed by hotpot and bound by the stock scheduler.
    Kubernetes(crate::kubernetes::args::Kubernetes),
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
#[command(after_long_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// What to run: sbatch scripts, Kubernetes Jobs or Pods (.yaml), workloads with a command (.toml,
    /// .yaml).
    pub(crate) files: Vec<PathBuf>,
    /// Continue an interrupted run, the last one or the one with this number. Tasks that came to an
    /// end are not repeated.
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "0",
          conflicts_with = "files")]
    pub(crate) resume: Option<i64>,
    /// With --resume: do tasks once more that ended badly.
    #[arg(long, requires = "resume")]
    pub(crate) retry_failed: bool,
    /// Use simulated GPUs, such as a100-80gb:8: tasks really run, but compute nothing on a GPU. Or
    /// those of a simulated machine that is up, by the folder that the other `hotpot run` has told.
    #[arg(long, value_name = "MODEL:COUNT|FOLDER", conflicts_with = "resume")]
    pub(crate) simulate_gpus: Option<String>,
    /// Use these GPUs only, as nvidia-smi counts them, such as 0,1. Default: all that nobody uses.
    #[arg(long, value_name = "INDEX", value_delimiter = ',', conflicts_with = "resume")]
    pub(crate) devices: Vec<u32>,
    /// Wait until GPUs are free, if another run has them.
    #[arg(long)]
    pub(crate) wait: bool,
    /// vCPUs to book tasks on. Default: those of this machine; 16 for each simulated GPU.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) cpus: Option<u32>,
    /// Main memory to book tasks on, such as 64GiB. Default: that of this machine; 128 GiB for each
    /// simulated GPU.
    #[arg(long, value_name = "AMOUNT", value_parser = memory_mib)]
    pub(crate) memory: Option<u64>,
    /// Time between telling a task to end (TERM) and ending it (KILL). Default: 30s.
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    pub(crate) grace: Option<u64>,
    /// Placement policy. Default: that of the policy file, else hotpot.
    #[arg(long, value_name = "NAME", value_parser = policy_names(), conflicts_with = "resume")]
    pub(crate) policy: Option<String>,
    /// Placement, quotas, sharing modes, weights and backfill (TOML or YAML).
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) policy_file: Option<PathBuf>,
    /// Show no progress, only what goes wrong and the summary.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) output: OutputChoice,
}

const RUN_EXAMPLES: &str = "Examples:
  hotpot run train.sbatch
  hotpot run prepare.sbatch train.sbatch     (train: --dependency=afterok:prepare)
  hotpot run embed.sbatch --simulate-gpus a100-80gb:10
  hotpot run train.sbatch --simulate-gpus /tmp/hotpot-simulated-123     (beside that one)
  hotpot run --resume

Exit codes: 0 all tasks done, 1 some failed or are left, 2 wrong usage or unreadable input.";

#[derive(Debug, Group)]
#[command(after_long_help = SIMULATE_EXAMPLES)]
pub(crate) struct Simulate {
    /// The trace: an openb task list, a Philly or Gavel list (.csv, also gzipped), jobs of Slurm's
    /// accounting, an sbatch script, or workloads in TOML or YAML.
    #[arg(required_unless_present = "from_slurm")]
    pub(crate) trace: Option<PathBuf>,
    /// Jobs of Slurm's accounting as trace, - for standard input; see the example.
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    pub(crate) from_slurm: Option<PathBuf>,
    /// Device memory that one shard of Slurm's stands for, such as 256MiB. Default: 1GiB in sbatch
    /// scripts, ShardMiB of hotpot.conf, else 256MiB, in accounts.
    #[arg(long, value_name = "AMOUNT", value_parser = memory_mib)]
    pub(crate) shard: Option<u64>,
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
    /// Let everybody run at full speed, whoever sits beside. Default: as fast as is predicted of those who share.
    #[arg(long, conflicts_with = "fill")]
    pub(crate) full_speed: bool,
    /// Throughput table (JSON) that gives the running times of a Gavel trace.
    #[arg(long, value_name = "FILE")]
    pub(crate) throughputs: Option<PathBuf>,
    /// What a GPU costs an hour, in whatever currency: GPUs in use become money.
    #[arg(long, value_name = "AMOUNT", value_parser = price, conflicts_with = "fill")]
    pub(crate) price: Option<f64>,
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
  hotpot simulate trace.csv --fleet fleet.toml --output json > result.json
  sacct -aXDP -S now-30days -o JobID,JobName,User,State,Submit,Eligible,Start,End,ElapsedRaw,\\
TimelimitRaw,AllocTRES | hotpot simulate --from-slurm - --gpus a100-80gb:32";

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
#[command(
    after_help = "Exit code 1 says that the workload does not start now, or that the task failed.\n\
                        Examples:\n  \
                        hotpot explain llama-7b jobs.toml --fleet fleet.toml\n  \
                        hotpot explain 'embed[7]' --run last\n  \
                        hotpot explain 4711     (a job of Slurm: exit code 2 if there is none)\n  \
                        hotpot explain pod/web-0 --namespace team-a     (a pod of the cluster of KUBECONFIG)"
)]
pub(crate) struct Explain {
    /// Name of the workload, or its number as '#3', in quotes; `plan --output json` tells numbers. With
    /// --run, a task: its name, or its number as in its output file. With neither a file nor --run, the
    /// number of a job of Slurm, or pod/NAME.
    pub(crate) workload: String,
    /// Without --run: the file that the workload is in; TOML, YAML, an sbatch script or a trace.
    pub(crate) workloads: Option<PathBuf>,
    /// Say what became of a task of this run on this machine: its number, or `last`.
    #[arg(long, value_name = "RUN", value_parser = run_number,
          conflicts_with_all = ["workloads", "fleet", "gpus", "policy", "policy_file", "gpus_too"])]
    pub(crate) run: Option<u32>,
    /// With --run: the state folder that the run is in. Default: where `hotpot run` keeps it.
    #[arg(long, value_name = "DIR", requires = "run")]
    pub(crate) state: Option<PathBuf>,
    /// With pod/NAME: its namespace. Default: that of KUBECONFIG's context.
    #[arg(long, short, value_name = "NAMESPACE", conflicts_with_all = ["workloads", "run"])]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetChoice,
    /// Placement policy. Default: that of the policy file, else hotpot.
    #[arg(long, value_name = "NAME", value_parser = policy_names())]
    pub(crate) policy: Option<String>,
    /// Placement, quotas, sharing modes, weights and backfill (TOML or YAML).
    #[arg(long, value_name = "FILE")]
    pub(crate) policy_file: Option<PathBuf>,
    /// Show every GPU and who holds it, not only the nodes.
    #[arg(long)]
    pub(crate) gpus_too: bool,
    #[command(flatten)]
    pub(crate) output: OutputChoice,
}

#[derive(Debug, Group)]
#[command(after_help = "Exit code 1 says that there is no driver, or no such address.\n\
                        Examples:\n  \
                        hotpot agent --once | grep hotpot_gpu_busy_ratio\n  \
                        hotpot agent --listen 0.0.0.0:9400 --token-file /etc/hotpot/token\n  \
                        hotpot agent --once --simulate-gpus /tmp/hotpot-simulated-123")]
pub(crate) struct Agent {
    /// Where to listen. Off this machine (not 127.0.0.1 or ::1) only with a token.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9400",
          value_parser = address)]
    pub(crate) listen: std::net::SocketAddr,
    /// Names for dashboards made for NVIDIA's dcgm-exporter, besides our own: those up to its
    /// release 4.8, those of 4.9, or both.
    #[arg(long, value_enum, value_name = "SCHEME", default_value_t = MetricNames::Both)]
    pub(crate) metric_names: MetricNames,
    /// File with a token that scrapers must show (Authorization: Bearer …); readable by its owner
    /// only.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Scrapes in quicker succession than this get the same sample.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration_ms)]
    pub(crate) interval: u64,
    /// Print the metrics once and end.
    #[arg(long)]
    pub(crate) once: bool,
    /// Measure simulated GPUs, such as a100-80gb:8, on a machine that has none; or those of a simulated
    /// machine that is up, by the folder that `hotpot run` has told.
    #[arg(long, value_name = "MODEL:COUNT|FOLDER")]
    pub(crate) simulate_gpus: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricNames {
    /// MHz, MiB, percent: dcgm-exporter up to 4.8.
    Legacy,
    /// Hertz, bytes, ratios: dcgm-exporter 4.9.
    Dcgm49,
    /// Both.
    Both,
}

#[derive(Debug, Group)]
#[command(
    after_help = "Keys: arrows or j k select, Enter details, s sort, p pause, ? help, q quit.\n\
                        Where standard output is no terminal, one picture is printed as text.\n\
                        Examples:\n  \
                        hotpot top --once --output json\n  \
                        hotpot top --slurm --agents http://{node}:940/metrics\n  \
                        hotpot top --simulate-gpus /tmp/hotpot-simulated-123"
)]
pub(crate) struct Top {
    /// Show the GPUs of all nodes of the Slurm cluster: who holds what of them, and what is free.
    #[arg(long, conflicts_with = "simulate_gpus")]
    pub(crate) slurm: bool,
    /// Where the nodes' agents (`hotpot agent`) tell how busy GPUs are: {node} stands for a node's
    /// name, {address} for its address. Default: Agents of hotpot.conf, else nowhere.
    #[arg(long, value_name = "URL", requires = "slurm", value_parser = agents)]
    pub(crate) agents: Option<String>,
    /// File with the token that they want. Default: AgentsToken of hotpot.conf.
    #[arg(long, value_name = "FILE", requires = "slurm")]
    pub(crate) agents_token: Option<PathBuf>,
    /// Print one picture and end.
    #[arg(long)]
    pub(crate) once: bool,
    /// Time between two pictures: 100ms to 1h. Default: 1s, with --slurm 2s, which asks slurmctld for
    /// all nodes and jobs each time.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
    /// Show simulated GPUs, such as a100-80gb:8, on a machine that has none; or those of a simulated
    /// machine that is up, by the folder that `hotpot run` has told.
    #[arg(long, value_name = "MODEL:COUNT|FOLDER")]
    pub(crate) simulate_gpus: Option<String>,
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

#[derive(Clone, Debug, Group)]
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

/// 0 stands for the last run.
fn run_number(text: &str) -> Result<u32, &'static str> {
    let number = if text == "last" { Some(0) } else { text.parse().ok().filter(|run| *run > 0) };
    number.ok_or("give the number of a run, or `last`")
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let ms = formats::quantity::duration_ms(text).ok();
    let within = ms.filter(|ms| (100..=3_600_000).contains(ms));
    within.map(Duration::from_millis).ok_or("give a time from 100ms to 1h, such as 500ms or 2s")
}

fn agents(text: &str) -> Result<String, String> {
    slurm::agents::check(text).map(|()| text.to_owned())
}

fn address(text: &str) -> Result<std::net::SocketAddr, &'static str> {
    text.parse().map_err(|_| "give an IP address and a port, such as 127.0.0.1:9400 or [::1]:9400")
}

fn policy_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(Placement::NAMES)
}

fn percent(text: &str) -> Result<u32, &'static str> {
    let percent = text.parse().ok().filter(|percent| (1..=1000).contains(percent));
    percent.ok_or("give a whole number from 1 to 1000")
}

/// What a GPU costs an hour.
pub(crate) fn price(text: &str) -> Result<f64, &'static str> {
    let price = text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or("give an amount such as 2.5")
}

fn whole(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "give a whole number from 0 to 18446744073709551615")
}

fn memory_mib(text: &str) -> Result<u64, String> {
    formats::quantity::memory_mib(text).map_err(|complaint| complaint.to_string())
}

fn duration_ms(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    formats::quantity::duration_ms(text).map_err(|complaint| complaint.to_string())
}
