//! The cluster at one moment as slurmctld tells of it: nodes with their GPUs, and jobs with what they ask and
//! hold. What each job holds of which GPU comes from its own record, as the nodes' records of old releases
//! count devices only.

mod ask;
mod job;
mod node;
mod tasks;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

use crate::commands::{Slurm, SlurmError};
use crate::hostlist;
use crate::record::Record;
pub(crate) use ask::Jobs;
pub use ask::not_shown;
pub use job::{GresNeed, JobView, Need};
pub use node::{Device, NodeView};
pub use tasks::Tasks;

/// What Slurm and the site say, as text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told<'a> {
    /// `scontrol show node -d -o`.
    pub nodes: &'a str,
    /// `scontrol show job -d`, times in seconds since 1970.
    pub jobs: &'a str,
    /// `scontrol show partition -o`.
    pub partitions: &'a str,
    /// `scontrol show reservation -o`.
    pub reservations: &'a str,
}

/// A reservation that holds nodes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<String>,
}

/// The cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueView {
    /// The moment, in seconds since 1970.
    pub now_s: u64,
    /// All nodes.
    pub nodes: Vec<NodeView>,
    /// All jobs that slurmctld remembers.
    pub jobs: Vec<JobView>,
    /// Nodes of each partition.
    pub partitions: BTreeMap<String, Vec<String>>,
    /// Reservations that are active.
    pub reservations: Vec<Reservation>,
    /// Numbers of jobs that cannot be read: they are not among the others.
    pub unread: Vec<u64>,
    /// Device memory that one shard stands for.
    pub shard_mib: u64,
    /// Positions of the jobs that are on a node, by its name.
    on_nodes: BTreeMap<String, Vec<usize>>,
    /// Positions of the nodes, by name.
    named: BTreeMap<String, usize>,
}

/// What a job holds of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// The job.
    pub job: &'a JobView,
    /// `gpu`, `shard` or `mps`.
    pub name: &'a str,
    /// How much of it.
    pub portion: Portion,
}

/// How much of a device is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// All of it.
    Whole,
    /// So many shards, or percent of MPS.
    Parts(u64),
}

impl Portion {
    /// Whether it is all of the device.
    pub fn is_whole(self) -> bool {
        self == Self::Whole
    }

    /// Shards or percent of MPS; none where the whole device is held.
    pub fn parts(self) -> u64 {
        match self {
            Self::Whole => 0,
            Self::Parts(parts) => parts,
        }
    }
}

/// As [`Portion::parts`].
impl Serialize for Portion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.parts())
    }
}

impl QueueView {
    /// Asks slurmctld.
    ///
    /// * `shard_mib` — see [`QueueView::shard_mib`].
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn ask(slurm: Slurm, shard_mib: u64) -> Result<Self, SlurmError> {
        let (nodes, jobs) = (show(slurm, "node")?, Jobs::ask(slurm)?);
        let (partitions, reservations) = (show(slurm, "partition")?, show(slurm, "reservation")?);
        let told = Told {
            nodes: &nodes,
            partitions: &partitions,
            reservations: &reservations,
            ..Told::default()
        };
        Ok(Self::with(&told, jobs, now_s(), shard_mib))
    }

    /// As [`QueueView::ask`], without partitions and reservations: half the calls, for who asks again and again.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn ask_seats(slurm: Slurm, shard_mib: u64) -> Result<Self, SlurmError> {
        let (nodes, jobs) = (show(slurm, "node")?, Jobs::ask(slurm)?);
        let told = Told { nodes: &nodes, ..Told::default() };
        Ok(Self::with(&told, jobs, now_s(), shard_mib))
    }

    /// Reads what was told.
    pub fn of(told: &Told<'_>, now_s: u64, shard_mib: u64) -> Self {
        Self::with(told, Jobs::of(told.jobs), now_s, shard_mib)
    }

    fn with(told: &Told<'_>, jobs: Jobs, now_s: u64, shard_mib: u64) -> Self {
        let nodes = Record::all(told.nodes);
        let partitions = Record::all(told.partitions);
        let partition = |record: &Record| {
            let nodes = record.get("Nodes").map(hostlist::expand).unwrap_or_default();
            Some((record.get("PartitionName")?.to_owned(), nodes))
        };
        let reservations = Record::all(told.reservations);
        let active = reservations.iter().filter(|one| one.get("State") == Some("ACTIVE"));
        let reservation = |record: &Record| {
            let nodes = record.get("Nodes").map(hostlist::expand).unwrap_or_default();
            Some(Reservation { name: record.get("ReservationName")?.to_owned(), nodes })
        };
        let Jobs { records, mut unread } = jobs;
        let mut jobs = Vec::new();
        for (number, record) in &records {
            match JobView::of(record) {
                Some(job) => jobs.push(job),
                None => unread.push(*number),
            }
        }
        let mut on_nodes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, job) in jobs.iter().enumerate().filter(|(_, job)| job.job.is_on_nodes()) {
            job.nodes.iter().for_each(|node| on_nodes.entry(node.clone()).or_default().push(at));
        }
        let nodes: Vec<NodeView> = nodes.iter().filter_map(NodeView::of).collect();
        let named = nodes.iter().zip(0..).map(|(node, at)| (node.name.clone(), at)).collect();
        Self {
            now_s,
            named,
            nodes,
            jobs,
            on_nodes,
            partitions: partitions.iter().filter_map(partition).collect(),
            reservations: active.filter_map(reservation).collect(),
            unread,
            shard_mib,
        }
    }

    /// The job that a user means by `7`, or by `7_3` for a task of an array. Of an array as a whole it is what
    /// still waits, else its first task; that too is any task which none names, where the list of those that wait is
    /// cut off.
    pub fn find(&self, name: &str) -> Option<&JobView> {
        let exact = self.jobs.iter().find(|job| job.name == name);
        let (array, task) = match name.split_once('_') {
            Some((array, task)) => (array.parse().ok(), task.parse::<u32>().ok()),
            None => (name.parse::<u32>().ok(), None),
        };
        let of_array = |job: &&JobView| match (array, task) {
            (Some(array), Some(task)) => job.array == Some(array) && job.tasks.contains(task),
            (Some(id), None) => job.job.id == id || job.array == Some(id),
            (None, _) => false,
        };
        let mut alike: Vec<&JobView> = self.jobs.iter().filter(of_array).collect();
        alike.sort_by_key(|job| (!job.waits(), !job.job.is_on_nodes(), job.job.id));
        match task {
            Some(_) => exact.or(alike.first().copied()).or_else(|| self.cut_off(array?)),
            None => alike.first().copied().or(exact),
        }
    }

    /// What waits of an array without saying of which tasks.
    fn cut_off(&self, array: u32) -> Option<&JobView> {
        let mut waiting = self.jobs.iter().filter(|job| job.array == Some(array) && job.waits());
        waiting.find(|job| job.tasks.is_cut())
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&NodeView> {
        self.named.get(name).and_then(|at| self.nodes.get(*at))
    }

    /// Jobs that are on a node.
    pub fn on_node(&self, node: &str) -> impl Iterator<Item = &JobView> {
        self.on_nodes.get(node).into_iter().flatten().filter_map(|at| self.jobs.get(*at))
    }

    /// Who holds a device.
    pub fn holders<'a>(&'a self, node: &'a str, device: u32) -> Vec<Holder<'a>> {
        let of_job = |job: &'a JobView| {
            let booked = job.job.booked_on(node).iter().filter_map(move |booked| {
                let amount = *booked.of_device.get(&device)?;
                let portion = match booked.name.as_str() {
                    "gpu" => Portion::Whole,
                    "shard" | "mps" => Portion::Parts(amount),
                    // Devices of another kind.
                    _ => return None,
                };
                Some(Holder { job, name: &booked.name, portion })
            });
            booked.collect::<Vec<_>>()
        };
        self.on_node(node).flat_map(of_job).collect()
    }

    /// Shards of one card by which what is held of it is counted: of the first of some nodes that has any,
    /// else the most that a card of the cluster has; `None` where no card has shards.
    pub fn shards_per_card(&self, nodes: &[String]) -> Option<u64> {
        let of_node = |node: &NodeView| node.devices.iter().map(|device| device.shards).max();
        let named = nodes.iter().filter_map(|name| self.node(name)).filter_map(of_node);
        let any = || self.nodes.iter().filter_map(of_node).max();
        named.filter(|shards| *shards > 0).max().or_else(any).filter(|shards| *shards > 0)
    }
}

fn show(slurm: Slurm, what: &str) -> Result<String, SlurmError> {
    let words: &[&str] = match what {
        "node" => &["show", what, "-d", "-o"],
        _ => &["show", what, "-o"],
    };
    slurm.call_in_seconds("scontrol", words)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
