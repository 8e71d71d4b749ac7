//! Profile counters (NVML's GPM, Hopper and newer): parts of the period between two rounds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};

use super::answers::{Answers, Ask};
use crate::sample::ProfileCounters;

/// Shortest period that counters are taken over; NVML's header asks for 100 ms at least.
pub const PROFILE_PERIOD: Duration = Duration::from_millis(100);

const METRICS: [GpmMetricId; 5] = [
    GpmMetricId::GraphicsUtil,
    GpmMetricId::SmUtil,
    GpmMetricId::SmOccupancy,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DramBwUtil,
];

/// The running periods of one GPU: of the whole (`None`) and of each GPU instance.
#[derive(Debug, Default)]
pub(super) struct Profiles<'d> {
    periods: BTreeMap<Option<u32>, Period<'d>>,
}

#[derive(Debug)]
struct Period<'d> {
    /// Just after the first state was taken, so that no period is too short.
    begun: Instant,
    at_begin: GpmSample<'d>,
    /// What the last finished period gave.
    counters: Option<ProfileCounters>,
}

impl<'d> Profiles<'d> {
    /// Counters of the GPU, or of an instance, over the period that ends now; those of the last
    /// period if this one is too short yet.
    pub(super) fn measure(
        &mut self,
        nvml: &'d Nvml,
        device: &Device<'d>,
        answers: &mut Answers,
        part: Option<u32>,
    ) -> Option<ProfileCounters> {
        if let Some(period) = self.periods.get(&part)
            && period.begun.elapsed() < PROFILE_PERIOD
        {
            return period.counters;
        }
        let at_end = take(device, answers, part)?;
        let before = self.periods.remove(&part);
        let counters = before.and_then(|period| counters(nvml, &period.at_begin, &at_end));
        self.periods.insert(part, Period { begun: Instant::now(), at_begin: at_end, counters });
        counters
    }

    /// Drops the periods of instances that are gone.
    pub(super) fn keep(&mut self, there: impl Fn(u32) -> bool) {
        self.periods.retain(|part, _| part.is_none_or(&there));
    }

    /// Drops all periods.
    pub(super) fn clear(&mut self) {
        self.periods.clear();
    }
}

/// The counters' state now.
fn take<'d>(
    device: &Device<'d>,
    answers: &mut Answers,
    part: Option<u32>,
) -> Option<GpmSample<'d>> {
    let Some(instance) = part else {
        if answers.ask(Ask::Profile, || device.gpm_support()) == Some(false) {
            answers.refuse(Ask::Profile);
            answers.refuse(Ask::InstanceProfile);
        }
        return answers.ask(Ask::Profile, || device.gpm_sample());
    };
    answers.ask(Ask::InstanceProfile, || device.gpm_mig_sample(instance))
}

fn counters<'d>(
    nvml: &'d Nvml,
    from: &GpmSample<'d>,
    to: &GpmSample<'d>,
) -> Option<ProfileCounters> {
    let results = gpm_metrics_get(nvml, from, to, &METRICS).ok()?;
    let ratio = |at: usize| {
        let percent = results.get(at)?.as_ref().ok()?.value;
        percent.is_finite().then_some(percent / 100.0)
    };
    Some(ProfileCounters {
        engine_ratio: ratio(0),
        sm_ratio: ratio(1),
        occupancy_ratio: ratio(2),
        tensor_ratio: ratio(3),
        dram_ratio: ratio(4),
    })
}
