//! The MIG profiles that a driver reports for a model: of GPU instances, read from the shipped table,
//! and of the compute instances inside them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::models::{Architecture, ModelFacts, facts, names};

const TABLE: &str = include_str!("../../../data/mig_profiles.csv");

/// One kind of GPU instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceProfile {
    /// The driver's name, such as `1g.10gb`.
    pub name: String,
    /// The driver's number, such as 19.
    pub id: u32,
    /// Position in NVML's list of kinds (`NVML_GPU_INSTANCE_PROFILE_…`).
    pub kind: u32,
    /// Compute slices.
    pub slices: u32,
    /// Memory slices.
    pub memory_slices: u32,
    /// Device memory in MiB.
    pub memory_mib: u64,
    /// Most instances of it on one GPU.
    pub instances_max: u32,
    /// Memory slices at which it may start, ascending.
    pub starts: Vec<u32>,
    /// Multiprocessors.
    pub sms: u32,
    /// Video decoders.
    pub decoders: u32,
    /// JPEG engines.
    pub jpegs: u32,
    /// Optical flow engines.
    pub ofas: u32,
    /// Copy engines.
    pub copiers: u32,
}

/// One kind of compute instance within a GPU instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeProfile {
    /// Such as `1c.3g.40gb`, or the GPU instance's own name if it fills it.
    pub name: String,
    /// The driver's number, which is also NVML's kind (`NVML_COMPUTE_INSTANCE_PROFILE_…`).
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
    /// Multiprocessors.
    pub sms: u32,
    /// Compute slices of the GPU instance at which it may start, ascending.
    pub starts: Vec<u32>,
}

/// Profiles of a model, in the table's order; none if it has no MIG.
pub fn instance_profiles(model: &str) -> &'static [InstanceProfile] {
    static ALL: OnceLock<BTreeMap<&'static str, Vec<InstanceProfile>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let known = names().filter_map(facts);
        known.map(|facts| (facts.name, read(facts))).collect()
    });
    all.get(model).map_or(&[], Vec::as_slice)
}

/// Profiles of the compute instances that a GPU instance can hold, the smallest first.
pub fn compute_profiles(within: &InstanceProfile) -> Vec<ComputeProfile> {
    // Which sizes the driver lists (`nvidia-smi mig -lcip`) and their numbers.
    const SIZES: [(u32, u32); 5] = [(1, 0), (2, 1), (3, 2), (4, 3), (7, 4)];
    let listed: Vec<(u32, u32)> = SIZES
        .into_iter()
        .filter(|(slices, _)| match within.slices {
            4 => *slices != 3 && *slices <= 4,
            whole => *slices <= whole,
        })
        .collect();
    let profile = |(slices, id): (u32, u32)| {
        let step = if slices == 3 { 4 } else { slices };
        ComputeProfile {
            name: if slices == within.slices {
                within.name.clone()
            } else {
                format!("{slices}c.{}", within.name)
            },
            id,
            slices,
            sms: within.sms * slices / within.slices.max(1),
            starts: (0..within.slices)
                .step_by(step as usize)
                .filter(|start| start + slices <= within.slices)
                .collect(),
        }
    };
    listed.into_iter().map(profile).collect()
}

fn read(facts: &ModelFacts) -> Vec<InstanceProfile> {
    let catalogue = model::Catalogue::shipped().unwrap_or_default();
    let Some(known) = catalogue.get(facts.name) else { return Vec::new() };
    let Some(geometry) = &known.mig else { return Vec::new() };
    let rows = TABLE.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let rows = rows.filter(|row| row.first() == Some(&facts.mig_product()));
    let pairs = rows.zip(&geometry.profiles);
    let slices = geometry.memory_slices;
    pairs.filter_map(|(row, profile)| profile_of(facts, profile, slices, &row)).collect()
}

fn profile_of(
    facts: &ModelFacts,
    profile: &model::MigProfile,
    memory_slices_max: u8,
    row: &[&str],
) -> Option<InstanceProfile> {
    let number = |at: usize| row.get(at).and_then(|text| text.parse::<u32>().ok());
    let slices = u32::from(profile.compute_slices);
    let memory_slices = u32::from(profile.memory_slices);
    let media = !profile.is_plain();
    // Where the table has no count, as many as that many of the smallest profile.
    let whole = if facts.mig_devices_max == 7 { facts.sms / 8 } else { facts.sms / 4 };
    let (decoders, jpegs) = engines(facts.architecture, slices, media);
    Some(InstanceProfile {
        name: profile.name.clone(),
        id: number(2)?,
        kind: kind(slices, memory_slices, media, facts.mig_devices_max)?,
        slices,
        memory_slices,
        memory_mib: memory_mib(facts, profile, memory_slices_max),
        instances_max: u32::from(profile.instances_max),
        starts: profile.starts.iter().copied().map(u32::from).collect(),
        sms: number(8).unwrap_or(whole * slices),
        decoders,
        jpegs,
        ofas: u32::from(media || slices == 7),
        // An H100's 7g has one more than slices.
        copiers: slices + u32::from(slices == 7 && facts.architecture >= Architecture::Hopper),
    })
}

/// 95 % of the instance's slices of the GPU, or of what its name says if that is less: drivers report
/// 9,728 MiB for `1g.10gb` of A100-80GB and 4,864 MiB for `1g.5gb` of A100-40GB, and somewhat more
/// than by this rule for larger instances.
fn memory_mib(facts: &ModelFacts, profile: &model::MigProfile, slices_max: u8) -> u64 {
    let part =
        facts.memory_mib().0 * u64::from(profile.memory_slices) / u64::from(slices_max.max(1));
    profile.memory_mib.min(part) * 95 / 100
}

/// NVML's kind of a profile.
fn kind(slices: u32, memory_slices: u32, media: bool, devices_max: u32) -> Option<u32> {
    match (slices, media, memory_slices > slices && devices_max == 7) {
        (1, true, _) => Some(7),
        (1, false, true) => Some(9),
        (1, false, false) => Some(0),
        (2, true, _) => Some(8),
        (2, false, _) => Some(1),
        (3, ..) => Some(2),
        (4, ..) => Some(3),
        (7, ..) => Some(4),
        _ => None,
    }
}

/// Decoders and JPEG engines of an instance, as `nvidia-smi mig -lgip` prints them for A100 and H100.
fn engines(architecture: Architecture, slices: u32, media: bool) -> (u32, u32) {
    if architecture >= Architecture::Hopper {
        return (slices, slices);
    }
    let decoders = match slices {
        1 => u32::from(media),
        2 => 1,
        7 => 5,
        _ => 2,
    };
    (decoders, u32::from(media || slices == 7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_a100s_profiles_are_the_drivers() {
        let of = |name: &str| {
            instance_profiles("a100-80gb").iter().find(|p| p.name == name).cloned().unwrap()
        };
        let seen = |p: InstanceProfile| (p.id, p.kind, p.slices, p.memory_slices, p.memory_mib);
        assert_eq!(seen(of("1g.10gb")), (19, 0, 1, 1, 9_728));
        assert_eq!(seen(of("1g.10gb+me")), (20, 7, 1, 1, 9_728));
        assert_eq!(seen(of("1g.20gb")), (15, 9, 1, 2, 19_456));
        assert_eq!(seen(of("7g.80gb")), (0, 4, 7, 8, 77_824));
        assert_eq!(of("3g.40gb").starts, [0, 4]);
    }

    #[test]
    fn every_model_with_mig_has_profiles_with_their_own_ids_and_kinds() {
        for facts in names().filter_map(facts) {
            let profiles = instance_profiles(facts.name);
            assert_eq!(profiles.is_empty(), facts.mig_devices_max == 0, "{}", facts.name);
            for (at, profile) in profiles.iter().enumerate() {
                for other in &profiles[at + 1..] {
                    assert_ne!(profile.id, other.id, "{} {}", facts.name, profile.name);
                    assert_ne!(profile.kind, other.kind, "{} {}", facts.name, profile.name);
                }
            }
        }
    }

    #[test]
    fn compute_profiles_are_those_that_the_driver_lists() {
        let names = |model: &str, name: &str| -> Vec<String> {
            let of = instance_profiles(model).iter().find(|p| p.name == name).unwrap();
            compute_profiles(of).into_iter().map(|p| format!("{}:{:?}", p.name, p.starts)).collect()
        };
        assert_eq!(names("a100-40gb", "1g.5gb"), ["1g.5gb:[0]"]);
        assert_eq!(
            names("a100-40gb", "3g.20gb"),
            ["1c.3g.20gb:[0, 1, 2]", "2c.3g.20gb:[0]", "3g.20gb:[0]"]
        );
        assert_eq!(
            names("a30", "4g.24gb"),
            ["1c.4g.24gb:[0, 1, 2, 3]", "2c.4g.24gb:[0, 2]", "4g.24gb:[0]"]
        );
        assert_eq!(names("a100-40gb", "7g.40gb").len(), 5);
    }
}
