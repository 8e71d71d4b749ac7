//! `hotpot plan`: what would be started where, and why the rest waits.

use std::fmt::Write;
use std::sync::Arc;

use model::{Action, Plan as Decision, Policy, Refusal, Snapshot, WorkloadId};
use serde::Serialize;

use crate::args::{Output, Plan, Queue};
use crate::failure::{Answer, Failure};
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
    let trace = inputs::trace(&queue.workloads, None)?;
    let fleet = inputs::fleet(&queue.fleet, &queue.workloads)?;
    let mut policy =
        inputs::policy(queue.policy_file.as_deref(), queue.policy.as_deref(), DRAW_SEED)?;
    policy.depth = policy.depth.max(trace.arrivals.len() as u32);
    let mut snapshot = Snapshot::new(fleet, 0);
    for arrival in trace.arrivals {
        snapshot.submit(Arc::new(arrival.workload));
    }
    Ok((snapshot, policy))
}

/// Seed of the policy `random`; a plan has no other use of chance.
const DRAW_SEED: u64 = 42;

/// Name of a workload, for people.
pub(crate) fn name(snapshot: &Snapshot, id: WorkloadId) -> String {
    let waiting = snapshot.waiting().get(&id).map(|workload| workload.name.clone());
    waiting.unwrap_or_else(|| id.to_string())
}

fn table(snapshot: &Snapshot, policy: &Policy, plan: &Decision) -> String {
    let mut text = String::new();
    let named = |id| name(snapshot, id);
    let fleet = snapshot.fleet();
    let started = plan.steps.iter().filter(|step| matches!(step.action, Action::Place { .. }));
    let _ = writeln!(
        text,
        "policy {}: {} to start, {} to wait\n",
        policy.placement.name(),
        started.count(),
        plan.waiting.len()
    );
    for step in &plan.steps {
        let because = words::reason(&step.because, named);
        match &step.action {
            Action::SetMode { gpu, mode } => {
                let node = words::node(fleet, gpu.node);
                let mode = words::mode(*mode);
                let _ = writeln!(text, "set    {node} gpu{} to {mode}  ({because})", gpu.index);
            }
            Action::Place { workload, seats } => {
                let _ = writeln!(text, "start  {}  ({because})", named(*workload));
                for seat in seats {
                    let node = words::node(fleet, seat.node);
                    let _ = write!(text, "         on {node}");
                    for (gpu, share) in &seat.shares {
                        let share = words::share(fleet, seat.node, *gpu, *share);
                        let _ = write!(text, "  gpu{gpu}: {share}");
                    }
                    text.push('\n');
                }
            }
        }
    }
    for (id, refusal) in &plan.waiting {
        let _ = writeln!(text, "wait   {}: {}", named(*id), words::refusal(refusal, named));
    }
    text
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
    SetMode { node: String, gpu: u8, mode: model::SharingMode, because: String },
    Start { workload: String, id: u64, seats: Vec<words::NamedSeat>, because: String },
}

#[derive(Serialize)]
struct NamedWait<'a> {
    workload: String,
    id: u64,
    refusal: &'a Refusal,
    text: String,
}

fn json(snapshot: &Snapshot, policy: &Policy, plan: &Decision) -> String {
    let named = |id| name(snapshot, id);
    let fleet = snapshot.fleet();
    let step = |step: &model::Step| {
        let because = words::reason(&step.because, named);
        match &step.action {
            Action::SetMode { gpu, mode } => NamedStep::SetMode {
                node: words::node(fleet, gpu.node).to_string(),
                gpu: gpu.index,
                mode: *mode,
                because,
            },
            Action::Place { workload, seats } => NamedStep::Start {
                workload: named(*workload),
                id: workload.0,
                seats: seats.iter().map(|seat| words::seat(fleet, seat)).collect(),
                because,
            },
        }
    };
    let waiting = plan.waiting.iter().map(|(id, refusal)| NamedWait {
        workload: named(*id),
        id: id.0,
        refusal,
        text: words::refusal(refusal, named),
    });
    let plan = NamedPlan {
        format: "hotpot-plan/1",
        policy: policy.placement.name(),
        steps: plan.steps.iter().map(step).collect(),
        waiting: waiting.collect(),
    };
    words::to_json(&plan)
}
