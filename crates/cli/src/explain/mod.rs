//! `hotpot explain`: for each node and GPU, why a workload or a pod could or could not sit there; or of a task of a
//! run, what became of it.

mod holding;
mod task;

use std::collections::BTreeMap;
use std::fmt::Write;

use ::kubernetes::controller::question::Answer as PodAnswer;
use engine::{Explanation, NodeVerdict};
use model::{Action, GpuId, Policy, Refusal, Seat, Snapshot, WorkloadId};
use serde::Serialize;

use crate::args::{Explain, Output, Queue};
use crate::failure::{Answer, Failure};
use crate::names::{self, Names};
use crate::{kubernetes, plan, screen, slurm, words};

/// Nodes shown singly in a table; more are summed up by reason.
const NODES_SHOWN: usize = 40;
/// Members of a gang whose seats are named.
const SEATS_SHOWN: usize = 4;

pub(crate) fn run(options: &Explain) -> Result<Answer, Failure> {
    if options.run.is_some() {
        return task::run(options);
    }
    if let (Some(pod), None) = (options.workload.strip_prefix("pod/"), &options.workloads) {
        return explain_pod(pod, options);
    }
    if options.workloads.is_none() && is_job_of_slurm(&options.workload) {
        return slurm::explain::explain(&options.workload, options.output.output);
    }
    let workloads = options.workloads.clone().ok_or_else(|| neither(&options.workload))?;
    let queue = Queue {
        workloads,
        fleet: options.fleet.clone(),
        policy: options.policy.clone(),
        policy_file: options.policy_file.clone(),
    };
    let (snapshot, policy) = plan::situation(&queue)?;
    let id = names::find(&snapshot, &options.workload)?;
    answer(&snapshot, &policy, id, (options, options.gpus_too))
}

fn answer(
    snapshot: &Snapshot,
    policy: &Policy,
    id: WorkloadId,
    (options, gpus_too): (&Explain, bool),
) -> Result<Answer, Failure> {
    let explanation = engine::explain(snapshot, policy, id)
        .ok_or_else(|| Failure::Usage(format!("workload {id} is not in the queue")))?;
    screen::print(&match options.output.output {
        Output::Table => table(snapshot, &explanation, gpus_too),
        Output::Json => json(snapshot, policy, &explanation),
    })?;
    Ok(if explanation.starts() { Answer::Yes } else { Answer::No })
}

/// A pod of the cluster: as for a workload of a file where the world can be seen, else what is written on it.
fn explain_pod(pod: &str, options: &Explain) -> Result<Answer, Failure> {
    let policy = kubernetes::policy(options.policy_file.as_deref(), options.policy.as_deref())?;
    match kubernetes::about_pod(&policy, options.namespace.as_deref(), pod)? {
        PodAnswer::Holds(text) => {
            screen::print(&format!("pod/{pod}: {text}\n"))?;
            Ok(Answer::Yes)
        }
        PodAnswer::Waits { snapshot, id } => {
            let gpus_too = options.gpus_too || snapshot.fleet().nodes().len() <= NODES_SHOWN;
            answer(&snapshot, &policy, id, (options, gpus_too))
        }
        PodAnswer::Said(text) => {
            screen::print(&format!("pod/{pod}: {text}\n"))?;
            Ok(Answer::No)
        }
    }
}

/// `4711`, or `4711_3` of an array.
fn is_job_of_slurm(name: &str) -> bool {
    let parts: Vec<&str> = name.split('_').collect();
    parts.len() <= 2 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

/// Nobody can tell from a name alone where it is from.
fn neither(name: &str) -> Failure {
    let typed = words::typed(name);
    Failure::Usage(format!(
        "`{name}` can be several things: say which. A task of a run on this machine: `hotpot explain {typed} \
         --run last`. A workload that is in a file: `hotpot explain {typed} jobs.toml --fleet \
         fleet.toml`. A job of Slurm is named by its number, a pod of Kubernetes as pod/{name}"
    ))
}

/// The answer comes first: what is asked, what the next plan does with it, who is ahead.
fn table(snapshot: &Snapshot, explanation: &Explanation, gpus_too: bool) -> String {
    let workload = &explanation.workload;
    let names = Names::of(snapshot);
    let (name, demand) = (names.of_id(workload.id), words::demand(workload));
    let mut text = format!("{name}: {demand}\n");
    let _ = writeln!(text, "next plan: {}", decision(snapshot, &names, explanation));
    if let Some(position) = explanation.position {
        let _ = writeln!(text, "queue: {position} ahead");
    }
    let able = explanation.nodes.iter().filter(|node| node.verdict.is_ok()).count();
    let all = explanation.nodes.len();
    let one = if workload.members > 1 { "one member" } else { "it" };
    let _ = writeln!(text, "\nnodes that could hold {one} when its turn comes: {able} of {all}");
    if all <= NODES_SHOWN || gpus_too {
        for node in &explanation.nodes {
            node_lines(&mut text, snapshot, &names, node, gpus_too);
        }
    } else {
        summary_lines(&mut text, snapshot, &names, explanation);
    }
    text
}

/// Where the workload starts, or why it does not.
fn decision(snapshot: &Snapshot, names: &Names<'_>, explanation: &Explanation) -> String {
    if let Some(seats) = seats(explanation) {
        let fleet = snapshot.fleet();
        let seat = |seat: &Seat| match seat.shares.is_empty() {
            true => words::node_shown(fleet, seat.node),
            false => {
                let shares = words::shares(fleet, seat);
                format!("{} ({shares})", words::node_shown(fleet, seat.node))
            }
        };
        let shown: Vec<String> = seats.iter().take(SEATS_SHOWN).map(seat).collect();
        let more = match seats.len().saturating_sub(SEATS_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return format!("starts now on {}{more}", shown.join(", "));
    }
    match &explanation.waits_because {
        // Says itself that waiting does not help.
        Some(never) if never.is_never() => words::refusal(never, &|id| names.of_id(id)),
        Some(refusal) => format!("waits; {}", words::refusal(refusal, &|id| names.of_id(id))),
        None => "waits".to_string(),
    }
}

/// The seats that the next plan gives to the workload.
fn seats(explanation: &Explanation) -> Option<&[Seat]> {
    explanation.plan.steps.iter().find_map(|step| match &step.action {
        Action::Place { workload, seats } if *workload == explanation.workload.id => {
            Some(seats.as_slice())
        }
        Action::Place { .. } | Action::SetMode { .. } | Action::Preempt { .. } => None,
    })
}

fn node_lines(
    text: &mut String,
    snapshot: &Snapshot,
    names: &Names<'_>,
    node: &NodeVerdict,
    gpus_too: bool,
) {
    let fleet = snapshot.fleet();
    let no = |refusal: &Refusal| format!("no: {}", words::refusal(refusal, &|id| names.of_id(id)));
    let verdict = match &node.verdict {
        Ok(score) => format!("yes, score {score}"),
        Err(refusal) => no(refusal),
    };
    let _ = writeln!(text, "  {:<20} {verdict}", words::node_shown(fleet, node.node));
    for gpu in node.gpus.iter().filter(|_| gpus_too) {
        let verdict = match &gpu.verdict {
            Ok(share) => words::share(fleet, node.node, gpu.gpu.index, *share),
            Err(refusal) => no(refusal),
        };
        let holders = holders(snapshot, names, gpu.gpu);
        let _ = writeln!(text, "    gpu{:<3} {verdict}{holders}", gpu.gpu.index);
    }
}

/// `; held by a (mps 10 GiB), b (mps 4 GiB)`; empty if nobody does.
fn holders(snapshot: &Snapshot, names: &Names<'_>, id: GpuId) -> String {
    let gpu =
        snapshot.fleet().node(id.node).and_then(|node| node.gpus().get(usize::from(id.index)));
    let tenants = gpu.map(model::Gpu::tenants).unwrap_or_default();
    let held = |tenant: &model::Tenant| {
        let share = words::share(snapshot.fleet(), id.node, id.index, tenant.share);
        format!("{} ({share})", names.of_id(tenant.workload.id))
    };
    if tenants.is_empty() {
        return String::new();
    }
    format!("; held by {}", tenants.iter().map(held).collect::<Vec<_>>().join(", "))
}

/// Refusals by kind, with the node that comes nearest.
fn summary_lines(
    text: &mut String,
    snapshot: &Snapshot,
    names: &Names<'_>,
    explanation: &Explanation,
) {
    let mut kinds: BTreeMap<(u8, &str), Vec<(&NodeVerdict, &Refusal)>> = BTreeMap::new();
    for node in &explanation.nodes {
        if let Err(refusal) = &node.verdict {
            let key = (u8::MAX - refusal.nearness().0, refusal.kind());
            kinds.entry(key).or_default().push((node, refusal));
        }
    }
    for ((_, kind), nodes) in &kinds {
        let nearest = nodes
            .iter()
            .max_by_key(|(node, refusal)| (refusal.nearness(), std::cmp::Reverse(node.node)));
        let Some((node, refusal)) = nearest else { continue };
        let name = words::node_shown(snapshot.fleet(), node.node);
        let refusal = words::refusal(refusal, &|id| names.of_id(id));
        let counted = if nodes.len() == 1 { "node, " } else { "nodes," };
        let _ = writeln!(text, "  {:>6} {counted} {kind}; nearest {name}: {refusal}", nodes.len());
    }
}

#[derive(Serialize)]
struct Named<'a> {
    format: &'static str,
    policy: &'a str,
    workload: &'a str,
    id: u64,
    ahead: Option<usize>,
    starts: bool,
    seats: Vec<words::NamedSeat>,
    waits_because: Option<&'a Refusal>,
    text: String,
    nodes: Vec<NamedNode<'a>>,
}

#[derive(Serialize)]
struct NamedNode<'a> {
    node: &'a str,
    score: Option<i64>,
    refusal: Option<&'a Refusal>,
    gpus: Vec<NamedGpu<'a>>,
}

#[derive(Serialize)]
struct NamedGpu<'a> {
    gpu: u8,
    share: Option<model::Share>,
    refusal: Option<&'a Refusal>,
}

fn json(snapshot: &Snapshot, policy: &Policy, explanation: &Explanation) -> String {
    let id = explanation.workload.id;
    let nodes = explanation.nodes.iter().map(|node| NamedNode {
        node: words::node(snapshot.fleet(), node.node),
        score: node.verdict.as_ref().ok().copied(),
        refusal: node.verdict.as_ref().err(),
        gpus: node
            .gpus
            .iter()
            .map(|gpu| NamedGpu {
                gpu: gpu.gpu.index,
                share: gpu.verdict.as_ref().ok().copied(),
                refusal: gpu.verdict.as_ref().err(),
            })
            .collect(),
    });
    let seats = seats(explanation).unwrap_or_default();
    words::to_json(&Named {
        format: "hotpot-explanation/1",
        policy: policy.placement.name(),
        workload: &explanation.workload.name,
        id: id.0,
        ahead: explanation.position,
        starts: explanation.starts(),
        seats: seats.iter().map(|seat| words::seat(snapshot.fleet(), seat)).collect(),
        waits_because: explanation.waits_because.as_ref(),
        text: decision(snapshot, &Names::of(snapshot), explanation),
        nodes: nodes.collect(),
    })
}
