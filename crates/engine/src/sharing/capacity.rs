//! How many equal tenants one GPU holds, what says so, and what is left that none of them can use.

use model::{GpuModel, SharingMode};

use super::slices;

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
    Capacity { bound, ..exactly(total_mib, need, tenants) }
}

/// As [`capacity`], on an idle GPU of a model in a mode, as the planner books it: each tenant's CUDA context comes on top of what it asks.
///
/// * `need` — without the context; one that wants the whole GPU has none to add.
///
/// By turns each tenant counts for `1000 / tenants_max`, and who asks for more gets none. Under MIG each takes the smallest instance that
/// holds it, context inside; what is stranded is then also what instances have beyond that, and no instance at all counts as
/// [`Bound::Tenants`].
pub fn capacity_on(model: &GpuModel, mode: SharingMode, need: Need) -> Capacity {
    let context_mib = if mode == SharingMode::Exclusive { 0 } else { model.context_mib };
    let memory_mib = match need.memory_mib {
        0 => 0,
        asked => asked.saturating_add(context_mib),
    };
    let (booked, tenants_max) = (Need { memory_mib, ..need }, u32::from(mode.tenants_max()));
    match mode {
        SharingMode::Exclusive | SharingMode::Mps { .. } | SharingMode::MemoryCapped { .. } => {
            capacity(model.memory_mib, booked, tenants_max)
        }
        SharingMode::TimeSlice { .. } => by_turns(model.memory_mib, booked, tenants_max),
        SharingMode::Mig => match slices::instances_max(model, booked) {
            Ok(instances) => {
                Capacity { bound: Bound::Tenants, ..exactly(model.memory_mib, booked, instances) }
            }
            Err(bound) => Capacity { bound, ..exactly(model.memory_mib, booked, 0) },
        },
    }
}

fn by_turns(total_mib: u64, need: Need, tenants_max: u32) -> Capacity {
    let turn_milli = WHOLE_MILLI / tenants_max.max(1);
    if need.compute_milli > turn_milli {
        return Capacity { bound: Bound::Compute, ..exactly(total_mib, need, 0) };
    }
    let most = capacity(total_mib, Need { compute_milli: 0, ..need }, tenants_max);
    let turn = Need { compute_milli: turn_milli, ..need };
    Capacity { bound: most.bound, ..exactly(total_mib, turn, most.tenants) }
}

/// What so many tenants leave.
fn exactly(total_mib: u64, need: Need, tenants: u32) -> Capacity {
    let taken_mib = need.memory_mib.saturating_mul(u64::from(tenants));
    let taken_milli = need.compute_milli.saturating_mul(tenants);
    Capacity {
        tenants,
        bound: Bound::Tenants,
        stranded_memory_mib: total_mib.saturating_sub(taken_mib),
        stranded_compute_milli: WHOLE_MILLI.saturating_sub(taken_milli),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::sync::Arc;

    use model::{Catalogue, Demand, Gpu, Owner, Share, SharingKind, Tenant, Workload, WorkloadId};

    use super::*;

    fn on(name: &str, mode: SharingMode, memory_mib: u64, compute_milli: u32) -> (u32, Bound) {
        let catalogue = Catalogue::shipped().unwrap();
        let model = catalogue.get(name).unwrap();
        let found = capacity_on(model, mode, Need { memory_mib, compute_milli });
        (found.tenants, found.bound)
    }

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
    #[test]
    fn each_tenant_brings_its_context() {
        // 81,920 less 640 MiB; without their contexts of 450 MiB three would leave room for 19,840.
        let mps = SharingMode::Mps { tenants_max: 48 };
        assert_eq!(on("a100-80gb", mps, 26_650, 0), (2, Bound::Memory));
        assert_eq!(on("a100-80gb", mps, 26_643, 0), (3, Bound::Memory));
        assert_eq!(on("a100-80gb", mps, u64::MAX, u32::MAX).0, 0);
        assert_eq!(on("a100-80gb", SharingMode::Exclusive, 81_280, 1000), (1, Bound::Memory));
    }

    #[test]
    fn turns_are_counted_and_nobody_gets_more_than_one() {
        let turns = SharingMode::TimeSlice { tenants_max: 4 };
        assert_eq!(on("a100-80gb", turns, 10_240, 250), (4, Bound::Tenants));
        assert_eq!(on("a100-80gb", turns, 10_240, 251), (0, Bound::Compute));
        let model = Catalogue::shipped().unwrap().get("a100-80gb").unwrap().clone();
        let need = Need { memory_mib: 30_720, compute_milli: 0 };
        let found = capacity_on(&model, turns, need);
        assert_eq!((found.tenants, found.stranded_compute_milli), (2, 500));
        assert_eq!(found.stranded_memory_mib, 81_280 - 2 * (30_720 + 450));
    }

    #[test]
    fn mig_gives_each_the_smallest_instance_that_holds_it() {
        let mig = |memory_mib, compute_milli| {
            on("a100-80gb", SharingMode::Mig, memory_mib, compute_milli)
        };
        assert_eq!(mig(8_192, 0), (7, Bound::Tenants), "1g.10gb; by memory alone it would be 9");
        assert_eq!(
            mig(10_240, 0),
            (4, Bound::Tenants),
            "1g.20gb: no room for the context in 1g.10gb"
        );
        assert_eq!(mig(10_240, 200), (3, Bound::Tenants), "2g.20gb");
        assert_eq!(mig(30_720, 0), (2, Bound::Tenants), "3g.40gb");
        assert_eq!(mig(10_240, 429), (1, Bound::Tenants), "3/7 are 428 thousandths");
        assert_eq!(mig(81_920, 0), (0, Bound::Memory));
        assert_eq!(mig(1_024, 1001), (0, Bound::Compute));
        assert_eq!(on("t4", SharingMode::Mig, 1_024, 0), (0, Bound::Tenants), "no MIG on a T4");
    }

    /// Tenants that the GPU itself lets in, one after the other.
    fn admitted(model: &GpuModel, need: Need, mode: SharingMode) -> u32 {
        let (compute_milli, memory_mib) = (need.compute_milli, need.memory_mib + model.context_mib);
        let share = match mode {
            SharingMode::Exclusive | SharingMode::Mig => Share::Exclusive,
            SharingMode::TimeSlice { .. } => Share::TimeSlice { memory_mib },
            SharingMode::Mps { .. } => Share::Mps { compute_milli, memory_mib },
            SharingMode::MemoryCapped { .. } => Share::MemoryCapped { memory_mib, compute_milli },
        };
        let mut gpu = Gpu::idle(Arc::new(model.clone()), model.modes);
        gpu.set_mode(mode).unwrap();
        let mut comes = |number| {
            let (id, name) = (WorkloadId(number), String::new());
            let workload = Workload::new(id, name, Owner::new(""), Demand::default());
            gpu.admit(Tenant { workload: Arc::new(workload), share }).is_ok()
        };
        (1..).take_while(|number| comes(*number)).count() as u32
    }

    #[test]
    fn as_many_are_counted_as_a_gpu_lets_in() {
        let catalogue = Catalogue::shipped().unwrap();
        let model = catalogue.get("a100-80gb").unwrap();
        let modes = |tenants_max: u8, compute_milli: u32| {
            let by_turns = compute_milli <= 1000 / u32::from(tenants_max);
            [
                SharingMode::Mps { tenants_max },
                SharingMode::MemoryCapped { tenants_max },
                SharingMode::TimeSlice { tenants_max },
            ]
            .into_iter()
            .filter(move |mode| by_turns || mode.kind() != SharingKind::TimeSlice)
        };
        for memory_mib in (1_024..90_000).step_by(2_048) {
            for (tenants_max, compute_milli) in
                [(1, 1000), (3, 333), (4, 250), (4, 400), (7, 142), (7, 0), (48, 20), (48, 100)]
            {
                for mode in modes(tenants_max, compute_milli) {
                    let need = Need { memory_mib, compute_milli };
                    let counted = capacity_on(model, mode, need).tenants;
                    assert_eq!(counted, admitted(model, need, mode), "{need:?} {mode:?}");
                }
            }
        }
    }
}
