//! One door for everything that can be simulated: the kind of file is told by header or extension.

use std::path::{Path, PathBuf};

use model::{Arrival, Trace};

use crate::error::ReadError;
use crate::philly::{self, GAVEL_COLUMNS, RUNTIME_COLUMNS, Synthesis};
use crate::sbatch::{self, SHARD_MIB_DEFAULT};
use crate::text::Source;
use crate::throughput::Throughputs;
use crate::{openb, sacct, table, workloads};

/// What kind of file a trace was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// An openb task list (CSV).
    Openb,
    /// A list of running times (CSV).
    Runtimes,
    /// Gavel's arrivals (CSV).
    Gavel,
    /// A workload file (TOML or YAML).
    Workloads,
    /// An sbatch script.
    Sbatch,
    /// Jobs of Slurm's accounting (`sacct --parsable2`).
    Sacct,
}

/// What the files themselves leave open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Device memory that one `--gres=shard` stands for, in MiB.
    pub shard_mib: u64,
    /// Arrivals and demands for lists of running times.
    pub synthesis: Synthesis,
    /// Throughput table that turns Gavel's steps into time; without one such a trace is refused.
    pub throughputs: Option<PathBuf>,
    /// GPU model of that table.
    pub throughputs_gpu: String,
    /// GPUs of a node, by which Gavel's workers are grouped.
    pub gpus_per_node: u32,
}

impl Default for TraceOptions {
    /// 1 GiB a shard, [`Synthesis::default`], no throughput table, `v100`, 8 GPUs a node.
    fn default() -> Self {
        Self {
            shard_mib: SHARD_MIB_DEFAULT,
            synthesis: Synthesis::default(),
            throughputs: None,
            throughputs_gpu: "v100".to_string(),
            gpus_per_node: 8,
        }
    }
}

/// A trace, and what was found on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The arrivals, ascending in time. Ids are as the reader of that kind says.
    pub trace: Trace,
    /// What the file is.
    pub kind: TraceKind,
    /// What the user should know: what was made up, ignored or not understood.
    pub notes: Vec<String>,
}

/// Reads whatever can be simulated.
///
/// # Errors
/// As the readers of each kind; a file of no known kind is answered with the kinds there are.
pub fn read_trace(path: &Path, options: &TraceOptions) -> Result<Reading, ReadError> {
    read(&Source::open(path)?, options)
}

/// As [`read_trace`], of a file that is open.
///
/// # Errors
/// As [`read_trace`].
pub fn read(source: &Source, options: &TraceOptions) -> Result<Reading, ReadError> {
    let kind = kind(source)?;
    let mut notes = Vec::new();
    let trace = match kind {
        TraceKind::Openb => openb::tasks(source)?,
        TraceKind::Workloads => workloads::read(source)?,
        TraceKind::Runtimes => {
            let Synthesis { seed, gap_ms, .. } = options.synthesis;
            notes.push(format!(
                "arrivals are made up: shuffled with seed {seed}, one every {} s",
                gap_ms as f64 / 1000.0
            ));
            philly::runtimes(source, &options.synthesis)?
        }
        TraceKind::Gavel => {
            let table = throughputs(source, options)?;
            philly::gavel(source, &table, options.gpus_per_node)?
        }
        TraceKind::Sbatch => sbatch_trace(source, options, &mut notes)?,
        TraceKind::Sacct => sacct::trace(source, options.shard_mib, &mut notes)?,
    };
    Ok(Reading { trace, kind, notes })
}

/// What kind of file this is.
///
/// # Errors
/// A file of no known kind.
pub fn kind(source: &Source) -> Result<TraceKind, ReadError> {
    match source.extension().as_str() {
        "toml" | "yaml" | "yml" => return Ok(TraceKind::Workloads),
        "sbatch" | "slurm" | "sh" => return Ok(TraceKind::Sbatch),
        _ if source.text().starts_with("#!") => return Ok(TraceKind::Sbatch),
        _ if sacct::is_header(source.text().lines().next().unwrap_or_default()) => {
            return Ok(TraceKind::Sacct);
        }
        _ => {}
    }
    let header = table::header(source);
    // Half of the columns will do: the reader then names what is missing or wrong.
    let is = |columns: &[&str]| {
        let found = columns.iter().filter(|column| header.iter().any(|name| name == *column));
        2 * found.count() >= columns.len() && !header.is_empty()
    };
    if is(&openb::NODE_COLUMNS) && header.iter().any(|name| name == "sn") {
        return Err(source.error("is an openb node list", "give it as the fleet"));
    }
    if is(&openb::POD_COLUMNS) {
        return Ok(TraceKind::Openb);
    }
    if is(&GAVEL_COLUMNS) {
        return Ok(TraceKind::Gavel);
    }
    if is(&RUNTIME_COLUMNS) {
        return Ok(TraceKind::Runtimes);
    }
    let way_out = format!(
        "give CSV with {} (openb), {} (Gavel) or {} (running times), a list of sacct's, a .toml \
         or .yaml file of workloads, or an sbatch script",
        openb::POD_COLUMNS.join(","),
        GAVEL_COLUMNS.join(","),
        RUNTIME_COLUMNS.join(","),
    );
    Err(source.error("is of no known kind", way_out))
}

fn throughputs(source: &Source, options: &TraceOptions) -> Result<Throughputs, ReadError> {
    match &options.throughputs {
        Some(path) => Throughputs::read(&Source::open(path)?, &options.throughputs_gpu),
        None => {
            let what = "gives steps, not times";
            let way_out =
                "name a throughput table (--throughputs): gavel_simulation_throughputs.json.gz";
            Err(source.error(what, way_out).in_field("total_steps"))
        }
    }
}

/// A script's workloads, all at 0; each runs for its whole time limit, which is all that is known.
fn sbatch_trace(
    source: &Source,
    options: &TraceOptions,
    notes: &mut Vec<String>,
) -> Result<Trace, ReadError> {
    let script = sbatch::read(source, options.shard_mib)?;
    notes.extend(script.warnings);
    notes.extend(script.ignored.iter().map(|option| format!("ignored: {option}")));
    let limited = script.workloads.iter().all(|workload| workload.time_limit_ms.is_some());
    let runs = match limited {
        true => "every task is taken to run for its whole time limit",
        false => "it has no --time: in a simulation its tasks never end",
    };
    notes.push(runs.to_string());
    let arrival = |workload: model::Workload| Arrival {
        at_ms: workload.submitted_ms,
        runs_ms: workload.time_limit_ms,
        workload,
    };
    Ok(Trace { arrivals: script.workloads.into_iter().map(arrival).collect() })
}
