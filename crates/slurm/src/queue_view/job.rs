//! A job as slurmctld tells of it, with what it asks on each of its nodes.

use formats::quantity::slurm_memory_mib;
use formats::sacct::Tres;

use super::tasks::Tasks;
use crate::gres::{self, Amount};
use crate::hostlist;
use crate::job::Job;
use crate::record::Record;

/// Fields in which Slurm tells what GRES is asked, and what they count on.
const PER_NODE: [&str; 2] = ["TresPerNode", "TresPerSocket"];
const PER_JOB: &str = "TresPerJob";
const PER_TASK: &str = "TresPerTask";
/// Where it tells what it counts: newer releases (23.02 on) apart for what is held and what is asked.
const TRES: [&str; 3] = ["AllocTRES", "ReqTRES", "TRES"];
/// What newer releases write beside GRES in those fields, as `TresPerTask=cpu=8`.
const NOT_GRES: [&str; 4] = ["cpu", "mem", "node", "billing"];
/// Letters of a list of tasks that a name shows, as many as Slurm's own programs do.
const TASKS_SHOWN: usize = 64;

/// GRES asked on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GresNeed {
    /// `gpu`, `shard`, `mps` or another.
    pub name: String,
    /// Its type; empty for any.
    pub kind: String,
    /// How many.
    pub count: u64,
}

/// What a job asks on one of its nodes; where Slurm may spread it unevenly, the even part, rounded up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// CPUs.
    pub cpus: u64,
    /// Memory.
    pub memory_mib: u64,
    /// GPUs and shares of them.
    pub gres: Vec<GresNeed>,
}

/// What a job holds of one node besides GRES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPart {
    pub(crate) node: String,
    pub(crate) cpus: u64,
    pub(crate) memory_mib: u64,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Its number, state, comment, and what it holds.
    pub job: Job,
    /// As users are told of it: `7`, `4_3`, `4_[3-9]`.
    pub name: String,
    /// What its user calls it.
    pub title: String,
    /// The number of the array that it is of.
    pub array: Option<u32>,
    /// Its tasks of the array.
    pub tasks: Tasks,
    /// Its user.
    pub user: String,
    /// Its account; empty without accounting.
    pub account: String,
    /// Its quality of service.
    pub qos: String,
    /// Partitions that it may run in.
    pub partitions: Vec<String>,
    /// Why it waits, as Slurm says it.
    pub reason: Option<String>,
    /// Higher goes first; 0 is held.
    pub priority: u64,
    /// When it was submitted, in seconds since 1970.
    pub submit_s: Option<u64>,
    /// When it started, or is expected to.
    pub start_s: Option<u64>,
    /// When it ends at the latest, or has ended; `None` for no limit.
    pub end_s: Option<u64>,
    /// Where Slurm expects it to start.
    pub expected_on: Option<String>,
    /// Nodes that it has.
    pub nodes: Vec<String>,
    /// Nodes that it needs.
    pub nodes_min: u32,
    /// What it asks on each.
    pub need: Need,
    /// Nodes that must be among its.
    pub required: Vec<String>,
    /// Nodes that must not.
    pub excluded: Vec<String>,
    /// Features that its nodes must have, as Slurm writes it.
    pub features: Option<String>,
    /// Its reservation.
    pub reservation: Option<String>,
    /// What it waits for, as Slurm writes it.
    pub dependency: Option<String>,
    /// Of an array: how many tasks may run at once.
    pub throttle: Option<u64>,
    /// What `hotpot slurm run` has written to its Comment of the tasks that its pilots do.
    pub note: Option<String>,
    /// What Slurm counts for it: held, or asked while it waits.
    pub tres: Tres,
    pub(crate) held: Vec<HostPart>,
}

impl JobView {
    pub(super) fn of(record: &Record) -> Option<Self> {
        let job = Job::of(record)?;
        let text = |name| record.get(name).unwrap_or_default().to_owned();
        let list = |name| record.get(name).map(hostlist::expand).unwrap_or_default();
        let array = record.number("ArrayJobId").and_then(|number| u32::try_from(number).ok());
        let indices = record.get("ArrayTaskId").unwrap_or_default();
        let name = match array.filter(|_| indices.contains(['-', ',', '.'])) {
            Some(array) => format!("{array}_[{}]", short(indices)),
            None => job.name.clone(),
        };
        let nodes_min = first_number(record.get("NumNodes")).unwrap_or(1).max(1);
        let dependency = record.get("Dependency").map(str::to_owned);
        let user = text("UserId").split('(').next().unwrap_or_default().to_owned();
        Some(Self {
            name,
            title: text("JobName"),
            array,
            tasks: Tasks::parse(indices),
            user,
            account: text("Account"),
            qos: text("QOS"),
            partitions: text("Partition").split(',').map(str::to_owned).collect(),
            reason: record.get("Reason").map(str::to_owned),
            priority: record.number("Priority").unwrap_or(0),
            submit_s: record.number("SubmitTime"),
            start_s: record.number("StartTime"),
            end_s: record.number("EndTime"),
            expected_on: record.get("SchedNodeList").map(str::to_owned),
            nodes: list("NodeList"),
            nodes_min: u32::try_from(nodes_min).unwrap_or(u32::MAX),
            need: need(record, nodes_min),
            required: list("ReqNodeList"),
            excluded: list("ExcNodeList"),
            features: record.get("Features").map(str::to_owned),
            reservation: record.get("Reservation").map(str::to_owned),
            dependency,
            throttle: record.number("ArrayTaskThrottle").filter(|most| *most > 0),
            note: record.get("Comment").filter(|text| text.starts_with("hotpot:")).map(Into::into),
            tres: Tres::parse(TRES.iter().find_map(|name| record.get(name)).unwrap_or_default()),
            held: held(record),
            job,
        })
    }

    /// Whether it waits in the queue.
    pub fn waits(&self) -> bool {
        matches!(self.job.state.as_str(), "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "SPECIAL_EXIT")
    }
}

/// A list of tasks as names show it: without how many may run at once, and not longer than a line.
fn short(indices: &str) -> String {
    let indices = indices.split('%').next().unwrap_or_default();
    if indices.len() <= TASKS_SHOWN {
        return indices.to_owned();
    }
    let begin: String = indices.chars().take(TASKS_SHOWN - 3).collect();
    let whole = begin.rsplit_once(',').map_or(begin.as_str(), |(whole, _)| whole);
    format!("{whole},...")
}

/// `2` of `2-4` or `2`.
fn first_number(text: Option<&str>) -> Option<u64> {
    text?.split('-').next()?.parse().ok()
}

fn memory_mib(text: Option<&str>) -> Option<u64> {
    text.filter(|text| *text != "0").and_then(|text| slurm_memory_mib(text).ok())
}

fn need(record: &Record, nodes: u64) -> Need {
    let number = |name| first_number(record.get(name)).unwrap_or(0);
    let cpus = number("MinCPUsNode").max(number("NumCPUs").div_ceil(nodes));
    let tasks_per_node = number("NumTasks").max(1).div_ceil(nodes);
    let per_node = memory_mib(record.get("MinMemoryNode"));
    let per_cpu = || memory_mib(record.get("MinMemoryCPU")).map(|mib| mib.saturating_mul(cpus));
    let of_job = |need: GresNeed| GresNeed { count: need.count.div_ceil(nodes), ..need };
    let of_tasks = |need: GresNeed| {
        let count = need.count.saturating_mul(tasks_per_node);
        GresNeed { count, ..need }
    };
    let gres = PER_NODE.iter().flat_map(|field| asked(record.get(field)));
    let gres = gres.chain(asked(record.get(PER_JOB)).map(of_job));
    let gres = gres.chain(asked(record.get(PER_TASK)).map(of_tasks));
    Need { cpus, memory_mib: per_node.or_else(per_cpu).unwrap_or(0), gres: largest(gres) }
}

/// Who says it in several ways (`--gpus=2 --gpus-per-node=1`) asks once.
fn largest(all: impl Iterator<Item = GresNeed>) -> Vec<GresNeed> {
    let mut largest: Vec<GresNeed> = Vec::new();
    for need in all {
        let known = largest.iter_mut().find(|it| (&it.name, &it.kind) == (&need.name, &need.kind));
        match known {
            Some(known) => known.count = known.count.max(need.count),
            None => largest.push(need),
        }
    }
    largest
}

fn asked(text: Option<&str>) -> impl Iterator<Item = GresNeed> {
    let all = gres::amounts(text.unwrap_or_default());
    let gres = all.filter(|one| !NOT_GRES.contains(&one.name) && !one.name.starts_with("license"));
    gres.map(|Amount { name, kind, count }| GresNeed {
        name: name.to_owned(),
        kind: kind.unwrap_or_default().to_owned(),
        count,
    })
}

fn held(record: &Record) -> Vec<HostPart> {
    let nodes = record.values("Nodes");
    let (cpus, memory) = (record.values("CPU_IDs"), record.values("Mem"));
    let lines = nodes.iter().zip(cpus).zip(memory);
    let parts = lines.flat_map(|((nodes, cpus), memory)| {
        let cpus = hostlist::numbers(cpus).map_or(0, |all| all.len() as u64);
        let memory_mib = memory.parse().unwrap_or(0);
        hostlist::expand(nodes).into_iter().map(move |node| HostPart { node, cpus, memory_mib })
    });
    parts.take(hostlist::NAMES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_of_old_and_new_releases_are_read() {
        let of = |text| {
            let found = asked(Some(text)).map(|need| (need.name, need.kind, need.count));
            found.collect::<Vec<_>>()
        };
        let one = |name: &str, kind: &str, count| (name.to_owned(), kind.to_owned(), count);
        assert_eq!(of("gres:gpu:a100:2"), [one("gpu", "a100", 2)]);
        assert_eq!(
            of("gres/gpu:a100=2,gres/shard=3"),
            [one("gpu", "a100", 2), one("shard", "", 3)]
        );
        assert_eq!(of("gres:gpu"), [one("gpu", "", 1)]);
        assert_eq!(of("gpu:1g.10gb"), [one("gpu", "1g.10gb", 1)]);
        assert_eq!(asked(None).count(), 0);
    }

    #[test]
    fn what_waits_of_an_array_keeps_its_tasks() {
        let line = "JobId=4 ArrayJobId=4 ArrayTaskId=3-5,9%2 UserId=ann(1) JobState=PENDING BatchFlag=1 \
                    NumNodes=2-3 NumCPUs=8 NumTasks=4 MinMemoryCPU=1G TresPerTask=gres:gpu:1";
        let job = JobView::of(&Record::parse(line)).unwrap();
        assert_eq!((job.name.as_str(), job.nodes_min), ("4_[3-5,9]", 2));
        assert!([3, 4, 5, 9].into_iter().all(|task| job.tasks.contains(task)));
        assert_eq!(job.tasks.count(), 4);
        assert_eq!((job.need.cpus, job.need.memory_mib, job.need.gres[0].count), (4, 4096, 2));
    }
}
