//! `hotpot explain`: for each node and GPU, why a workload could or could not sit there.

use std::collections::BTreeMap;
use std::fmt::Write;

use engine::{Explanation, NodeVerdict};
use model::{Refusal, Snapshot, WorkloadId};
use serde::Serialize;

use crate::args::{Explain, Output};
use crate::failure::{Answer, Failure};
use crate::{plan, screen, words};

/// Nodes shown singly in a table; more are summed up by reason.
const NODES_SHOWN: usize = 40;

pub(crate) fn run(options: &Explain) -> Result<Answer, Failure> {
    let (snapshot, policy) = plan::situation(&options.queue)?;
    let id = find(&snapshot, &options.workload)?;
    let explanation = engine::explain(&snapshot, &policy, id)
        .ok_or_else(|| Failure::Usage(format!("workload {id} is not in the queue")))?;
    screen::print(&match options.output.output {
        Output::Table => table(&snapshot, &explanation, options.gpus_too),
        Output::Json => json(&snapshot, &explanation),
    })?;
    Ok(if explanation.starts() { Answer::Yes } else { Answer::No })
}

/// The workload with that name, or with the number behind a `#`.
fn find(snapshot: &Snapshot, wanted: &str) -> Result<WorkloadId, Failure> {
    let number = wanted.strip_prefix('#').and_then(|text| text.parse().ok()).map(WorkloadId);
    if let Some(id) = number.filter(|id| snapshot.waiting().contains_key(id)) {
        return Ok(id);
    }
    let mut named = snapshot.waiting().values().filter(|workload| workload.name == wanted);
    match (named.next(), named.count()) {
        (Some(only), 0) => Ok(only.id),
        (Some(first), more) => Err(Failure::Usage(format!(
            "{} workloads are named `{wanted}`; give the number, the first is {}",
            more + 1,
            first.id
        ))),
        (None, _) => {
            let names = snapshot.waiting().values().map(|workload| workload.name.as_str());
            let some: Vec<_> = names.take(8).collect();
            let some = some.join(", ");
            Err(Failure::Usage(format!("no workload `{wanted}`; there are {some}, …")))
        }
    }
}

fn table(snapshot: &Snapshot, explanation: &Explanation, gpus_too: bool) -> String {
    let workload = &explanation.workload;
    let mut text = format!("{} ({})\n", workload.name, workload.demand);
    if let Some(position) = explanation.position {
        let _ = writeln!(text, "queue: {position} ahead");
    }
    let named = |id| plan::name(snapshot, id);
    let decision = match explanation.plan.waiting.get(&workload.id) {
        _ if explanation.starts() => "starts now".to_string(),
        Some(refusal) => format!("waits: {}", words::refusal(refusal, named)),
        None => "waits".to_string(),
    };
    let _ = writeln!(text, "next plan: {decision}\n");
    let able = explanation.nodes.iter().filter(|node| node.verdict.is_ok()).count();
    let all = explanation.nodes.len();
    let _ = writeln!(text, "nodes that could hold it before that plan: {able} of {all}");
    if all <= NODES_SHOWN || gpus_too {
        for node in &explanation.nodes {
            node_lines(&mut text, snapshot, node, gpus_too);
        }
    } else {
        summary_lines(&mut text, snapshot, explanation);
    }
    text
}

fn node_lines(text: &mut String, snapshot: &Snapshot, node: &NodeVerdict, gpus_too: bool) {
    let fleet = snapshot.fleet();
    let verdict = match &node.verdict {
        Ok(score) => format!("yes, score {score}"),
        Err(refusal) => format!("no: {refusal}"),
    };
    let _ = writeln!(text, "  {:<20} {verdict}", words::node(fleet, node.node));
    for gpu in node.gpus.iter().filter(|_| gpus_too) {
        let verdict = match &gpu.verdict {
            Ok(share) => words::share(fleet, node.node, gpu.gpu.index, *share),
            Err(refusal) => format!("no: {refusal}"),
        };
        let _ = writeln!(text, "    gpu{:<3} {verdict}", gpu.gpu.index);
    }
}

/// Refusals by kind, with the node that comes nearest.
fn summary_lines(text: &mut String, snapshot: &Snapshot, explanation: &Explanation) {
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
        let name = words::node(snapshot.fleet(), node.node);
        let _ = writeln!(text, "  {:>6} nodes, {kind}; nearest {name}: {refusal}", nodes.len());
    }
}

#[derive(Serialize)]
struct Named<'a> {
    format: &'static str,
    workload: &'a str,
    id: u64,
    ahead: Option<usize>,
    starts: bool,
    waits_because: Option<&'a Refusal>,
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

fn json(snapshot: &Snapshot, explanation: &Explanation) -> String {
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
    words::to_json(&Named {
        format: "hotpot-explanation/1",
        workload: &explanation.workload.name,
        id: id.0,
        ahead: explanation.position,
        starts: explanation.starts(),
        waits_because: explanation.plan.waiting.get(&id),
        nodes: nodes.collect(),
    })
}
