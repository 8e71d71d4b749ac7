//! Families with the names of NVIDIA's dcgm-exporter, so that dashboards made for it work.
//!
//! Release 4.9 of it renamed 23 default metrics and changed the unit of eleven, to those of DCGM 4.7's
//! fields (its release notes; names: `dcgm_fields.h` of DCGM 4.6 and 4.7). Both schemes are here.

use std::collections::BTreeSet;

use node::inventory::Device;
use node::sample::{GpuSample, InstanceSample, ProfileCounters};

use crate::exposition::{Exposition, Family, Kind, Labels};
use crate::observation::Observation;
use crate::pods::{self, PodUse};

/// Which names of DCGM's metrics are written, besides our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricNames {
    /// Those of dcgm-exporter up to 4.8: MHz, MiB, percent.
    Legacy,
    /// Those of dcgm-exporter 4.9: hertz, bytes, ratios.
    Dcgm49,
    /// Both.
    #[default]
    Both,
}

/// One measured thing and its names.
struct Field {
    legacy: &'static str,
    /// Legacy units in one base unit.
    factor: f64,
    dcgm49: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&GpuSample) -> Option<f64>,
    /// The same of a MIG device; `None` if MIG devices have no such thing.
    of_mig: Option<fn(&InstanceSample) -> Option<f64>>,
    /// The same of a share of a card that others have shares of too.
    of_share: Option<fn(&PodUse) -> Option<f64>>,
}

const MIB: f64 = 1.0 / 1_048_576.0;

const fn gauge(
    legacy: (&'static str, f64),
    dcgm49: &'static str,
    help: &'static str,
    value: fn(&GpuSample) -> Option<f64>,
) -> Field {
    let (legacy, factor) = legacy;
    Field { legacy, factor, dcgm49, kind: Kind::Gauge, help, value, of_mig: None, of_share: None }
}

const fn counter(
    legacy: (&'static str, f64),
    dcgm49: &'static str,
    help: &'static str,
    value: fn(&GpuSample) -> Option<f64>,
) -> Field {
    Field { kind: Kind::Counter, ..gauge(legacy, dcgm49, help, value) }
}

const fn both(field: Field, of_mig: fn(&InstanceSample) -> Option<f64>) -> Field {
    Field { of_mig: Some(of_mig), ..field }
}

const fn shared(field: Field, of_share: fn(&PodUse) -> Option<f64>) -> Field {
    Field { of_share: Some(of_share), ..field }
}

#[rustfmt::skip]
const FIELDS: &[Field] = &[
    gauge(("DCGM_FI_DEV_SM_CLOCK", 1e-6), "DCGM_FI_DEV_SM_CLOCK_HERTZ", "SM clock.",
        |gpu| gpu.sm_clock_hertz),
    gauge(("DCGM_FI_DEV_MEM_CLOCK", 1e-6), "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", "Memory clock.",
        |gpu| gpu.memory_clock_hertz),
    gauge(("DCGM_FI_DEV_GPU_TEMP", 1.0), "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "GPU temperature.",
        |gpu| gpu.temperature_celsius),
    gauge(("DCGM_FI_DEV_MEMORY_TEMP", 1.0), "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", "Memory temperature.",
        |gpu| gpu.memory_temperature_celsius),
    gauge(("DCGM_FI_DEV_POWER_USAGE", 1.0), "DCGM_FI_DEV_BOARD_POWER_WATTS", "Power drawn.",
        |gpu| gpu.power_watts),
    counter(("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e3), "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "Energy since the driver was loaded.",
        |gpu| gpu.energy_joules),
    shared(gauge(("DCGM_FI_DEV_GPU_UTIL", 100.0), "DCGM_FI_DEV_GPU_UTIL_RATIO", "GPU utilization.",
        |gpu| gpu.busy_ratio), |share| share.busy_ratio),
    gauge(("DCGM_FI_DEV_MEM_COPY_UTIL", 100.0), "DCGM_FI_DEV_MEMORY_UTIL_RATIO", "Memory utilization.",
        |gpu| gpu.memory_busy_ratio),
    gauge(("DCGM_FI_DEV_ENC_UTIL", 100.0), "DCGM_FI_DEV_ENC_UTIL_RATIO", "Encoder utilization.",
        |gpu| gpu.encoder_ratio),
    gauge(("DCGM_FI_DEV_DEC_UTIL", 100.0), "DCGM_FI_DEV_DEC_UTIL_RATIO", "Decoder utilization.",
        |gpu| gpu.decoder_ratio),
    both(gauge(("DCGM_FI_DEV_FB_TOTAL", MIB), "DCGM_FI_DEV_FB_CAPACITY_BYTES", "Device memory, all of it.",
        |gpu| gpu.memory_total_bytes.map(float)), |mig| mig.memory_total_bytes.map(float)),
    both(gauge(("DCGM_FI_DEV_FB_FREE", MIB), "DCGM_FI_DEV_FB_FREE_BYTES", "Device memory that is free.",
        |gpu| free(gpu.memory_total_bytes, gpu.memory_used_bytes, gpu.memory_reserved_bytes)),
        |mig| free(mig.memory_total_bytes, mig.memory_used_bytes, Some(0))),
    shared(both(gauge(("DCGM_FI_DEV_FB_USED", MIB), "DCGM_FI_DEV_FB_USED_BYTES", "Device memory in use.",
        |gpu| gpu.memory_used_bytes.map(float)), |mig| mig.memory_used_bytes.map(float)), |share| share.memory_used_bytes),
    gauge(("DCGM_FI_DEV_FB_RESERVED", MIB), "DCGM_FI_DEV_FB_RESERVED_BYTES", "Device memory that the driver keeps.",
        |gpu| gpu.memory_reserved_bytes.map(float)),
    gauge(("DCGM_FI_DEV_XID_ERRORS", 1.0), "DCGM_FI_DEV_XID_ERROR", "Code of the last Xid event.",
        |gpu| gpu.xid.map(float)),
    counter(("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 1.0), "DCGM_FI_DEV_PCIE_REPLAY_TOTAL", "PCIe packets sent again.",
        |gpu| gpu.pcie_replays.map(float)),
    counter(("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 1.0), "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", "Rows remapped after correctable errors.",
        |gpu| gpu.remapped_rows.map(|(correctable, _)| float(correctable))),
    counter(("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 1.0), "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", "Rows remapped after uncorrectable errors.",
        |gpu| gpu.remapped_rows.map(|(_, uncorrectable)| float(uncorrectable))),
    profile(("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"), "Graphics or compute engine active.",
        |gpu| of(gpu.profile, |profile| profile.engine_ratio),
        |mig| of(mig.profile_counters, |profile| profile.engine_ratio)),
    profile(("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"), "Multiprocessors with a warp.",
        |gpu| of(gpu.profile, |profile| profile.sm_ratio),
        |mig| of(mig.profile_counters, |profile| profile.sm_ratio)),
    profile(("DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO"), "Warps resident of those possible.",
        |gpu| of(gpu.profile, |profile| profile.occupancy_ratio),
        |mig| of(mig.profile_counters, |profile| profile.occupancy_ratio)),
    profile(("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"), "Tensor cores active.",
        |gpu| of(gpu.profile, |profile| profile.tensor_ratio),
        |mig| of(mig.profile_counters, |profile| profile.tensor_ratio)),
    profile(("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"), "Memory interface active.",
        |gpu| of(gpu.profile, |profile| profile.dram_ratio),
        |mig| of(mig.profile_counters, |profile| profile.dram_ratio)),
];

const fn profile(
    (legacy, dcgm49): (&'static str, &'static str),
    help: &'static str,
    value: fn(&GpuSample) -> Option<f64>,
    of_mig: fn(&InstanceSample) -> Option<f64>,
) -> Field {
    both(gauge((legacy, 1.0), dcgm49, help, value), of_mig)
}

/// Names of all families: legacy and 4.9 side by side.
pub fn names() -> Vec<(&'static str, &'static str)> {
    FIELDS.iter().map(|field| (field.legacy, field.dcgm49)).collect()
}

/// One thing that samples are about: a GPU with its shares, a MIG device on one, a share of one.
enum Subject<'a> {
    Gpu(&'a GpuSample, Vec<&'a PodUse>),
    Mig(&'a InstanceSample),
    Share(&'a PodUse),
}

/// Writes the families in the schemes asked for.
pub(crate) fn write(text: &mut Exposition, seen: &Observation, names: MetricNames, host: &str) {
    let uses = pods::uses(seen);
    let legacy = || {
        let subjects = subjects((seen, &uses), "Hostname", "DCGM_FI_DRIVER_VERSION", host);
        (subjects, |field: &Field| (field.legacy, field.factor))
    };
    let dcgm49 = || {
        let subjects = subjects((seen, &uses), "hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION", host);
        (subjects, |field: &Field| (field.dcgm49, 1.0))
    };
    if names != MetricNames::Dcgm49 {
        let (subjects, naming) = legacy();
        scheme(text, &subjects, naming);
    }
    if names != MetricNames::Legacy {
        let (subjects, naming) = dcgm49();
        scheme(text, &subjects, naming);
    }
}

fn scheme(
    text: &mut Exposition,
    subjects: &[(Labels, Subject<'_>)],
    naming: impl Fn(&Field) -> (&'static str, f64),
) {
    for field in FIELDS {
        let (name, factor) = naming(field);
        let samples = subjects.iter().map(|(labels, subject)| {
            let value = match subject {
                // What its MIG devices tell is not told of the GPU too: sums would count it twice.
                Subject::Gpu(gpu, _) if field.of_mig.is_some() && !gpu.instances.is_empty() => None,
                // So with its shares.
                Subject::Gpu(_, shares)
                    if shares.iter().any(|one| of_share(field, one).is_some()) =>
                {
                    None
                }
                Subject::Gpu(gpu, _) => (field.value)(gpu),
                Subject::Share(share) => of_share(field, share),
                Subject::Mig(mig) => field.of_mig.and_then(|value| value(mig)),
            };
            (labels, value.map(|value| scaled(value, factor)))
        });
        text.family(&Family { name, kind: field.kind, help: field.help }, samples);
    }
}

fn of_share(field: &Field, share: &PodUse) -> Option<f64> {
    field.of_share.and_then(|value| value(share))
}

/// In another unit, without the dust that binary fractions leave (57 %, not 56.99999999999999).
fn scaled(value: f64, factor: f64) -> f64 {
    (value * factor * 1e6).round() / 1e6
}

/// GPUs and MIG devices with their labels.
fn subjects<'a>(
    (seen, uses): (&'a Observation, &'a [PodUse]),
    host_label: &str,
    driver_label: &str,
    host: &str,
) -> Vec<(Labels, Subject<'a>)> {
    let mut subjects = Vec::new();
    for gpu in &seen.sample.gpus {
        let device = seen.inventory.devices.iter().find(|device| device.uuid == gpu.uuid);
        let labels = of_gpu(gpu, device)
            .with(host_label, host)
            .with(driver_label, &seen.inventory.driver.driver);
        let here = || uses.iter().filter(|one| one.gpu == gpu.index);
        let of_device = |labels: Labels, uuid: &str| {
            let whole = here().find(|one| one.is_whole && one.device == uuid);
            whole.map_or(labels.clone(), |one| pods::of_container(labels, &one.name))
        };
        // DCGM tells of GPU instances: where one has several MIG devices, all show its memory.
        let mut told = BTreeSet::new();
        for mig in gpu.instances.iter().filter(|mig| told.insert(mig.gpu_instance)) {
            let labels = labels
                .clone()
                .with("GPU_I_PROFILE", &mig.profile)
                .with("GPU_I_ID", &mig.gpu_instance.to_string());
            subjects.push((of_device(labels, &mig.uuid), Subject::Mig(mig)));
        }
        let shares: Vec<&PodUse> = here().filter(|one| one.is_part()).collect();
        let of_pod = |one: &PodUse| pods::of_container(labels.clone(), &one.name);
        subjects.extend(shares.iter().map(|one| (of_pod(one), Subject::Share(one))));
        subjects.push((of_device(labels, &gpu.uuid), Subject::Gpu(gpu, shares)));
    }
    subjects
}

fn of_gpu(gpu: &GpuSample, device: Option<&Device>) -> Labels {
    let fact = |fact: fn(&Device) -> &str| device.map(fact).unwrap_or_default();
    Labels::default()
        .with("gpu", &gpu.index.to_string())
        .with("UUID", &gpu.uuid)
        .with("pci_bus_id", fact(|device| &device.pci_bus_id))
        .with("device", &format!("nvidia{}", gpu.index))
        .with("modelName", fact(|device| &device.product))
}

fn of(profile: Option<ProfileCounters>, value: fn(&ProfileCounters) -> Option<f64>) -> Option<f64> {
    value(profile.as_ref()?)
}

fn free(total: Option<u64>, used: Option<u64>, reserved: Option<u64>) -> Option<f64> {
    Some(float(total?.checked_sub(used?)?.checked_sub(reserved?)?))
}

#[expect(clippy::cast_precision_loss, reason = "what is measured stays far below 2^53")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_and_mib_are_whole_again() {
        let shown: Vec<String> = (0..=100)
            .map(|percent| format!("{}", scaled(f64::from(percent) / 100.0, 100.0)))
            .collect();
        assert!(shown.iter().all(|text| !text.contains('.')), "{shown:?}");
        assert_eq!(scaled(81_559.0 * 1_048_576.0, MIB).to_string(), "81559");
        assert_eq!(scaled(1_410e6, 1e-6).to_string(), "1410");
    }

    #[test]
    fn no_name_is_used_twice() {
        let mut all: Vec<&str> = names().into_iter().flat_map(|(a, b)| [a, b]).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
