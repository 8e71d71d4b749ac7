//! `hotpot advise`: how should these workloads share, how many cards does that take, and what do they lose?

mod explain;
mod json;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use advice::{Question, report};
use clap::Args as Group;
use formats::Source;
use formats::sbatch::SHARD_MIB_DEFAULT;
use model::{Arrival, GpuModel, Trace, WorkloadId};
use simulator::Predicted;

use crate::args::{FleetChoice, Output, OutputChoice, price};
use crate::failure::{Answer, Failure};
use crate::{inputs, outputs, screen};

const EXAMPLES: &str = "Examples:
  hotpot advise jobs.toml --gpus a100-80gb:10
  hotpot advise jobs.toml --gpus a100-80gb:10 --price 2.5 --explain
  hotpot advise jobs.toml --gpus a100-80gb:10 --price 2.5 --report advice.html
  sacct -aXDP -S now-30days -o JobID,JobName,User,State,Submit,Eligible,Start,End,ElapsedRaw,\\
TimelimitRaw,AllocTRES | hotpot advise --from-slurm - --gpus a100-80gb:32";

#[derive(Debug, Group)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Advise {
    /// The workloads: TOML or YAML, Kubernetes manifests, an sbatch script, a list of sacct's or a trace.
    #[arg(required_unless_present = "from_slurm")]
    pub(crate) workloads: Option<PathBuf>,
    /// Jobs of Slurm's accounting, - for standard input; see the example.
    #[arg(long, value_name = "FILE", conflicts_with = "workloads")]
    pub(crate) from_slurm: Option<PathBuf>,
    /// The cards that there are, of one model.
    #[arg(long, value_name = "MODEL:COUNT")]
    pub(crate) gpus: String,
    /// What a GPU costs an hour, in whatever currency.
    #[arg(long, value_name = "AMOUNT", value_parser = price)]
    pub(crate) price: Option<f64>,
    /// Show the arithmetic, line by line.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Write a page (HTML) with all ways of sharing compared, the cards drawn to scale, hours and money.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputChoice,
}

pub(crate) fn run(options: &Advise) -> Result<Answer, Failure> {
    let place = options.workloads.as_deref().or(options.from_slurm.as_deref());
    let place = place.unwrap_or(Path::new(""));
    let written = options.report.as_deref().map(|path| ("--report", path));
    outputs::check(&[place], written.as_slice())?;
    let trace = match options.from_slurm {
        Some(_) => inputs::accounts(place, None)?,
        None => listed(place)?,
    };
    if !trace.arrivals.iter().any(|arrival| arrival.workload.demand.gpus.is_some()) {
        let path = place.display();
        return Err(Failure::Usage(format!(
            "{path}: no workload asks for a GPU; there is nothing to advise on"
        )));
    }
    let (model, cards) = cards(&options.gpus)?;
    let speeds = Predicted::default();
    let question = Question { trace: &trace, model: &model, cards, speeds: &speeds };
    let advice = advice::advise(&question)?;
    let asked = Asked { question: &question, price: options.price };
    let report = match &options.report {
        Some(path) => {
            outputs::write(path, &report::html(&question, &advice, options.price), "report")
        }
        None => Ok(Answer::Yes),
    };
    // What was advised is printed even if the page could not be written.
    let printed = screen::print(&match options.output.output {
        Output::Json => json::text(&asked, &advice),
        Output::Table if options.explain => {
            table::text(&asked, &advice) + "\n" + &explain::text(&asked, &advice)
        }
        Output::Table => table::text(&asked, &advice),
    });
    report.and(printed)
}

/// What was asked, with the price.
struct Asked<'a> {
    question: &'a Question<'a>,
    price: Option<f64>,
}

/// The workloads of a file: of manifests and scripts each task of each job, of everything else what its reader says.
fn listed(path: &Path) -> Result<Trace, Failure> {
    let source = Source::open(path)?;
    let is_yaml = matches!(source.extension().as_str(), "yaml" | "yml");
    if !is_yaml || !formats::kubernetes::is_manifest(&source) {
        return inputs::trace(path, None, None);
    }
    let mut arrivals: Vec<Arrival> = Vec::new();
    for job in formats::jobs_of(&source, SHARD_MIB_DEFAULT)? {
        let first = WorkloadId(arrivals.len() as u64);
        let tasks = job.tasks(first).into_iter();
        arrivals.extend(tasks.map(|workload| Arrival { at_ms: 0, runs_ms: None, workload }));
    }
    Ok(Trace { arrivals })
}

/// The model and the number of cards of `a100-80gb:10`.
fn cards(words: &str) -> Result<(Arc<GpuModel>, u32), Failure> {
    let choice = FleetChoice { fleet: None, gpus: Some(words.to_owned()) };
    let fleet = inputs::fleet(&choice, Path::new(""))?;
    let gpu = fleet.nodes().first().and_then(|node| node.gpus().first());
    let model = gpu.map(|gpu| Arc::new(gpu.model().clone()));
    let cards = u32::try_from(fleet.gpu_count()).unwrap_or(u32::MAX);
    model
        .map(|model| (model, cards))
        .ok_or_else(|| Failure::Usage(format!("--gpus {words}: no GPU")))
}
