//! Workload files (TOML or YAML): what someone wants to run, with arrays, gangs and copies.
//!
//! The keys are described in `docs/files.md`. Entries are sorted by `submit`, equal ones stay in
//! file order; copies and array tasks follow one another. Ids are positions in that order.

use model::{Arrival, Class, Demand, Owner, Trace, Workload, WorkloadId};

use crate::array::ArraySpec;
use crate::demand;
use crate::error::ReadError;
use crate::job::Job;
use crate::keys::Keys;
use crate::profile::{latencies_ms, profile};
use crate::text::Source;
use crate::{WORKLOADS_MAX, command, names, quantity};

/// Owner of workloads whose file names none.
pub const OWNER_DEFAULT: &str = "local";

/// Most members of a gang.
const MEMBERS_MAX: u32 = 65_536;
/// Largest distance of a priority from 0.
const PRIORITY_MAX: i64 = 1_000_000_000;

const KEYS: [&str; 33] = [
    "name",
    "owner",
    "class",
    "priority",
    "cpus",
    "memory",
    "gpus",
    "gpu_share",
    "gpu_compute",
    "gpu_memory",
    "mig_profile",
    "models",
    "isolation",
    "modes",
    "members",
    "apart",
    "array",
    "count",
    "time_limit",
    "submit",
    "runs",
    "kind",
    "profile",
    "latency_target_ms",
    "latency_alone_ms",
    "preemptible",
    "preempts",
    "command",
    "directory",
    "output",
    "error",
    "env",
    "after",
];

/// One entry of the file, before copies and array tasks are made of it.
struct Draft {
    arrival: Arrival,
    copies: Option<u32>,
    array: Option<ArraySpec>,
}

/// Reads a workload file.
///
/// # Errors
/// The first value that is wrong, with its line: an unknown key, a share above 1, GPU keys without
/// GPUs, modes that cannot hold what is asked, more than [`WORKLOADS_MAX`] workloads.
pub fn read(source: &Source) -> Result<Trace, ReadError> {
    let mut drafts = entries(source, draft)?;
    drafts.sort_by_key(|draft| draft.arrival.at_ms);
    let mut arrivals = Vec::new();
    for draft in &drafts {
        draft.expand(&mut arrivals);
    }
    Ok(Trace { arrivals })
}

/// Reads a workload file whose entries are to be run, each copy a job of its own.
///
/// # Errors
/// As [`read`], and an entry without a command.
pub fn jobs(source: &Source) -> Result<Vec<Job>, ReadError> {
    let drafts =
        entries(source, |keys| Ok((draft(keys)?, command::launch(keys)?, command::after(keys)?)))?;
    let mut jobs = Vec::new();
    for (draft, launch, after) in drafts {
        for copy in 0..draft.copies.unwrap_or(1) {
            let mut pattern = draft.arrival.workload.clone();
            if draft.copies.is_some() {
                pattern.name = format!("{}-{copy}", pattern.name);
            }
            let (array, launch, after) = (draft.array.clone(), launch.clone(), after.clone());
            let (ignored, warnings) = (Vec::new(), Vec::new());
            jobs.push(Job { pattern, array, launch, after, ignored, warnings });
        }
    }
    Ok(jobs)
}

/// What `read` makes of each entry, in file order; the entries together stay within
/// [`WORKLOADS_MAX`].
fn entries<T>(
    source: &Source,
    read: impl Fn(&Keys<'_>) -> Result<T, ReadError>,
) -> Result<Vec<T>, ReadError> {
    let tree = source.tree()?;
    let file = Keys::of_file(source, &tree, &["workload"])?;
    let (mut found, mut total) = (Vec::new(), 0);
    for item in file.need("workload", "a [[workload]] table")?.items()? {
        let keys = item.keys(&KEYS)?;
        found.push(read(&keys)?);
        total += draft(&keys)?.workloads();
        if total > WORKLOADS_MAX {
            let what = format!("makes more than {WORKLOADS_MAX} workloads");
            return Err(item.error(what, "lower count or array, or split the file"));
        }
    }
    Ok(found)
}

fn draft(keys: &Keys<'_>) -> Result<Draft, ReadError> {
    let array = keys.read("array", ArraySpec::parse)?;
    let copies = keys.get("count").map(|field| field.count(1, WORKLOADS_MAX as u32)).transpose()?;
    let at_ms = keys.read("submit", quantity::duration_ms)?.unwrap_or(0);
    let runs_ms = keys.read("runs", quantity::duration_ms)?;
    let workload = workload(keys, at_ms)?;
    Ok(Draft { arrival: Arrival { at_ms, runs_ms, workload }, copies, array })
}

fn workload(keys: &Keys<'_>, submitted_ms: u64) -> Result<Workload, ReadError> {
    let name = keys.need("name", "name = \"…\"")?.text()?.to_string();
    let owner = keys.get("owner").map(|field| field.text()).transpose()?;
    let count = |name: &str, most: u32| keys.get(name).map(|f| f.count(1, most)).transpose();
    let kind = keys.get("kind").map(|field| field.text()).transpose()?;
    let (latency_target_ms, latency_alone_ms) = latencies_ms(keys)?;
    let flag = |name: &str| keys.get(name).map_or(Ok(true), |field| field.flag());
    Ok(Workload {
        id: WorkloadId(0),
        name,
        owner: Owner::new(owner.unwrap_or(OWNER_DEFAULT)),
        class: keys.read("class", names::class)?.unwrap_or(Class::Batch),
        priority: keys.read("priority", priority)?.unwrap_or(0),
        submitted_ms,
        time_limit_ms: time_limit(keys)?,
        demand: Demand {
            cpu_milli: keys.read("cpus", quantity::cpu_milli)?.unwrap_or(0),
            memory_mib: keys.read("memory", quantity::memory_mib)?.unwrap_or(0),
            gpus: demand::gpus(keys)?,
            ..Demand::default()
        },
        members: count("members", MEMBERS_MAX)?.unwrap_or(1),
        apart: keys.get("apart").map(|field| field.flag()).transpose()?.unwrap_or(false),
        array: None,
        kind: kind.unwrap_or_default().to_string(),
        profile: profile(keys)?,
        latency_target_ms,
        latency_alone_ms,
        preemptible: flag("preemptible")?,
        preempts: flag("preempts")?,
    })
}

fn time_limit(keys: &Keys<'_>) -> Result<Option<u64>, ReadError> {
    let Some(field) = keys.get("time_limit") else {
        return Ok(None);
    };
    match field.read(quantity::duration_ms)? {
        0 => Err(field.error("leaves no time to run", "give more, or leave it out")),
        limit => Ok(Some(limit)),
    }
}

fn priority(text: &str) -> Result<i32, crate::Complaint> {
    let number = text.trim().parse::<i64>().ok().filter(|number| number.abs() <= PRIORITY_MAX);
    number.and_then(|number| i32::try_from(number).ok()).ok_or_else(|| {
        let what = format!("{} is not a priority", crate::error::quote(text));
        crate::Complaint::new(what, format!("give a whole number from -{0} to {0}", PRIORITY_MAX))
    })
}

impl Draft {
    /// Workloads that it stands for.
    fn workloads(&self) -> usize {
        let tasks = self.array.as_ref().map_or(1, |array| array.indices.len());
        tasks.saturating_mul(self.copies.unwrap_or(1) as usize)
    }

    /// Adds its workloads; ids go on from what is there.
    fn expand(&self, arrivals: &mut Vec<Arrival>) {
        for copy in 0..self.copies.unwrap_or(1) {
            let id = WorkloadId(arrivals.len() as u64);
            let mut workload = Workload { id, ..self.arrival.workload.clone() };
            if self.copies.is_some() {
                workload.name = format!("{}-{copy}", workload.name);
            }
            let workloads = match &self.array {
                Some(array) => array.tasks(id, &workload),
                None => vec![workload],
            };
            let Arrival { at_ms, runs_ms, .. } = self.arrival;
            let arrival = |workload| Arrival { at_ms, runs_ms, workload };
            arrivals.extend(workloads.into_iter().map(arrival));
        }
    }
}
