//! MIG profiles by their name alone, as Slurm's types name them. Several models may have one of a name; the least of
//! them counts.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use model::Catalogue;

/// What an instance of a profile has, at the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    /// Memory that tenants can get.
    pub(crate) memory_mib: u64,
    /// Part of the GPU's compute, in thousandths.
    pub(crate) compute_milli: u32,
}

/// The profile of a name; `None` if the type is no profile.
pub(crate) fn profile(kind: &str) -> Option<Profile> {
    static ALL: OnceLock<BTreeMap<String, Profile>> = OnceLock::new();
    ALL.get_or_init(all).get(kind).copied()
}

fn all() -> BTreeMap<String, Profile> {
    let mut found: BTreeMap<String, Profile> = BTreeMap::new();
    let Ok(catalogue) = Catalogue::shipped() else { return found };
    for model in catalogue.iter() {
        for (geometry, profile) in
            model.mig.iter().flat_map(|mig| mig.profiles.iter().map(move |it| (mig, it)))
        {
            let slices = u32::from(geometry.compute_slices.max(1));
            let compute_milli = u32::from(profile.compute_slices) * 1000 / slices;
            let memory_mib = model.instance_memory_mib(profile);
            let least =
                found.entry(profile.name.clone()).or_insert(Profile { memory_mib, compute_milli });
            least.memory_mib = memory_mib.min(least.memory_mib);
            least.compute_milli = compute_milli.min(least.compute_milli);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_models_that_have_a_profile_the_least_counts() {
        // 1 of 8 memory slices of A100-80GB, 2 of 8 of A100-40GB, and 1 of 7 compute slices of both.
        assert_eq!(profile("1g.10gb"), Some(Profile { memory_mib: 9595, compute_milli: 142 }));
        assert_eq!(profile("a100"), None);
    }
}
