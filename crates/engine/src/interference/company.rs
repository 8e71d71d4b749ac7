//! Who sits together on a GPU, and how fast each will run: predictions for GPUs of the books, with pairs remembered.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use model::{Class, Gpu, Profile, Share, SharingKind, Workload};

use super::{Interference, Pair, Prediction, Tenant};
use crate::sharing::{instance_share, speed_for_latency};

/// Most pairs remembered; then all are forgotten.
const PAIRS_MAX: usize = 1 << 20;

/// Predicts for the tenants of GPUs. What it remembers makes it faster, never different.
#[derive(Debug, Default)]
pub struct Company {
    /// The model; the shipped one from the first time on that it is needed.
    model: Option<Interference>,
    /// Numbers of all that matters of a tenant, by its kind.
    numbers: BTreeMap<String, BTreeMap<Traits, u32>>,
    given: u32,
    /// By mode, GPU model and two numbers.
    pairs: BTreeMap<(SharingKind, String), BTreeMap<(u32, u32), Pair>>,
    kept: usize,
}

/// All that matters of a tenant beside its kind.
type Traits = (Profile, u32, bool);

impl Company {
    /// By a model that has learned; [`Company::default`] goes by the shipped one.
    pub fn new(model: Interference) -> Self {
        Self { model: Some(model), ..Self::default() }
    }

    /// What is predicted of each tenant of a GPU, in their order.
    pub fn on(&mut self, gpu: &Gpu) -> Vec<Prediction> {
        let tenants = gpu.tenants().iter().map(|one| (one.workload.as_ref(), one.share));
        self.predict(gpu, gpu.mode().kind(), &Vec::from_iter(tenants))
    }

    /// What would be predicted of each tenant of a GPU in the mode of `share`, and of a newcomer with that share, who comes last.
    pub fn with(&mut self, gpu: &Gpu, newcomer: &Workload, share: Share) -> Vec<Prediction> {
        let there = gpu.tenants().iter().map(|one| (one.workload.as_ref(), one.share));
        let all = Vec::from_iter(there.chain([(newcomer, share)]));
        self.predict(gpu, share.kind(), &all)
    }

    fn predict(
        &mut self,
        gpu: &Gpu,
        mode: SharingKind,
        all: &[(&Workload, Share)],
    ) -> Vec<Prediction> {
        let name = &gpu.model().name;
        let tenants =
            Vec::from_iter(all.iter().map(|(workload, share)| tenant(workload, gpu, *share)));
        let numbers = Vec::from_iter(tenants.iter().map(|tenant| self.number(tenant)));
        if self.kept > PAIRS_MAX {
            (self.pairs, self.kept) = (BTreeMap::new(), 0);
        }
        let model = self.model.get_or_insert_with(|| Interference::shipped().unwrap_or_default());
        let table = self.pairs.entry((mode, name.clone())).or_default();
        let before = table.len();
        let mut pair = |at: usize, other: usize| {
            let fresh = || model.pair(mode, name, &tenants[at], &tenants[other]);
            *table.entry((numbers[at], numbers[other])).or_insert_with(fresh)
        };
        let told = (0..tenants.len()).map(|at| model.one(mode, name, &tenants, at, &mut pair));
        let told = told.collect();
        self.kept += table.len() - before;
        told
    }

    fn number(&mut self, tenant: &Tenant<'_>) -> u32 {
        let traits = (tenant.profile, tenant.cap_milli, tenant.is_waited_for);
        if let Some(known) = self.numbers.get(tenant.kind).and_then(|all| all.get(&traits)) {
            return *known;
        }
        self.given += 1;
        let of_kind = self.numbers.entry(tenant.kind.to_string()).or_default();
        of_kind.insert(traits, self.given);
        self.given
    }
}

/// A workload with a share of a GPU, as the model sees it.
fn tenant<'a>(workload: &'a Workload, gpu: &Gpu, share: Share) -> Tenant<'a> {
    let (cap_milli, slice) = match share {
        Share::Exclusive | Share::TimeSlice { .. } => (0, None),
        Share::Mps { compute_milli, .. } | Share::MemoryCapped { compute_milli, .. } => {
            (compute_milli, None)
        }
        // Whoever names an instance and says nothing else is taken to run as it should there.
        Share::Mig { .. } if !is_known(workload) => (0, None),
        Share::Mig { profile, .. } => {
            let geometry = gpu.model().mig.as_ref();
            (0, geometry.and_then(|geometry| instance_share(geometry, profile)))
        }
    };
    Tenant {
        kind: &workload.kind,
        profile: workload.profile,
        slice,
        cap_milli,
        is_waited_for: is_waited_for(workload),
    }
}

/// Whether anything is known of how a workload runs.
pub(crate) fn is_known(workload: &Workload) -> bool {
    !workload.kind.is_empty() || workload.profile != Profile::default()
}

/// Whether somebody waits for a workload's answers: then being slow shows in them, and not in how long it stays.
pub fn is_waited_for(workload: &Workload) -> bool {
    let waited = matches!(workload.class, Class::Service | Class::Interactive);
    waited || workload.latency_target_ms.is_some()
}

/// The least speed, in thousandths of running alone, at which a workload keeps its latency target; 0 without a target or
/// without the latency that it has alone. See [`latency_factor`](crate::sharing::latency_factor).
pub fn speed_min_milli(workload: &Workload) -> u32 {
    let (Some(target_ms), Some(alone_ms)) = (workload.latency_target_ms, workload.latency_alone_ms)
    else {
        return 0;
    };
    let factor = f64::from(target_ms) / f64::from(alone_ms.max(1));
    let busy = f64::from(workload.profile.busy_milli.unwrap_or(0)) / 1000.0;
    libm::ceil(speed_for_latency(factor, busy) * 1000.0) as u32
}
