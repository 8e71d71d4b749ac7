//! Policies that look at amounts only: best fit, dot product, clustering, packing, spread.
//!
//! Sources: the baselines of Weng et al., USENIX ATC'23, as their artifact computes them; `spread`
//! is the mirror image of best fit. The constants are the artifact's largest node: 128 vCPUs, 8 GPUs.

use alloc::vec::Vec;

use model::{Share, WorkloadId};

use super::Candidate;

const CPU_LARGEST_MILLI: f64 = 128_000.0;
const GPU_LARGEST_MILLI: f64 = 8_000.0;

/// At most 100, higher the less vCPU and GPU remain on the node.
pub(crate) fn best_fit(candidate: &Candidate<'_>) -> i64 {
    let cpu = candidate.cpu_after_milli() as f64 / CPU_LARGEST_MILLI;
    let gpu_left = candidate.node.gpu_free_milli() - candidate.taken_milli();
    let gpu = gpu_left as f64 / GPU_LARGEST_MILLI;
    (100.0 * (1.0 - 0.5 * cpu - 0.5 * gpu)) as i64
}

/// At most 100, higher the smaller the product of what is left and what is asked.
pub(crate) fn dot_product(candidate: &Candidate<'_>) -> i64 {
    let product =
        |left: u64, asked: u64, largest: f64| (left as f64 / largest) * (asked as f64 / largest);
    let cpu_asked = candidate.key.demand.cpu_milli;
    let cpu = product(candidate.node.cpu_free_milli(), cpu_asked, CPU_LARGEST_MILLI);
    let gpu_asked = candidate.taken_milli();
    let gpu = product(candidate.node.gpu_free_milli(), gpu_asked, GPU_LARGEST_MILLI);
    (100.0 * (1.0 - 0.5 * (cpu + gpu))) as i64
}

/// 0 to 100: GPUs in use before idle GPUs of nodes in use before idle nodes.
pub(crate) fn gpu_packing(candidate: &Candidate<'_>) -> i64 {
    if candidate.picks.is_empty() {
        return 0;
    }
    let count = candidate.node.gpus().len() as i64;
    if candidate.node.gpus().iter().all(model::Gpu::is_idle) {
        return (33 - count).max(count);
    }
    let idle = candidate.picks.iter().filter(|pick| pick.left_milli == 1000).count() as i64;
    if idle > 0 {
        return (50 - idle).max(33);
    }
    let left: i64 = candidate.picks.iter().map(|pick| i64::from(pick.left_milli / 10)).sum();
    (100 - left / 10).max(50)
}

/// 0 to 100: nodes that hold only workloads of the same size, then mixed, then idle, then others.
pub(crate) fn gpu_clustering(candidate: &Candidate<'_>) -> i64 {
    if candidate.picks.is_empty() {
        return 0;
    }
    let left = candidate.node.gpu_free_milli() as f64;
    let base = (25.0 * (GPU_LARGEST_MILLI - left) / GPU_LARGEST_MILLI) as i64;
    let shared = candidate.picks.iter().any(|pick| pick.share != Share::Exclusive);
    let own = if shared { SHARED } else { 1 << candidate.picks.len().min(63) };
    let present = sizes_present(candidate);
    let likeness = match present {
        0 => 25,
        only if only == own => 75,
        mixed if mixed & own != 0 => 50,
        _ => 0,
    };
    base + likeness
}

/// The size of a workload that shares GPUs, in the set that [`sizes_present`] returns.
const SHARED: u64 = 1;

/// Sizes of the node's GPU workloads: bit 0 for those that share, bit n for n whole GPUs.
fn sizes_present(candidate: &Candidate<'_>) -> u64 {
    let tenants = candidate.node.gpus().iter().flat_map(|gpu| gpu.tenants());
    let mut whole: Vec<WorkloadId> = Vec::new();
    let mut sizes = 0;
    for tenant in tenants {
        if tenant.share == Share::Exclusive {
            whole.push(tenant.workload.id);
        } else {
            sizes |= SHARED;
        }
    }
    whole.sort_unstable();
    let runs = whole.chunk_by(|one, other| one == other);
    sizes | runs.fold(0, |set, run| set | 1 << run.len().min(63))
}

/// 0 to 1000, higher the more vCPU and GPU remain on the node.
pub(crate) fn spread(candidate: &Candidate<'_>) -> i64 {
    let part = |left: u64, all: u64| left as f64 / all.max(1) as f64;
    let cpu = part(candidate.cpu_after_milli(), candidate.node.cpu_milli());
    let gpu_left = candidate.node.gpu_free_milli() - candidate.taken_milli();
    let gpu = part(gpu_left, 1000 * candidate.node.gpus().len() as u64);
    (500.0 * (cpu + gpu)) as i64
}
