//! Requests for MIG instances of A100-80GB GPUs: which profiles, in which order, for how long.
//!
//! Read by the test `mig_acceptance` and by `cargo xtask mig`.

use model::{Catalogue, GpuModel, MigGeometry, ProfileIndex, SplitMix};
use std::sync::Arc;

/// Profiles in the order of [`Mix::weights`].
const PROFILES: [&str; 6] = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];

/// How often each profile is asked for.
pub(crate) struct Mix {
    pub(crate) name: &'static str,
    weights: [u64; 6],
}

pub(crate) const MIXES: [Mix; 6] = [
    Mix { name: "uniform", weights: [1, 0, 1, 1, 1, 1] },
    Mix { name: "mostly 1g", weights: [50, 0, 25, 15, 5, 5] },
    Mix { name: "2g and 3g", weights: [5, 0, 35, 35, 20, 5] },
    Mix { name: "3g, 4g, 7g", weights: [10, 0, 10, 30, 25, 25] },
    Mix { name: "with doubles", weights: [1, 1, 1, 1, 1, 1] },
    Mix { name: "mostly doubles", weights: [20, 40, 20, 12, 4, 4] },
];

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) profile: ProfileIndex,
    /// Compute and memory slices of the profile together.
    pub(crate) slices: u64,
    /// Arrivals after its own until it leaves.
    pub(crate) stays: u64,
}

/// The GPU model that everything is measured on.
pub(crate) fn gpu_model() -> Arc<GpuModel> {
    let catalogue = Catalogue::shipped().expect("the shipped table is read by its own tests");
    Arc::clone(catalogue.get("a100-80gb").expect("the shipped table has the A100"))
}

/// Its profiles.
pub(crate) fn geometry() -> MigGeometry {
    gpu_model().mig.clone().expect("the A100 has MIG")
}

/// Compute and memory slices of one GPU together.
pub(crate) fn gpu_slices(geometry: &MigGeometry) -> u64 {
    u64::from(geometry.compute_slices) + u64::from(geometry.memory_slices)
}

/// An endless stream of requests; the same seed gives the same requests on every machine.
pub(crate) struct Stream {
    choices: Vec<(Request, u64)>,
    random: SplitMix,
    stay_mean: u64,
}

impl Stream {
    pub(crate) fn new(geometry: &MigGeometry, mix: &Mix, seed: u64) -> Self {
        let choices = PROFILES.iter().zip(mix.weights).map(|(name, weight)| {
            let index = geometry.find(name).expect("a profile of the A100");
            let profile = geometry.profile(index).expect("an index that was just found");
            let slices = u64::from(profile.compute_slices) + u64::from(profile.memory_slices);
            (Request { profile: index, slices, stays: u64::MAX }, weight)
        });
        Self { choices: choices.collect(), random: SplitMix::new(seed << 32), stay_mean: 0 }
    }

    /// Lets each request stay for a random time such that, if all were accepted, `percent` of the
    /// slices of `gpus` would be held on average; returns the mean stay in arrivals.
    pub(crate) fn leaving(&mut self, geometry: &MigGeometry, gpus: u64, percent: u64) -> u64 {
        let weights: u64 = self.choices.iter().map(|(_, weight)| weight).sum();
        let slices: u64 = self.choices.iter().map(|(asked, weight)| asked.slices * weight).sum();
        self.stay_mean = gpus * gpu_slices(geometry) * percent * weights / (100 * slices);
        self.stay_mean
    }

    pub(crate) fn next(&mut self) -> Request {
        let mut at = self.random.below(self.choices.iter().map(|(_, weight)| weight).sum());
        let mut asked = self.choices[0].0;
        for (request, weight) in &self.choices {
            if at < *weight {
                asked = *request;
                break;
            }
            at -= weight;
        }
        if self.stay_mean > 0 {
            // Memoryless: at every arrival it leaves with the same chance.
            asked.stays = 1;
            while self.random.below(self.stay_mean) != 0 {
                asked.stays += 1;
            }
        }
        asked
    }
}
