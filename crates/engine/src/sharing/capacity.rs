//! How many equal tenants one GPU holds, what says so, and what is left that none of them can use.

use model::{GpuModel, SharingMode};

/// Compute of a whole GPU.
const WHOLE_MILLI: u32 = 1000;

/// What each tenant takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Device memory in MiB; 0 for none that counts.
    pub memory_mib: u64,
    /// Thousandths of the GPU's compute; 0 for none that counts.
    pub compute_milli: u32,
}

/// What bounds the number of tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Device memory.
    Memory,
    /// Compute.
    Compute,
    /// The most tenants that the way of sharing allows.
    Tenants,
}

/// How many equal tenants fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Tenants: the least of what memory, compute and the way of sharing allow.
    pub tenants: u32,
    /// Which of them that is; memory before compute where both say the same.
    pub bound: Bound,
    /// Device memory in MiB that no further tenant can use.
    pub stranded_memory_mib: u64,
    /// Thousandths of compute that no further tenant can use.
    pub stranded_compute_milli: u32,
}

/// `min(⌊M_total / M_job⌋, ⌊P_total / P_job⌋, tenants_max)` tenants, and what they leave.
///
/// * `total_mib` — memory that tenants can get; 0 for unknown, which bounds nothing.
/// * `tenants_max` — of the way of sharing.
pub fn capacity(total_mib: u64, need: Need, tenants_max: u32) -> Capacity {
    let by_memory = match (total_mib, need.memory_mib) {
        (0, _) | (_, 0) => u32::MAX,
        (total, each) => u32::try_from(total / each).unwrap_or(u32::MAX),
    };
    let by_compute = WHOLE_MILLI.checked_div(need.compute_milli).unwrap_or(u32::MAX);
    let tenants = by_memory.min(by_compute).min(tenants_max);
    let bound = match tenants {
        least if least == by_memory => Bound::Memory,
        least if least == by_compute => Bound::Compute,
        _ => Bound::Tenants,
    };
    let taken_mib = need.memory_mib.saturating_mul(u64::from(tenants));
    let taken_milli = need.compute_milli.saturating_mul(tenants);
    Capacity {
        tenants,
        bound,
        stranded_memory_mib: total_mib.saturating_sub(taken_mib),
        stranded_compute_milli: WHOLE_MILLI.saturating_sub(taken_milli),
    }
}

/// As [`capacity`], on a GPU of a model in a mode: each tenant's CUDA context comes on top of what it asks, as in the books.
///
/// * `need` — without the context; for the whole GPU and for MIG there is none to add.
pub fn capacity_on(model: &GpuModel, mode: SharingMode, need: Need) -> Capacity {
    let context_mib = if mode == SharingMode::Exclusive { 0 } else { model.context_mib };
    let memory_mib = match need.memory_mib {
        0 => 0,
        asked => asked.saturating_add(context_mib),
    };
    capacity(model.memory_mib, Need { memory_mib, ..need }, u32::from(mode.tenants_max()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(total_mib: u64, memory_mib: u64, compute_milli: u32) -> (u32, Bound, u64, u32) {
        let found = capacity(total_mib, Need { memory_mib, compute_milli }, 48);
        (found.tenants, found.bound, found.stranded_memory_mib, found.stranded_compute_milli)
    }

    #[test]
    fn whichever_runs_out_first_bounds_and_the_rest_is_stranded() {
        let gib = 1024;
        assert_eq!(of(80 * gib, 30 * gib, 0), (2, Bound::Memory, 20 * gib, 1000));
        assert_eq!(of(80 * gib, 10 * gib, 250), (4, Bound::Compute, 40 * gib, 0));
        assert_eq!(of(80 * gib, 20 * gib, 250), (4, Bound::Memory, 0, 0), "both at once");
        assert_eq!(of(80 * gib, 1, 0).0, 48);
        assert_eq!(of(80 * gib, 1, 0).1, Bound::Tenants);
    }

    #[test]
    fn edges() {
        assert_eq!(of(100, 101, 0), (0, Bound::Memory, 100, 1000), "too large");
        assert_eq!(of(100, 0, 1001), (0, Bound::Compute, 100, 1000));
        assert_eq!(of(0, 5, 500), (2, Bound::Compute, 0, 0), "unknown memory bounds nothing");
        assert_eq!(of(u64::MAX, 1, 1).0, 48);
        let most = capacity(u64::MAX, Need { memory_mib: 0, compute_milli: 0 }, u32::MAX);
        assert_eq!(most.tenants, u32::MAX);
    }
}
