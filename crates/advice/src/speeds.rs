//! Speeds by arithmetic alone, where nothing is known of tenants but what they ask: nobody is faster than his part.

use engine::sharing::{Switching, instance_share, turn_milli};
use model::{Gpu, GpuModel, ProfileIndex, Share, SharingKind, Tenant, Trace, Workload};
use simulator::Speeds;

use crate::need::Need;

const FULL_MILLI: u64 = 1000;

/// What each workload of a list asks of compute; who says nothing is taken to want all of the card, which is the worst that can come.
///
/// * Whole cards: full speed.
/// * An instance: `min(1, has / asked)`, by real compute slices.
/// * All others: `min(1, 1 / Σ asked)` of the card, and with turns, less what changing costs; see [`engine::sharing::turn_milli`].
pub struct ByArithmetic {
    asked_milli: Vec<u32>,
}

impl ByArithmetic {
    /// Of a list whose ids are positions in it.
    pub fn of(trace: &Trace, model: &GpuModel) -> Self {
        let asked = |workload: &Workload| {
            let milli = Need::of(workload, model).map_or(0, |need| need.compute_milli);
            if milli == 0 { 1000 } else { milli }
        };
        Self {
            asked_milli: trace.arrivals.iter().map(|arrival| asked(&arrival.workload)).collect(),
        }
    }

    fn asked(&self, workload: &Workload) -> u64 {
        self.asked_milli.get(workload.id.0 as usize).map_or(FULL_MILLI, |milli| u64::from(*milli))
    }
}

impl Speeds for ByArithmetic {
    fn are_full(&self) -> bool {
        false
    }

    fn of(&self, gpu: &Gpu, tenants: &[&Workload]) -> Vec<u32> {
        let all: u64 = tenants.iter().map(|one| self.asked(one)).sum();
        let turns = match gpu.mode().kind() {
            SharingKind::TimeSlice => {
                let count = tenants.len() as u32;
                u64::from(turn_milli(count, Switching::default())) * u64::from(count)
            }
            SharingKind::Exclusive
            | SharingKind::Mps
            | SharingKind::Mig
            | SharingKind::MemoryCapped => FULL_MILLI,
        };
        let together = (turns * FULL_MILLI / all.max(1)).min(turns).min(FULL_MILLI);
        let one = |(tenant, workload): (&Tenant, &&Workload)| match tenant.share {
            Share::Exclusive => FULL_MILLI as u32,
            Share::Mig { profile, .. } => of_instance(gpu, profile, self.asked(workload)),
            Share::TimeSlice { .. } | Share::Mps { .. } | Share::MemoryCapped { .. } => {
                together as u32
            }
        };
        gpu.tenants().iter().zip(tenants).map(one).collect()
    }
}

fn of_instance(gpu: &Gpu, profile: ProfileIndex, asked_milli: u64) -> u32 {
    let has = gpu.model().mig.as_ref().and_then(|geometry| instance_share(geometry, profile));
    let has = has.map_or(FULL_MILLI, |share| u64::from(share.compute_milli));
    (has * FULL_MILLI / asked_milli.max(1)).min(FULL_MILLI) as u32
}
