//! Why is a workload not there? For each node and GPU, what it lacks, in amounts.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use model::{
    Action, Demand, Gpu, GpuId, Node, NodeId, Plan, Policy, Refusal, Share, Snapshot, Workload,
    WorkloadId,
};

use crate::fit;
use crate::interference::Company;
use crate::order::Queue;
use crate::placement::{Key, Scorer};
use crate::{apply, mix, plan};

/// The answer for one workload.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The workload.
    pub workload: Arc<Workload>,
    /// How many the plan looks at before it; `None` if it runs already.
    pub position: Option<usize>,
    /// Why it waits; `None` if it starts or runs.
    pub waits_because: Option<Refusal>,
    /// What the next plan would do, all workloads included.
    pub plan: Plan,
    /// Every node, as it is when that plan comes to the workload.
    pub nodes: Vec<NodeVerdict>,
}

/// What one node could do for one member.
#[derive(Clone, Debug)]
pub struct NodeVerdict {
    /// The node.
    pub node: NodeId,
    /// The policy's score, or what is lacking. Of several alternatives of GPU models, the best.
    pub verdict: Result<i64, Refusal>,
    /// Every GPU of the node, by index, as far as CPU and memory of the node are left aside.
    pub gpus: Vec<GpuVerdict>,
}

/// What one GPU could do for one member.
#[derive(Clone, Debug)]
pub struct GpuVerdict {
    /// The GPU.
    pub gpu: GpuId,
    /// The share that it could grant, or what is lacking.
    pub verdict: Result<Share, Refusal>,
}

/// Explains where a workload could sit and where not, and what the next plan does with it.
///
/// `None` if the snapshot neither runs nor queues it.
pub fn explain(snapshot: &Snapshot, policy: &Policy, id: WorkloadId) -> Option<Explanation> {
    let waiting = snapshot.waiting().get(&id);
    let running = snapshot.running().get(&id).map(|running| &running.workload);
    let workload = Arc::clone(waiting.or(running)?);
    let plan = plan(snapshot, policy);
    let ahead = ahead(snapshot, policy, &plan, id);
    let then = at_its_turn(snapshot, policy, &plan, &ahead);
    let observed = mix::observed(policy, snapshot);
    let mut scorer = Scorer::new(policy, &observed, snapshot.fleet(), Company::default());
    let keys = scorer.keys(&workload);
    let nodes = then
        .fleet()
        .indexed()
        .map(|(node, _)| node_verdict(&then, &mut scorer, (&workload.demand, &keys), node))
        .collect();
    let position = waiting.map(|_| ahead.len());
    let mut answer = Explanation { workload, position, waits_because: None, plan, nodes };
    if waiting.is_some() && !answer.starts() {
        let told = answer.plan.waiting.get(&id).cloned();
        answer.waits_because = Some(told.unwrap_or(Refusal::BeyondDepth { depth: policy.depth }));
    }
    Some(answer)
}

/// The world once the plan has started all that it starts of those ahead.
fn at_its_turn(
    snapshot: &Snapshot,
    policy: &Policy,
    plan: &Plan,
    ahead: &BTreeSet<WorkloadId>,
) -> Snapshot {
    let mut then = snapshot.clone();
    let mut modes = Vec::new();
    for step in &plan.steps {
        match &step.action {
            Action::SetMode { .. } => modes.push(&step.action),
            // Whoever is asked to leave has not left yet when the workload's turn comes.
            Action::Preempt { .. } => {}
            Action::Place { workload, .. } => {
                let mut needed = core::mem::take(&mut modes);
                needed.push(&step.action);
                if ahead.contains(workload) {
                    // The plan is legal, so that every action of it can be carried out.
                    needed.into_iter().for_each(|action| drop(apply(&mut then, action, policy)));
                }
            }
        }
    }
    then
}

fn node_verdict(
    snapshot: &Snapshot,
    scorer: &mut Scorer,
    (all, keys): (&Demand, &[Key]),
    id: NodeId,
) -> NodeVerdict {
    let node = &snapshot.fleet().nodes()[id.index()];
    let verdict = seat(scorer, id, node, keys);
    let verdict = verdict.map_err(|refusal| fit::for_all_alternatives(refusal, all));
    let verdict_of = |index: u8, gpu: &Gpu| {
        let accepts = |key: &&Key| {
            let first = key.demand.gpus.as_ref().and_then(|gpus| gpus.accepts.first());
            first.is_none_or(|set| set.accepts(&gpu.model().name))
        };
        let key = keys.iter().find(accepts).or(keys.first());
        let key = key.filter(|key| key.demand.gpus.is_some())?;
        let verdict = scorer.on_gpu(index, gpu, key);
        Some(GpuVerdict { gpu: GpuId { node: id, index }, verdict })
    };
    let gpus =
        (0..=u8::MAX).zip(node.gpus()).filter_map(|(index, gpu)| verdict_of(index, gpu)).collect();
    NodeVerdict { node: id, verdict, gpus }
}

/// The score by the first alternative that has a seat on the node, or what the nearest lacks.
fn seat(scorer: &mut Scorer, id: NodeId, node: &Node, keys: &[Key]) -> Result<i64, Refusal> {
    let mut picks = Vec::new();
    let mut nearest = None;
    for key in keys {
        match scorer.seat(id, node, key, &mut picks) {
            Ok(score) => return Ok(score),
            Err(refusal) => nearest = Some(Refusal::nearer(nearest, refusal)),
        }
    }
    nearest.map_or(Ok(0), Err)
}

/// Who is looked at before the workload, what the plan grants them counted towards their owners.
fn ahead(
    snapshot: &Snapshot,
    policy: &Policy,
    plan: &Plan,
    id: WorkloadId,
) -> BTreeSet<WorkloadId> {
    let mut after = snapshot.clone();
    plan.steps.iter().for_each(|step| drop(apply(&mut after, &step.action, policy)));
    let mut queue = Queue::new(snapshot, policy);
    let mut ahead = BTreeSet::new();
    while let Some(next) = queue.next().filter(|next| *next != id) {
        if let Some(started) = after.running().get(&next) {
            queue.charge(&started.workload.owner, started.usage);
        }
        if matches!(plan.waiting.get(&next), Some(Refusal::ArrayLimit { .. })) {
            queue.park();
        }
        ahead.insert(next);
    }
    ahead
}

impl Explanation {
    /// Whether the next plan starts the workload.
    pub fn starts(&self) -> bool {
        self.plan.steps.iter().any(|step| match &step.action {
            Action::Place { workload, .. } => *workload == self.workload.id,
            Action::SetMode { .. } | Action::Preempt { .. } => false,
        })
    }
}
