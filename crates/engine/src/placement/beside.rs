//! Who would sit beside whom: speeds below which nobody may fall, and what a seat costs those who share it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;

use model::{Beside, Class, Gpu, Node, Owner, Placement, Policy, Refusal, Share, Workload};

use super::candidate::{Key, Nature};
use crate::fit::Pick;
use crate::interference::{Company, Prediction, is_known, is_waited_for, speed_min_milli};

/// What is known of those who sit together, as far as the policy minds it.
pub(crate) struct Neighbourhood {
    /// Weight of what is lost, in GPUs per GPU; 0 if nothing is minded.
    weight: f64,
    /// Floors of speed by owner, in thousandths.
    floors: BTreeMap<Owner, u32>,
    company: RefCell<Company>,
}

/// What sitting together does to those on one GPU.
#[derive(Clone, Copy, Default)]
struct Toll {
    beside: Option<Beside>,
    /// GPUs' worth of speed that is lost by the newcomer and by those there.
    lost: f64,
}

impl Neighbourhood {
    /// * `company` — what is remembered from before.
    pub(crate) fn new(policy: &Policy, company: Company) -> Self {
        let minds = policy.placement == Placement::Hotpot;
        let milli = if minds { policy.hotpot.interference_milli } else { 0 };
        let floors = policy.quotas.iter().filter(|(_, quota)| quota.speed_min_milli > 0);
        let floors = floors.map(|(owner, quota)| (owner.clone(), quota.speed_min_milli));
        Self {
            weight: f64::from(milli) / 1000.0,
            floors: floors.collect(),
            company: RefCell::new(company),
        }
    }

    /// What is remembered, for the next that is made.
    pub(crate) fn into_company(self) -> Company {
        self.company.into_inner()
    }

    /// What of a workload decides whom it may sit beside: its class, and how it runs. Nothing where nothing is known of it.
    pub(crate) fn nature(&self, workload: &Workload) -> Option<(Class, Nature)> {
        if !self.knows(workload) {
            return None;
        }
        let class = if is_waited_for(workload) { Class::Service } else { Class::Batch };
        let owner = &workload.owner;
        let nature = Nature {
            kind: workload.kind.clone(),
            profile: workload.profile,
            latency_target_ms: workload.latency_target_ms,
            latency_alone_ms: workload.latency_alone_ms,
            owner: self.floors.contains_key(owner).then(|| owner.clone()),
        };
        Some((class, nature))
    }

    /// Leaves out the shares with which somebody would run slower than he may.
    ///
    /// # Errors
    /// The nearest of the refusals, if any share was left out.
    pub(crate) fn retain_bearable(
        &self,
        node: &Node,
        key: &Key,
        options: &mut Vec<Pick>,
    ) -> Result<(), Refusal> {
        let mut nearest = None;
        let on = |pick: &Pick| node.gpus().get(usize::from(pick.gpu));
        options.retain(|pick| match on(pick).map_or(Ok(()), |gpu| self.bears(gpu, key, pick)) {
            Ok(()) => true,
            Err(refusal) => {
                nearest = Some(Refusal::nearer(nearest.take(), refusal));
                false
            }
        });
        nearest.map_or(Ok(()), Err)
    }

    /// Whether all on a GPU could bear a newcomer with that share, and it them.
    ///
    /// # Errors
    /// [`Refusal::TooSlow`] or [`Refusal::SlowsOthers`].
    pub(crate) fn bears(&self, gpu: &Gpu, key: &Key, pick: &Pick) -> Result<(), Refusal> {
        self.toll(gpu, key, pick).map(drop)
    }

    /// What is lost by seats, in GPUs, weighed.
    pub(crate) fn lost(&self, node: &Node, key: &Key, picks: &[Pick]) -> f64 {
        self.weight * self.tolls(node, key, picks).map(|toll| toll.lost).sum::<f64>()
    }

    /// Whom the seats are beside: of several GPUs the one where somebody is slowest.
    pub(crate) fn beside(&self, node: &Node, key: &Key, picks: &[Pick]) -> Option<Beside> {
        let tolls = self.tolls(node, key, picks).filter_map(|toll| toll.beside);
        tolls.min_by_key(|beside| beside.speed_milli.min(beside.slowest_milli))
    }

    fn tolls(&self, node: &Node, key: &Key, picks: &[Pick]) -> impl Iterator<Item = Toll> {
        let on = |pick: &Pick| node.gpus().get(usize::from(pick.gpu));
        picks.iter().filter_map(move |pick| self.toll(on(pick)?, key, pick).ok())
    }

    fn toll(&self, gpu: &Gpu, key: &Key, pick: &Pick) -> Result<Toll, Refusal> {
        if self.weight <= 0.0 {
            return Ok(Toll::default());
        }
        let there = || gpu.tenants().iter().map(|tenant| tenant.workload.as_ref());
        let is_instance = matches!(pick.share, Share::Mig { .. });
        let is_known = key.nature != Nature::default() || there().any(|other| self.knows(other));
        if !is_known || (gpu.is_idle() && !is_instance) {
            return Ok(Toll::default());
        }
        let newcomer = key.stand_in();
        let before = self.company.borrow_mut().on(gpu);
        let after = self.company.borrow_mut().with(gpu, &newcomer, pick.share);
        self.bearable(there().chain([&newcomer]), &before, &after)?;
        Ok(toll(gpu, pick, &before, &after))
    }

    /// Whether nobody falls below his floor by the newcomer, who comes last.
    fn bearable<'a>(
        &self,
        all: impl Iterator<Item = &'a Workload>,
        before: &[Prediction],
        after: &[Prediction],
    ) -> Result<(), Refusal> {
        for (at, (workload, told)) in all.zip(after).enumerate() {
            let (speed_milli, least_milli) = (milli(told.speed), self.least_milli(workload));
            if speed_milli >= least_milli {
                continue;
            }
            match before.get(at) {
                None => return Err(Refusal::TooSlow { speed_milli, least_milli }),
                Some(before) if told.speed < before.speed => {
                    return Err(Refusal::SlowsOthers { speed_milli, least_milli });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn least_milli(&self, workload: &Workload) -> u32 {
        let of_owner = self.floors.get(&workload.owner).copied().unwrap_or(0);
        of_owner.max(speed_min_milli(workload))
    }

    fn knows(&self, workload: &Workload) -> bool {
        self.weight > 0.0 && (is_known(workload) || self.least_milli(workload) > 0)
    }
}

/// What the newcomer, who comes last in `after`, and those there lose.
fn toll(gpu: &Gpu, pick: &Pick, before: &[Prediction], after: &[Prediction]) -> Toll {
    let Some((newcomer, there)) = after.split_last() else { return Toll::default() };
    let part = |share| f64::from(gpu.share_milli(pick.mode, share)) / 1000.0;
    let taken = gpu.tenants().iter().map(|tenant| part(tenant.share));
    let slowed = before.iter().zip(there).map(|(before, after)| before.speed - after.speed);
    let lost: f64 = taken.zip(slowed).map(|(part, slowed)| part * slowed.max(0.0)).sum();
    let slowest = there.iter().map(|told| told.speed).fold(1.0, f64::min);
    let beside = Beside {
        tenants: there.len() as u32,
        speed_milli: milli(newcomer.speed),
        slowest_milli: milli(slowest),
    };
    Toll { beside: Some(beside), lost: lost + part(pick.share) * (1.0 - newcomer.speed) }
}

/// Thousandths, rounded to the nearest.
fn milli(speed: f64) -> u32 {
    libm::round(speed * 1000.0) as u32
}
