//! Why a job waits, where it could run and what is missing there, in amounts; or where it runs and what it
//! holds. Pure: a [`QueueView`] in, an [`Answer`] out; `text` puts it into words.

mod fit;
mod over;
mod reason;
mod text;

use serde::Serialize;

use crate::ask::Ask;
use crate::on_node::sent_back;
use crate::queue_view::{Device, JobView, NodeView, Portion, QueueView};
pub use fit::Lack;
pub use over::{Over, over};

/// Jobs ahead that are named.
const AHEAD_NAMED: usize = 3;

/// What there is to say of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// `hotpot-slurm-job/1`.
    pub format: &'static str,
    /// As users are told of it.
    pub job: String,
    /// What its user calls it.
    pub name: String,
    /// Its user.
    pub user: String,
    /// Its account; empty without accounting.
    pub account: String,
    /// Its partitions.
    pub partitions: Vec<String>,
    /// Slurm's word for its state.
    pub state: String,
    /// How long it has waited, run or, if it is over, ran, in seconds.
    pub for_s: Option<u64>,
    /// What it asks, in words.
    pub asks: String,
    /// Of an array: where its tasks stand, as far as slurmctld remembers them.
    pub array: Option<ArrayTasks>,
    /// Of an array that `hotpot slurm run` does: where the tasks stand that its pilots do.
    pub pilots: Option<String>,
    /// Why hotpot sent it back, if it did.
    pub sent_back: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub standing: Standing,
}

/// Where the tasks of an array stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArrayTasks {
    /// On nodes.
    pub running: usize,
    /// In the queue.
    pub waiting: usize,
    /// Whether more are in the queue than are counted: Slurm has cut the list off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more_wait: bool,
    /// Over.
    pub over: usize,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// In the queue.
    Waits(Waits),
    /// On its nodes.
    Runs(Runs),
    /// Ended.
    Over(Over),
}

/// Why a job waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// As Slurm says it.
    pub reason: Option<String>,
    /// In plain words.
    pub because: String,
    /// Whether it could start on its nodes now, were it alone in the queue.
    pub fits_now: bool,
    /// When it could at the latest, in seconds from now, if the running jobs take their whole limit and
    /// nobody goes ahead of it.
    pub starts_within_s: Option<u64>,
    /// On which nodes.
    pub starts_on: Vec<String>,
    /// Slurm's own guess, in seconds from now, and its nodes.
    pub slurm_expects: Option<(u64, String)>,
    /// Jobs of its partitions with a higher priority that could be started: how many.
    pub ahead: usize,
    /// The first of them.
    pub ahead_first: Vec<Ahead>,
    /// Nodes of its partitions, those that are alike together; the nearest first.
    pub nodes: Vec<Alike>,
}

/// A job that goes first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ahead {
    /// Its number.
    pub job: String,
    /// Its user.
    pub user: String,
    /// Its priority.
    pub priority: u64,
}

/// Nodes of which the same is to be said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alike {
    /// Their names.
    pub nodes: Vec<String>,
    /// What they lack now; nothing if the job fits.
    pub lacks: Vec<Lack>,
    /// See [`Waits::starts_within_s`].
    pub starts_within_s: Option<u64>,
    /// Their GPUs, as far as the job could use them.
    pub gpus: Vec<GpuState>,
}

/// A GPU or instance, as a job that waits sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuState {
    /// Position in gres.conf.
    pub index: u32,
    /// Its type.
    pub kind: String,
    /// Shards free.
    pub shards_free: u64,
    /// Shards in all.
    pub shards: u64,
    /// Who holds it.
    pub holders: Vec<Holding>,
}

/// What a job holds of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holding {
    /// The job.
    pub job: String,
    /// Its user.
    pub user: String,
    /// `gpu`, `shard` or `mps`.
    pub of: String,
    /// How much of it; as a number, shards or percent of MPS, 0 for all of it.
    #[serde(rename = "parts")]
    pub portion: Portion,
    /// When it ends at the latest, in seconds from now; `None` without a limit.
    pub ends_within_s: Option<u64>,
}

/// Where a job runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Runs {
    /// What it holds, by node.
    pub on: Vec<Place>,
    /// When it ends at the latest, in seconds from now.
    pub ends_within_s: Option<u64>,
}

/// What a job holds on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The node.
    pub node: String,
    /// What it holds of each GPU, in words.
    pub gpus: Vec<String>,
}

/// What there is to say of a job that slurmctld knows; `None` if it knows none of that name.
pub fn explain(view: &QueueView, name: &str) -> Option<Answer> {
    let job = view.find(name)?;
    let since = if job.waits() { job.submit_s } else { job.start_s };
    let standing = match (job.waits(), job.job.is_on_nodes()) {
        (true, _) => Standing::Waits(waits(view, job)),
        (_, true) => Standing::Runs(runs(view, job)),
        _ => Standing::Over(Over::of(job)),
    };
    let until = if job.waits() || job.job.is_on_nodes() { Some(view.now_s) } else { job.end_s };
    Some(Answer {
        format: "hotpot-slurm-job/1",
        job: job.name.clone(),
        name: job.title.clone(),
        user: job.user.clone(),
        account: job.account.clone(),
        partitions: job.partitions.clone(),
        state: job.job.state.clone(),
        for_s: since.zip(until).map(|(since, until)| until.saturating_sub(since)),
        asks: text::asks(view, job, &ask_of(job)),
        array: job.array.map(|array| tasks_of(view, array)),
        pilots: job.note.clone(),
        sent_back: sent_back(&job.job.admin_comment),
        standing,
    })
}

fn tasks_of(view: &QueueView, array: u32) -> ArrayTasks {
    let mut tasks = ArrayTasks::default();
    for job in view.jobs.iter().filter(|job| job.array == Some(array)) {
        let count = job.tasks.count().max(1);
        match (job.waits(), job.job.is_on_nodes()) {
            (true, _) => {
                tasks.waiting += count;
                tasks.more_wait |= job.tasks.is_cut();
            }
            (_, true) => tasks.running += count,
            _ => tasks.over += count,
        }
    }
    tasks
}

/// One of another release is not explained.
fn ask_of(job: &JobView) -> Ask {
    job.job.asked().unwrap_or_default()
}

fn waits(view: &QueueView, job: &JobView) -> Waits {
    let nodes: Vec<&NodeView> =
        view.nodes.iter().filter(|node| is_in_partitions(view, job, &node.name)).collect();
    let mut seen: Vec<Alike> = Vec::new();
    let mut starts: Vec<(u64, &str)> = Vec::new();
    let mut fitting = 0;
    for node in nodes {
        let lacks = fit::lacks(view, node, job, view.now_s);
        fitting += u32::from(lacks.is_empty());
        let starts_within_s = fit::earliest_s(view, node, job);
        starts.extend(starts_within_s.map(|within| (within, node.name.as_str())));
        // Of a node that no job's end makes usable its GPUs do not matter.
        let gpus = starts_within_s.map_or(Vec::new(), |_| gpus(view, node, job));
        let same = |one: &&mut Alike| {
            (&one.lacks, one.starts_within_s, &one.gpus) == (&lacks, starts_within_s, &gpus)
        };
        match seen.iter_mut().find(same) {
            Some(one) => one.nodes.push(node.name.clone()),
            None => {
                let nodes = vec![node.name.clone()];
                seen.push(Alike { nodes, lacks, starts_within_s, gpus });
            }
        }
    }
    seen.sort_by_key(|one| {
        (one.starts_within_s.unwrap_or(u64::MAX), one.lacks.iter().any(Lack::is_for_ever))
    });
    starts.sort_unstable();
    starts.truncate(job.nodes_min as usize);
    let enough = starts.len() == job.nodes_min as usize;
    let last = starts.last().filter(|_| enough).map(|(within, _)| *within);
    // One that is held, or waits for something else, has no place in the queue yet.
    let ahead = if is_in_line(job) { ahead(view, job) } else { Vec::new() };
    let expects = job.start_s.filter(|at| *at > view.now_s).zip(job.expected_on.clone());
    Waits {
        because: because(job),
        reason: job.reason.clone(),
        fits_now: fitting >= job.nodes_min,
        starts_within_s: last,
        starts_on: starts.iter().filter(|_| enough).map(|(_, node)| (*node).to_owned()).collect(),
        slurm_expects: expects.map(|(at, on)| (at - view.now_s, on)),
        ahead: ahead.len(),
        ahead_first: ahead.into_iter().take(AHEAD_NAMED).collect(),
        nodes: seen,
    }
}

fn because(job: &JobView) -> String {
    let words = reason::in_words(job.reason.as_deref().unwrap_or("None"));
    match (job.reason.as_deref(), &job.dependency, job.throttle) {
        (Some("Dependency" | "DependencyNeverSatisfied"), Some(dependency), _) => {
            format!("{words}: {dependency}")
        }
        (Some("JobArrayTaskLimit"), _, Some(most)) => format!("{words}, {most}"),
        _ => words,
    }
}

fn is_in_partitions(view: &QueueView, job: &JobView, node: &str) -> bool {
    let nodes = job.partitions.iter().filter_map(|name| view.partitions.get(name));
    nodes.flatten().any(|name| name == node)
}

/// Whether only room is missing, and its turn.
fn is_in_line(job: &JobView) -> bool {
    let reason = job.reason.as_deref().unwrap_or("None");
    let of_room = matches!(reason, "None" | "Priority" | "Resources");
    job.priority > 0 && (of_room || reason.starts_with("ReqNodeNotAvail"))
}

/// Jobs of the same partitions that go first: by priority, then by number, as Slurm does (slurm.conf manual,
/// `PriorityType`). Those that are held or wait for something else are not in the way.
fn ahead(view: &QueueView, job: &JobView) -> Vec<Ahead> {
    let in_the_way = |other: &&JobView| {
        other.waits()
            && is_in_line(other)
            && other.partitions.iter().any(|name| job.partitions.contains(name))
            && (other.priority, job.job.id) > (job.priority, other.job.id)
    };
    let mut found: Vec<&JobView> = view.jobs.iter().filter(in_the_way).collect();
    found.sort_by_key(|other| (std::cmp::Reverse(other.priority), other.job.id));
    let named = found.into_iter().map(|other| Ahead {
        job: other.name.clone(),
        user: other.user.clone(),
        priority: other.priority,
    });
    named.collect()
}

/// The GPUs that a job could use if nobody were there; none if it asks none.
fn gpus(view: &QueueView, node: &NodeView, job: &JobView) -> Vec<GpuState> {
    let wanted = |device: &&Device| {
        job.need.gres.iter().any(|need| match need.name.as_str() {
            "gpu" => need.kind.is_empty() || need.kind == device.kind,
            name => fit::parts(device, name) >= need.count,
        })
    };
    let state = |device: &Device| {
        let holders = view.holders(&node.name, device.index);
        let held = fit::held_of(&holders, view.now_s);
        let holding = holders.iter().map(|holder| Holding {
            job: holder.job.name.clone(),
            user: holder.job.user.clone(),
            of: holder.name.to_owned(),
            portion: holder.portion,
            ends_within_s: holder.job.end_s.map(|end| end.saturating_sub(view.now_s)),
        });
        GpuState {
            index: device.index,
            kind: device.kind.clone(),
            shards_free: fit::free_parts(device, "shard", held),
            shards: device.shards,
            holders: holding.collect(),
        }
    };
    node.devices.iter().filter(wanted).map(state).collect()
}

fn runs(view: &QueueView, job: &JobView) -> Runs {
    let place = |node: &String| {
        let booked = job.job.booked_on(node).iter();
        let booked = booked.filter(|booked| crate::gres::is_of_gpus(&booked.name));
        let gpus = booked.flat_map(|booked| {
            let each = booked.of_device.iter();
            each.map(|(index, amount)| text::held(view, node, booked, (*index, *amount)))
        });
        Place { node: node.clone(), gpus: gpus.collect() }
    };
    Runs {
        on: job.nodes.iter().map(place).collect(),
        ends_within_s: job.end_s.map(|end| end.saturating_sub(view.now_s)),
    }
}
