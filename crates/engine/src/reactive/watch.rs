//! What is remembered of one GPU, and the one door through which samples come in.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use model::WorkloadId;

use super::mean::{Dwell, Mean};
use super::neighbour::Neighbour;
use super::starvation::Takers;
use super::{Finding, Sample, TenantSample, Thresholds};
use super::{contention, shortage, starvation, underuse};

/// Most tenants remembered of one GPU: more than any mode admits.
pub const TENANTS_MAX: usize = 256;

/// What must outlast a restart, so that a new watch does not take back at once what the last one
/// advised. In ms of the clock of the samples; a time later than the next sample counts as that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// When anything was last advised.
    pub advised_ms: Option<u64>,
    /// When the GPU was last seen contended for long enough.
    pub contended_ms: Option<u64>,
}

/// The state of one GPU's rules. Its size is bounded by [`TENANTS_MAX`].
#[derive(Clone, Debug)]
pub struct Watch {
    limits: Thresholds,
    last_ms: Option<u64>,
    /// When it last had tenants.
    occupied_ms: Option<u64>,
    busy: Mean,
    underused: Dwell,
    tenants: BTreeMap<WorkloadId, Neighbour>,
    waits: Waits,
}

impl Watch {
    /// A GPU of which nothing is known yet.
    pub fn new(limits: Thresholds) -> Self {
        Self::resume(limits, Waits::default())
    }

    /// A GPU of which an earlier watch has left its [`Watch::waits`].
    pub fn resume(limits: Thresholds, waits: Waits) -> Self {
        Self {
            limits,
            last_ms: None,
            occupied_ms: None,
            busy: Mean::default(),
            underused: Dwell::default(),
            tenants: BTreeMap::new(),
            waits,
        }
    }

    /// What to keep for [`Watch::resume`].
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// Takes in a sample and says what is found: what concerns tenants first, in order of workload,
    /// then at most one advice.
    ///
    /// * A sample that is not later than the last one is ignored, be it late or double. If it is earlier
    ///   by more than [`Thresholds::gap_ms`], the clock was set back: all begins anew, also the waits.
    /// * After a gap longer than [`Thresholds::gap_ms`], what was measured before it is void; the
    ///   cool-down is not, nor what was told of tenants. The same holds for a tenant that was away.
    /// * A GPU without tenants says nothing of how it is shared, neither for nor against; if it was
    ///   without them for longer than a gap, that counts as one.
    /// * After an advice, its conditions must hold anew. Contention speaks against finer sharing for
    ///   [`Thresholds::calm_ms`], whether or not it was told.
    pub fn observe(&mut self, sample: &Sample) -> Vec<Finding> {
        if let Some(last_ms) = self.last_ms.filter(|last_ms| sample.at_ms <= *last_ms) {
            if last_ms - sample.at_ms <= self.limits.gap_ms {
                return Vec::new();
            }
            *self = Self::resume(self.limits.clone(), self.waits);
        }
        let elapsed_ms = self.advance(sample.at_ms);
        let here = self.admit(sample, elapsed_ms);
        if here.is_empty() {
            return Vec::new();
        }
        self.occupy(sample, elapsed_ms, &here);
        let mut findings = self.find(sample.at_ms, elapsed_ms, &here);
        findings.extend(self.advise(sample, elapsed_ms, &here));
        findings
    }

    /// Time since the last sample: 0 for the first and after a gap.
    fn advance(&mut self, at_ms: u64) -> u64 {
        for then_ms in [&mut self.waits.advised_ms, &mut self.waits.contended_ms] {
            *then_ms = then_ms.map(|then_ms| then_ms.min(at_ms));
        }
        let last_ms = self.last_ms.replace(at_ms).unwrap_or(at_ms);
        let elapsed_ms = at_ms - last_ms;
        if elapsed_ms > self.limits.gap_ms { 0 } else { elapsed_ms }
    }

    /// Takes in how busy the GPU is with tenants. What was seen of it before a long time without any,
    /// or without samples, is void.
    fn occupy(&mut self, sample: &Sample, elapsed_ms: u64, here: &[WorkloadId]) {
        let at_ms = sample.at_ms;
        let since_ms = self.occupied_ms.replace(at_ms).map_or(0, |then_ms| at_ms - then_ms);
        if since_ms > self.limits.gap_ms {
            (self.busy, self.underused) = (Mean::default(), Dwell::default());
        }
        let tenants = present(&self.tenants, here).into_iter().map(|tenant| tenant.last.busy_milli);
        let busy_milli = tenants.fold(sample.busy_milli, u32::max).min(1000);
        self.busy.feed(u64::from(busy_milli), elapsed_ms, self.limits.smooth_ms);
    }

    /// Takes the tenants' samples in; returns who is here, in order.
    fn admit(&mut self, sample: &Sample, elapsed_ms: u64) -> Vec<WorkloadId> {
        let mut listed: BTreeMap<WorkloadId, &TenantSample> = BTreeMap::new();
        for tenant in &sample.tenants {
            listed.entry(tenant.workload).or_insert(tenant);
        }
        while listed.len() > TENANTS_MAX {
            listed.pop_last();
        }
        self.forget(sample.at_ms, &listed);
        for (workload, tenant) in &listed {
            let known = self.tenants.entry(*workload);
            let known = known.or_insert_with(|| Neighbour::new(tenant, sample.at_ms));
            if sample.at_ms - known.last_ms > self.limits.gap_ms {
                known.void();
                known.last_ms = sample.at_ms;
            }
            known.feed(tenant, sample.at_ms, elapsed_ms, &self.limits);
        }
        listed.into_keys().collect()
    }

    /// Forgets tenants that have been away for so long that anything may be told of them again, and
    /// those longest away where there are too many.
    fn forget(&mut self, at_ms: u64, listed: &BTreeMap<WorkloadId, &TenantSample>) {
        let keep_ms = self.limits.again_ms.max(self.limits.gap_ms);
        self.tenants.retain(|workload, known| {
            listed.contains_key(workload) || at_ms - known.last_ms <= keep_ms
        });
        let newcomers = listed.keys().filter(|workload| !self.tenants.contains_key(*workload));
        let excess = (self.tenants.len() + newcomers.count()).saturating_sub(TENANTS_MAX);
        let away = self.tenants.iter().filter(|(workload, _)| !listed.contains_key(*workload));
        let mut away: Vec<_> = away.map(|(workload, known)| (known.last_ms, *workload)).collect();
        away.sort_unstable();
        for (_, workload) in away.into_iter().take(excess) {
            self.tenants.remove(&workload);
        }
    }

    /// What concerns single tenants.
    fn find(&mut self, at_ms: u64, elapsed_ms: u64, here: &[WorkloadId]) -> Vec<Finding> {
        let mut busiest: Vec<(WorkloadId, i32, u32)> = present(&self.tenants, here)
            .iter()
            .map(|tenant| (tenant.last.workload, tenant.last.priority, tenant.busy.milli()))
            .collect();
        busiest.sort_by_key(|(workload, _, busy_milli)| (Reverse(*busy_milli), *workload));
        let all_milli: u32 = busiest.iter().map(|(_, _, busy_milli)| busy_milli).sum();
        let mut findings = Vec::new();
        for workload in here {
            let Some(tenant) = self.tenants.get_mut(workload) else { continue };
            let others_milli = (all_milli - tenant.busy.milli()).min(1000);
            let first = busiest.iter().find(|(other, _, _)| other != workload).copied();
            let takers = first.map(|first| Takers { busy_milli: others_milli, first });
            contention::feed(tenant, elapsed_ms, &self.busy, others_milli, &self.limits);
            starvation::feed(tenant, elapsed_ms, others_milli, &self.limits);
            findings.extend(starvation::find(tenant, at_ms, takers, &self.limits));
            findings.extend(shortage::find(tenant, at_ms, &self.limits));
        }
        findings
    }

    /// What concerns the GPU as a whole.
    fn advise(&mut self, sample: &Sample, elapsed_ms: u64, here: &[WorkloadId]) -> Option<Finding> {
        let limits = &self.limits;
        let present = present(&self.tenants, here);
        underuse::feed(&mut self.underused, sample, elapsed_ms, &self.busy, &present, limits);
        let crowded = contention::advise(&self.busy, &present, limits);
        if crowded.is_some() {
            self.waits.contended_ms = Some(sample.at_ms);
        }
        let within = |then_ms: Option<u64>, ms: u64| {
            then_ms.is_some_and(|then_ms| sample.at_ms - then_ms < ms)
        };
        if within(self.waits.advised_ms, limits.cool_down_ms) {
            return None;
        }
        let room = underuse::advise(&self.underused, &self.busy, present.len(), limits);
        let room = room.filter(|_| !within(self.waits.contended_ms, limits.calm_ms));
        let advice = crowded.or(room)?;
        self.waits.advised_ms = Some(sample.at_ms);
        self.underused = Dwell::default();
        self.tenants.values_mut().for_each(|tenant| tenant.contended = Dwell::default());
        Some(advice)
    }
}

fn present<'a>(
    tenants: &'a BTreeMap<WorkloadId, Neighbour>,
    here: &[WorkloadId],
) -> Vec<&'a Neighbour> {
    here.iter().filter_map(|workload| tenants.get(workload)).collect()
}

#[cfg(test)]
mod tests {
    use model::SplitMix;

    use super::super::rise::POINTS_MAX;
    use super::*;

    fn any(random: &mut SplitMix, at_ms: u64) -> Sample {
        let tenant = |random: &mut SplitMix| TenantSample {
            workload: WorkloadId(random.below(2_000)),
            priority: random.below(3) as i32,
            busy_milli: random.below(2_000) as u32,
            throttled_milli: random.below(2_000) as u32,
            memory_mib: random.next_bits(),
            memory_cap_mib: random.next_bits(),
            latency_p99_us: Some(random.next_bits()),
            latency_target_us: (random.below(2) == 0).then(|| random.next_bits()),
            exclusive: random.below(2) == 0,
        };
        let count = random.below(400);
        let tenants = (0..count).map(|_| tenant(random)).collect();
        let (busy_milli, memory_total_mib) = (random.below(2_000) as u32, random.next_bits());
        Sample { at_ms, busy_milli, memory_total_mib, tenants }
    }

    #[test]
    fn what_is_remembered_is_bounded_whoever_comes_and_goes() {
        let (mut random, mut watch) = (SplitMix::new(7), Watch::new(Thresholds::default()));
        let (mut at_ms, mut full) = (0, false);
        for _ in 0..2_000 {
            at_ms += random.below(5_000);
            watch.observe(&any(&mut random, at_ms));
            full |= watch.tenants.len() == TENANTS_MAX;
            assert!(watch.tenants.len() <= TENANTS_MAX);
            assert!(watch.tenants.values().all(|known| known.rise.points() <= POINTS_MAX));
        }
        assert!(full, "the bound was reached");
    }

    #[test]
    fn who_has_been_away_for_long_is_forgotten() {
        let (mut random, mut watch) = (SplitMix::new(7), Watch::new(Thresholds::default()));
        watch.observe(&any(&mut random, 1));
        assert!(!watch.tenants.is_empty());
        watch.observe(&Sample { at_ms: 600_001, ..Sample::default() });
        assert!(!watch.tenants.is_empty(), "within the time in which nothing is told again");
        watch.observe(&Sample { at_ms: 600_002, ..Sample::default() });
        assert!(watch.tenants.is_empty());
    }

    #[test]
    fn time_at_the_end_of_the_clock_is_borne() {
        let (mut random, mut watch) = (SplitMix::new(7), Watch::new(Thresholds::default()));
        for at_ms in [0, u64::MAX - 1, 5, u64::MAX, u64::MAX] {
            watch.observe(&any(&mut random, at_ms));
        }
    }
}
