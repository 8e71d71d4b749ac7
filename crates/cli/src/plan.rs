//! `hotpot plan`: what would be started where, and why the rest waits.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use model::{
    Action, Fleet, Plan as Decision, Policy, Refusal, Snapshot, Step, Workload, WorkloadId,
};
use serde::Serialize;

use crate::args::{Output, Plan, Queue};
use crate::failure::{Answer, Failure};
use crate::names::Names;
use crate::{inputs, screen, words};

pub(crate) fn run(options: &Plan) -> Result<Answer, Failure> {
    let (snapshot, policy) = situation(&options.queue)?;
    let plan = engine::plan(&snapshot, &policy);
    screen::print(&match options.output.output {
        Output::Table => table(&snapshot, &policy, &plan),
        Output::Json => json(&snapshot, &policy, &plan),
    })?;
    let never = plan.waiting.values().any(Refusal::is_never);
    Ok(if never { Answer::No } else { Answer::Yes })
}

/// The fleet with every workload of the file waiting, and the policy. All workloads of a file are
/// looked at, whatever the policy's depth.
pub(crate) fn situation(queue: &Queue) -> Result<(Snapshot, Policy), Failure> {
    let trace = inputs::trace(&queue.workloads, None, None)?;
    let fleet = inputs::fleet(&queue.fleet, &queue.workloads)?;
    let mut policy = inputs::policy(queue.policy_file.as_deref(), queue.policy.as_deref(), None)?;
    policy.depth = policy.depth.max(trace.arrivals.len() as u32);
    let mut snapshot = Snapshot::new(fleet, 0);
    for arrival in trace.arrivals {
        snapshot.submit(Arc::new(arrival.workload));
    }
    Ok((snapshot, policy))
}

fn table(snapshot: &Snapshot, policy: &Policy, plan: &Decision) -> String {
    let mut text = String::new();
    let names = Names::of(snapshot);
    let never = plan.waiting.values().filter(|refusal| refusal.is_never()).count();
    let _ = write!(
        text,
        "policy {}: {} to start, {} to wait",
        policy.placement.name(),
        plan.steps.iter().filter(|step| matches!(step.action, Action::Place { .. })).count(),
        plan.waiting.len() - never
    );
    let _ = match never {
        0 => writeln!(text, "\n"),
        never => writeln!(text, ", {never} can never run here\n"),
    };
    for step in &plan.steps {
        step_lines(&mut text, snapshot.fleet(), &names, step);
    }
    waiting_lines(&mut text, &names, &plan.waiting);
    text
}

fn step_lines(text: &mut String, fleet: &Fleet, names: &Names<'_>, step: &Step) {
    let because = words::reason(&step.because, |id| names.of_id(id));
    match &step.action {
        Action::SetMode { gpu, mode } => {
            let node = words::node_shown(fleet, gpu.node);
            let mode = words::mode(*mode);
            let _ = writeln!(text, "set    {node} gpu{} to {mode}  ({because})", gpu.index);
        }
        Action::Place { workload, seats } => {
            let _ = writeln!(text, "start  {}  ({because})", names.of_id(*workload));
            for seat in seats {
                let (node, shares) =
                    (words::node_shown(fleet, seat.node), words::shares(fleet, seat));
                let line = format!("         on {node}  {shares}");
                let _ = writeln!(text, "{}", line.trim_end());
            }
        }
        Action::Preempt { workload, by_ms } => {
            let (who, when) = (names.of_id(*workload), words::within(*by_ms));
            let _ = writeln!(text, "ask    {who} to leave {when}  ({because})");
        }
    }
}

/// Why the rest waits; neighbours with the same reason on one line.
fn waiting_lines(text: &mut String, names: &Names<'_>, waiting: &BTreeMap<WorkloadId, Refusal>) {
    let mut runs: Vec<(Vec<WorkloadId>, bool, String)> = Vec::new();
    for (id, refusal) in waiting {
        // The verb says "never" already.
        let (never, refusal) = if let Refusal::Never { because } = refusal {
            (true, because.as_ref())
        } else {
            (false, refusal)
        };
        let because = words::refusal(refusal, &|id| names.of_id(id));
        match runs.last_mut() {
            Some((ids, was, same)) if *same == because && *was == never => ids.push(*id),
            _ => runs.push((vec![*id], never, because)),
        }
    }
    for (ids, never, because) in runs {
        let verb = if never { "never " } else { "wait  " };
        let who = match ids.as_slice() {
            [first, .., last] => {
                let (first, last) = (names.of_id(*first), names.of_id(*last));
                format!("{first} to {last}, {} workloads", ids.len())
            }
            only => only.iter().map(|id| names.of_id(*id)).collect(),
        };
        let _ = writeln!(text, "{verb} {who}: {because}");
    }
}

/// A plan in names.
#[derive(Serialize)]
struct NamedPlan<'a> {
    format: &'static str,
    policy: &'a str,
    steps: Vec<NamedStep>,
    waiting: Vec<NamedWait<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
enum NamedStep {
    SetMode {
        node: String,
        gpu: u8,
        mode: model::SharingMode,
        because: String,
    },
    Start {
        workload: String,
        id: u64,
        seats: Vec<words::NamedSeat>,
        because: String,
        score: Option<i64>,
    },
    Preempt {
        workload: String,
        id: u64,
        by_ms: u64,
        because: String,
    },
}

#[derive(Serialize)]
struct NamedWait<'a> {
    workload: String,
    id: u64,
    refusal: &'a Refusal,
    text: String,
}

fn json(snapshot: &Snapshot, policy: &Policy, plan: &Decision) -> String {
    let names = Names::of(snapshot);
    let fleet = snapshot.fleet();
    let raw = |id: &WorkloadId| {
        let running = snapshot.running().get(id).map(|running| &running.workload);
        let workload = snapshot.waiting().get(id).or(running);
        workload.map_or_else(String::new, |workload: &Arc<Workload>| workload.name.clone())
    };
    let step = |step: &Step| {
        let because = words::reason(&step.because, |id| names.of_id(id));
        match &step.action {
            Action::SetMode { gpu, mode } => NamedStep::SetMode {
                node: words::node(fleet, gpu.node).to_string(),
                gpu: gpu.index,
                mode: *mode,
                because,
            },
            Action::Place { workload, seats } => NamedStep::Start {
                workload: raw(workload),
                id: workload.0,
                seats: seats.iter().map(|seat| words::seat(fleet, seat)).collect(),
                because,
                score: words::score(&step.because),
            },
            Action::Preempt { workload, by_ms } => NamedStep::Preempt {
                workload: raw(workload),
                id: workload.0,
                by_ms: *by_ms,
                because,
            },
        }
    };
    let waiting = plan.waiting.iter().map(|(id, refusal)| NamedWait {
        workload: raw(id),
        id: id.0,
        refusal,
        text: words::refusal(refusal, &|id| names.of_id(id)),
    });
    let plan = NamedPlan {
        format: "hotpot-plan/1",
        policy: policy.placement.name(),
        steps: plan.steps.iter().map(step).collect(),
        waiting: waiting.collect(),
    };
    words::to_json(&plan)
}
