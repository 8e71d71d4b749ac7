//! What can hold caps here: found by looking for each thing that a backend needs, and saying which one
//! is missing.

use crate::backend::{Backends, Enforcement};
use crate::driver::Driver;
use crate::inventory::Mig;
use crate::memory_limit;
use crate::mps::{ForeignDaemons, Mps};
use crate::time_slice::TimeSlice;

/// What is the same for all GPUs of the machine, and dear to find out.
#[derive(Debug)]
pub(crate) struct OnAll {
    /// As [`crate::limiter::Limiter::probe`] found.
    limiter: Enforcement,
    daemons: ForeignDaemons,
}

impl OnAll {
    /// * `limiter` — as [`crate::limiter::Limiter::probe`] found: to find out starts a program.
    pub(crate) fn find(limiter: Enforcement) -> Self {
        Self { limiter, daemons: ForeignDaemons::find() }
    }
}

/// The backends of one GPU.
///
/// * `gpu` — its UUID.
/// * `mig` — as [`mig`] found, or why there is none.
pub(crate) fn backends(
    driver: &Driver,
    gpu: &str,
    mig: Enforcement,
    compute_capability: (u32, u32),
    on_all: &OnAll,
) -> Backends {
    Backends {
        mig,
        memory_limit: memory_limit::untried(driver),
        mps: Mps::probe(gpu, compute_capability, &on_all.daemons),
        time_slice: TimeSlice::probe(),
        limiter: on_all.limiter.clone(),
    }
}

/// MIG that could be read. The driver gives placements to privileged users only (NVML header,
/// `nvmlDeviceGetGpuInstancePossiblePlacements_v2`), so that whoever reads them may change instances.
pub(crate) fn mig(mig: &Mig) -> Enforcement {
    if mig.enabled != mig.pending {
        let mode = if mig.pending { "on" } else { "off" };
        return Enforcement::Absent(format!("MIG mode turns {mode} at the next reset of the GPU"));
    }
    Enforcement::Hard
}
