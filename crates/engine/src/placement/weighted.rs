//! Two wishes in one number: leave GPU memory free, and sit with tenants that go well together.

use model::AffinityMatrix;

use super::Candidate;

/// `w_mem · free-memory ratio + w_affinity · affinity`, in thousandths.
///
/// The ratio is that of the picked GPUs after placement, 0 to 1 (of compute where a model's memory
/// is unknown). Affinity is the mean over the tenants on the picked GPUs, −1 to 1, and 0
/// where there are none.
pub(crate) fn score(
    candidate: &Candidate<'_>,
    memory_weight_milli: i32,
    affinity_weight_milli: i32,
    matrix: &AffinityMatrix,
) -> i64 {
    if candidate.picks.is_empty() {
        return 0;
    }
    let (mut free_milli, mut affinity_milli, mut tenants) = (0i64, 0i64, 0i64);
    for pick in candidate.picks {
        let Some(gpu) = candidate.node.gpus().get(usize::from(pick.gpu)) else { continue };
        free_milli += i64::from(gpu.memory_free_milli_after(pick.mode, pick.share));
        for tenant in gpu.tenants() {
            affinity_milli += i64::from(matrix.between(candidate.key.class, tenant.workload.class));
            tenants += 1;
        }
    }
    let free = free_milli / candidate.picks.len() as i64;
    let affinity = affinity_milli / tenants.max(1);
    (i64::from(memory_weight_milli) * free + i64::from(affinity_weight_milli) * affinity) / 1000
}
