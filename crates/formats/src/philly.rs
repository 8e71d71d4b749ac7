//! Traces that go back to Microsoft's Philly cluster: bare running times, and Gavel's arrivals.
//!
//! Neither says what CPU and memory a job needs: the demand is whole GPUs (or the stated shares) and
//! 0 of the rest. What is made up is a parameter, and only what is stated there is made up.

use model::{
    Arrival, Class, Demand, GpuAsk, GpuDemand, Isolation, ModeSet, Owner, SplitMix, Trace,
    Workload, WorkloadId,
};

use crate::error::{ReadError, quote};
use crate::near::near;
use crate::table::{Row, Table};
use crate::text::Source;
use crate::throughput::Throughputs;

/// Owner of every job: the traces name none.
pub const OWNER: &str = "philly";

pub(crate) const RUNTIME_COLUMNS: [&str; 1] = ["runtime"];
pub(crate) const GAVEL_COLUMNS: [&str; 4] = ["job_type", "total_steps", "arrival_s", "workers"];

/// Most workers of a job.
const WORKERS_MAX: u64 = 65_536;
/// Most steps of a job.
const STEPS_MAX: u64 = 1_000_000_000_000;

/// What a list of running times leaves open, and how it is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synthesis {
    /// Seed of the shuffle: the published list is sorted by length, which no arrival order is.
    pub seed: u64,
    /// Time between two arrivals: the k-th job (from 0) comes at `k * gap_ms`.
    pub gap_ms: u64,
    /// Thousandths of one GPU that the k-th job asks for, taken in turn; 1000 is a whole GPU. Empty
    /// counts as `[1000]`, values are held to 1 to 1000.
    pub gpu_milli: Vec<u32>,
}

impl Default for Synthesis {
    /// One whole GPU each, a job every two minutes: with the list's mean of 14,613 s that keeps about
    /// 122 GPUs busy.
    fn default() -> Self {
        Self { seed: 0, gap_ms: 120_000, gpu_milli: vec![1000] }
    }
}

/// Reads a list of running times in seconds (column `runtime`) and makes jobs of them.
///
/// # Errors
/// A missing or unknown column, a value that is not a number of seconds, 0 or more.
pub fn runtimes(source: &Source, synthesis: &Synthesis) -> Result<Trace, ReadError> {
    let mut table = Table::open(source, &RUNTIME_COLUMNS, &[])?;
    let mut runtimes = Vec::new();
    while let Some(row) = table.next()? {
        runtimes.push(row.need_seconds_ms("runtime")?);
    }
    SplitMix::new(synthesis.seed).shuffle(&mut runtimes);
    let owner = Owner::new(OWNER);
    let job = |(at, runs_ms): (usize, u64)| {
        let at_ms = synthesis.gap_ms.saturating_mul(at as u64);
        let milli = match synthesis.gpu_milli.len() {
            0 => 1000,
            mix => synthesis.gpu_milli[at % mix].clamp(1, 1000),
        };
        let each = match milli {
            1000 => GpuAsk::Whole,
            compute_milli => GpuAsk::Fraction { compute_milli, memory_mib: 0 },
        };
        let workload = workload(at, format!("philly-{at}"), &owner, (at_ms, 1), (1, each));
        Arrival { at_ms, runs_ms: Some(runs_ms), workload }
    };
    Ok(Trace { arrivals: runtimes.into_iter().enumerate().map(job).collect() })
}

/// Reads Gavel's arrivals (`job_type,total_steps,arrival_s,workers`).
///
/// A job's id is its zero-based row; arrivals are sorted by time. Up to `gpus_per_node` workers sit
/// on one node, one GPU each; more become a gang of full nodes, or, where they do not fill nodes
/// evenly, a gang of single GPUs. A job runs `total_steps` divided by its steps per second alone.
///
/// * `gpus_per_node` — at least 1; 0 counts as 1.
///
/// # Errors
/// A missing or unknown column, a value that is not a count, a job that the table does not know.
pub fn gavel(
    source: &Source,
    throughputs: &Throughputs,
    gpus_per_node: u32,
) -> Result<Trace, ReadError> {
    let mut table = Table::open(source, &GAVEL_COLUMNS, &[])?;
    let owner = Owner::new(OWNER);
    let mut arrivals = Vec::new();
    while let Some(row) = table.next()? {
        arrivals.push(gavel_job(&row, throughputs, gpus_per_node.max(1), &owner)?);
    }
    arrivals.sort_by_key(|arrival| arrival.at_ms);
    Ok(Trace { arrivals })
}

fn gavel_job(
    row: &Row<'_>,
    throughputs: &Throughputs,
    gpus_per_node: u32,
    owner: &Owner,
) -> Result<Arrival, ReadError> {
    let workers = row.amount("workers", WORKERS_MAX)? as u32;
    if workers == 0 {
        return Err(row.error("workers", "0 workers do nothing", "give 1 or more"));
    }
    let job = row.name("job_type")?;
    let rate = throughputs.steps_per_s(job, workers);
    let rate = rate.ok_or_else(|| no_rate(row, job, throughputs))?;
    let steps = row.amount("total_steps", STEPS_MAX)?;
    let runs_ms = (steps as f64 / rate * 1000.0).ceil() as u64;
    let at_ms = row.need_seconds_ms("arrival_s")?;
    let (members, count) = match workers {
        few if few <= gpus_per_node => (1, few),
        even if even.is_multiple_of(gpus_per_node) => (even / gpus_per_node, gpus_per_node),
        uneven => (uneven, 1),
    };
    let (at, name) = (row.number, format!("{job} #{}", row.number));
    let workload = workload(at, name, owner, (at_ms, members), (count, GpuAsk::Whole));
    let workload = Workload { kind: job.to_string(), ..workload };
    Ok(Arrival { at_ms, runs_ms: Some(runs_ms), workload })
}

fn no_rate(row: &Row<'_>, job: &str, throughputs: &Throughputs) -> ReadError {
    let close = near(job, throughputs.jobs());
    let names = if close.is_empty() { throughputs.jobs().take(4).collect() } else { close };
    let what = format!("{} is not in the throughput table", quote(job));
    row.error("job_type", what, format!("give one such as {}", names.join(", ")))
}

/// A training job that needs GPUs and nothing else.
fn workload(
    at: usize,
    name: String,
    owner: &Owner,
    (submitted_ms, members): (u64, u32),
    (count, each): (u32, GpuAsk),
) -> Workload {
    let (isolation, modes) = (Isolation::None, ModeSet::ALL);
    let gpus = GpuDemand { count, each, accepts: Vec::new(), isolation, modes };
    let demand = Demand { cpu_milli: 0, memory_mib: 0, gpus: Some(gpus), ..Demand::default() };
    let workload = Workload::new(WorkloadId(at as u64), name, owner.clone(), demand);
    Workload { class: Class::Training, submitted_ms, members, ..workload }
}
