//! The mix of workloads that is expected to come, for policies that look ahead.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use model::{GpuAsk, MixShape, ModelSet, Placement, Policy, Snapshot, Workload};

/// Share of all workloads that the kept shapes must cover (Weng et al., USENIX ATC'23, artifact).
const COVERAGE: f64 = 0.95;

/// One kind of workload: vCPU, thousandths of each GPU as far as said, GPUs, accepted models as
/// written, and what exactly is asked of each GPU. The order is that of the published experiments.
type Shape = (u64, u32, u32, String, Option<GpuAsk>);

/// Reduces workloads to their most frequent shapes.
///
/// Main memory is not part of a shape. Shapes are taken from the most frequent on until they cover
/// 95 % of the workloads; their weights sum to 1. Equal counts go by the larger shape first, as in
/// the published experiments.
pub fn of<'a>(workloads: impl Iterator<Item = &'a Workload>) -> Vec<MixShape> {
    let mut counts: BTreeMap<Shape, u64> = BTreeMap::new();
    let mut all = 0u64;
    for workload in workloads {
        *counts.entry(shape(workload)).or_default() += 1;
        all += 1;
    }
    let mut ranked: Vec<_> = counts.into_iter().map(|(shape, count)| (count, shape)).collect();
    ranked.sort_unstable_by(|one, other| other.cmp(one));
    let mut covered = 0u64;
    let mut kept = Vec::new();
    for (count, shape) in ranked {
        if covered as f64 >= COVERAGE * all as f64 {
            break;
        }
        covered += count;
        kept.push((count, shape));
    }
    let weigh = |count: u64| (count as f64 / all as f64) / (covered as f64 / all as f64);
    kept.into_iter()
        .map(|(count, (cpu_milli, _, gpu_count, accepts, each))| MixShape {
            cpu_milli,
            gpu_count,
            each: each.unwrap_or(GpuAsk::Whole),
            accepts: ModelSet::parse(&accepts),
            weight: weigh(count),
        })
        .collect()
}

/// The mix that a policy goes by without having been given one: that of everything that waits or
/// runs. Empty where the policy brings a mix, or has no use for any.
pub(crate) fn observed(policy: &Policy, snapshot: &Snapshot) -> Vec<MixShape> {
    let looks_ahead = matches!(policy.placement, Placement::Fgd | Placement::Hotpot);
    if looks_ahead && policy.mix.is_empty() { of_snapshot(snapshot) } else { Vec::new() }
}

fn of_snapshot(snapshot: &Snapshot) -> Vec<MixShape> {
    let waiting = snapshot.waiting().values();
    let running = snapshot.running().values().map(|running| &running.workload);
    of(waiting.chain(running).map(AsRef::as_ref))
}

fn shape(workload: &Workload) -> Shape {
    let demand = &workload.demand;
    let Some(gpus) = &demand.gpus else { return (demand.cpu_milli, 0, 0, String::new(), None) };
    // Any alternative will do in the end, so a mix accepts their union.
    let accepts = match gpus.accepts.iter().any(ModelSet::is_any) {
        true => String::new(),
        false => {
            let names: Vec<String> = gpus.accepts.iter().map(ToString::to_string).collect();
            names.join("|")
        }
    };
    (demand.cpu_milli, gpus.each_milli(), gpus.count, accepts, Some(gpus.each.clone()))
}
