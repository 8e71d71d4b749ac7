//! What a workload asks for, measured in a fleet's GPUs, whether it says compute, memory or a profile.

use std::collections::BTreeMap;

use model::{Fleet, GpuAsk, GpuModel, Workload};

/// A fleet's GPU models and how many there are of each.
#[derive(Clone, Debug)]
pub struct Yardstick {
    models: Vec<(GpuModel, u64)>,
    gpus: u64,
}

impl Yardstick {
    /// Measures by the GPUs of a fleet.
    pub fn of(fleet: &Fleet) -> Self {
        let mut models: BTreeMap<_, (GpuModel, u64)> = BTreeMap::new();
        for gpu in fleet.nodes().iter().flat_map(|node| node.gpus()) {
            let entry = models.entry(gpu.model().id);
            entry.or_insert_with(|| (gpu.model().clone(), 0)).1 += 1;
        }
        Self { models: models.into_values().collect(), gpus: fleet.gpu_count() }
    }

    /// Thousandths of GPUs in the fleet.
    pub fn capacity_milli(&self) -> u64 {
        self.gpus * 1000
    }

    /// Thousandths of GPUs that a workload asks for, all members counted.
    ///
    /// Memory and profiles come to different parts of different models: the mean over the GPUs of
    /// the fleet that could grant them counts, and 0 if none could.
    pub fn gpu_milli(&self, workload: &Workload) -> u64 {
        let Some(gpus) = &workload.demand.gpus else { return 0 };
        let each_milli = match &gpus.each {
            GpuAsk::Whole => 1000,
            GpuAsk::Fraction { compute_milli, memory_mib: 0 } => u64::from(*compute_milli),
            GpuAsk::Fraction { .. } | GpuAsk::Profile(_) => self.mean_milli(workload, &gpus.each),
        };
        let members = u64::from(workload.members.max(1));
        each_milli.saturating_mul(u64::from(gpus.count)).saturating_mul(members)
    }

    fn mean_milli(&self, workload: &Workload, each: &GpuAsk) -> u64 {
        let accepts = workload.demand.gpus.as_ref().map_or(&[][..], |gpus| &gpus.accepts);
        let accepted = |model: &GpuModel| {
            accepts.is_empty() || accepts.iter().any(|set| set.accepts(&model.name))
        };
        let able = self.models.iter().filter(|(model, _)| accepted(model));
        let (mut sum, mut count) = (0, 0);
        for (milli, gpus) in able.filter_map(|(model, n)| Some((each.milli_on(model)?, n))) {
            sum += u64::from(milli) * gpus;
            count += gpus;
        }
        sum / u64::max(count, 1)
    }
}
