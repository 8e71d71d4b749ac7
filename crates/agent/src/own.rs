//! Our own families: base units, one prefix, labels that only name things.

use node::backend::{Backends, Enforcement};
use node::inventory::{Device, Inventory};
use node::sample::{GpuSample, InstanceSample, ProfileCounters};

use crate::accounts;
use crate::exposition::{Exposition, Family, Kind, Labels};
use crate::observation::Observation;
use crate::pods;
use crate::tenants::{self, Roll};

/// A family with one sample for each `T` that has a value.
pub(crate) struct Column<T> {
    pub(crate) family: Family,
    pub(crate) value: fn(&T) -> Option<f64>,
}

pub(crate) const fn column<T>(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&T) -> Option<f64>,
) -> Column<T> {
    Column { family: Family { name, kind, help }, value }
}

const fn info(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Info, help }
}

const UP: Family = Family {
    name: "hotpot_up",
    kind: Kind::Gauge,
    help: "Whether the GPU driver answers: 1 or 0.",
};
const BUILD: Family = info("hotpot_build_info", "Version of hotpot.");
const DRIVER: Family = info("hotpot_driver_info", "Versions of driver, NVML and newest CUDA.");
const TOOK: Family = Family {
    name: "hotpot_sample_duration_seconds",
    kind: Kind::Gauge,
    help: "Time that measuring took.",
};
const GPU: Family = info("hotpot_gpu_info", "A GPU: address, product, catalogue name.");
const ENFORCEMENT: Family = info(
    "hotpot_gpu_enforcement_info",
    "How a backend holds caps on a GPU: hard, cooperative, absent or unknown.",
);
const XIDS: Family = Family {
    name: "hotpot_gpu_xid_events_total",
    kind: Kind::Counter,
    help: "Xid events seen since the agent began, by code.",
};
const REMAPPED: Family = Family {
    name: "hotpot_gpu_remapped_rows_total",
    kind: Kind::Counter,
    help: "Memory rows remapped, by kind of error.",
};
const MIG: Family = info("hotpot_mig_info", "A MIG device: profile and first memory slice.");

#[rustfmt::skip]
const GPU_COLUMNS: &[Column<GpuSample>] = &[
    column("hotpot_gpu_lost", Kind::Gauge, "Whether the GPU no longer answers: 1 or 0.",
        |gpu| Some(f64::from(u8::from(gpu.lost)))),
    column("hotpot_gpu_memory_size_bytes", Kind::Gauge, "Device memory, all of it.",
        |gpu| gpu.memory_total_bytes.map(float)),
    column("hotpot_gpu_memory_used_bytes", Kind::Gauge, "Device memory in use, less what the driver keeps.",
        |gpu| gpu.memory_used_bytes.map(float)),
    column("hotpot_gpu_memory_reserved_bytes", Kind::Gauge, "Device memory that the driver keeps.",
        |gpu| gpu.memory_reserved_bytes.map(float)),
    column("hotpot_gpu_busy_ratio", Kind::Gauge, "Part of the last period in which a kernel ran. None in MIG mode.",
        |gpu| gpu.busy_ratio),
    column("hotpot_gpu_memory_busy_ratio", Kind::Gauge, "Part of the last period in which device memory was accessed.",
        |gpu| gpu.memory_busy_ratio),
    column("hotpot_gpu_encoder_busy_ratio", Kind::Gauge, "Use of the video encoder.",
        |gpu| gpu.encoder_ratio),
    column("hotpot_gpu_decoder_busy_ratio", Kind::Gauge, "Use of the video decoder.",
        |gpu| gpu.decoder_ratio),
    column("hotpot_gpu_temperature_celsius", Kind::Gauge, "Temperature of the chip.",
        |gpu| gpu.temperature_celsius),
    column("hotpot_gpu_memory_temperature_celsius", Kind::Gauge, "Temperature of the memory.",
        |gpu| gpu.memory_temperature_celsius),
    column("hotpot_gpu_power_watts", Kind::Gauge, "Power drawn by the board.",
        |gpu| gpu.power_watts),
    column("hotpot_gpu_energy_joules_total", Kind::Counter, "Energy used since the driver was loaded.",
        |gpu| gpu.energy_joules),
    column("hotpot_gpu_sm_clock_hertz", Kind::Gauge, "Clock of the multiprocessors.",
        |gpu| gpu.sm_clock_hertz),
    column("hotpot_gpu_memory_clock_hertz", Kind::Gauge, "Clock of the memory.",
        |gpu| gpu.memory_clock_hertz),
    column("hotpot_gpu_pcie_replays_total", Kind::Counter, "PCIe packets sent again since the driver was loaded.",
        |gpu| gpu.pcie_replays.map(float)),
    column("hotpot_gpu_last_xid", Kind::Gauge, "Code of the last Xid event since the agent began; 0 for none.",
        |gpu| gpu.xid.map(float)),
    column("hotpot_gpu_mig_enabled", Kind::Gauge, "Whether MIG mode is on: 1 or 0.",
        |gpu| gpu.mig_enabled.map(|enabled| f64::from(u8::from(enabled)))),
    column("hotpot_gpu_processes", Kind::Gauge, "Processes on the GPU, MIG devices included.",
        |gpu| gpu.processes_listed.then(|| count(gpu.processes.len()))),
];

#[rustfmt::skip]
const MIG_COLUMNS: &[Column<InstanceSample>] = &[
    column("hotpot_mig_memory_size_bytes", Kind::Gauge, "Memory of the MIG device.",
        |mig| mig.memory_total_bytes.map(float)),
    column("hotpot_mig_memory_used_bytes", Kind::Gauge, "Memory of the MIG device in use.",
        |mig| mig.memory_used_bytes.map(float)),
];

/// Profile counters: of GPUs, and the same of MIG devices.
#[rustfmt::skip]
const PROFILE_COLUMNS: &[(Column<ProfileCounters>, &str)] = &[
    (column("hotpot_gpu_engine_active_ratio", Kind::Gauge, "Part of the time in which the graphics or compute engine was active.",
        |profile| profile.engine_ratio), "hotpot_mig_engine_active_ratio"),
    (column("hotpot_gpu_sm_active_ratio", Kind::Gauge, "Part of the time in which a multiprocessor had a warp, mean of all.",
        |profile| profile.sm_ratio), "hotpot_mig_sm_active_ratio"),
    (column("hotpot_gpu_sm_occupancy_ratio", Kind::Gauge, "Warps resident, of those that could be.",
        |profile| profile.occupancy_ratio), "hotpot_mig_sm_occupancy_ratio"),
    (column("hotpot_gpu_tensor_active_ratio", Kind::Gauge, "Part of the time in which tensor cores were active.",
        |profile| profile.tensor_ratio), "hotpot_mig_tensor_active_ratio"),
    (column("hotpot_gpu_dram_active_ratio", Kind::Gauge, "Part of the time in which the memory interface was active.",
        |profile| profile.dram_ratio), "hotpot_mig_dram_active_ratio"),
];

/// Names of all our families, in the order of the text.
pub fn names() -> Vec<&'static str> {
    let mut names = vec![UP.name, BUILD.name, DRIVER.name, TOOK.name, GPU.name];
    names.extend(GPU_COLUMNS.iter().map(|column| column.family.name));
    names.extend([REMAPPED.name, XIDS.name]);
    names.extend(PROFILE_COLUMNS.iter().map(|(column, _)| column.family.name));
    names.extend([ENFORCEMENT.name, MIG.name]);
    names.extend(MIG_COLUMNS.iter().map(|column| column.family.name));
    names.extend(PROFILE_COLUMNS.iter().map(|(_, mig)| *mig));
    names.extend(tenants::names());
    names.extend(accounts::names());
    names.extend(pods::names());
    names
}

/// What there is to say while the driver does not answer.
pub(crate) fn down(text: &mut Exposition) {
    text.family(&UP, [("", Some(0.0))]);
    build(text);
}

/// Writes all our families.
pub(crate) fn write(text: &mut Exposition, seen: &Observation) {
    text.family(&UP, [("", Some(1.0))]);
    build(text);
    let Inventory { driver, devices, lost: _ } = &*seen.inventory;
    let cuda = format!("{}.{}", driver.cuda.0, driver.cuda.1);
    let versions = Labels::default().with("driver", &driver.driver).with("nvml", &driver.nvml);
    text.family(&DRIVER, [(versions.with("cuda", &cuda), Some(1.0))]);
    text.family(&TOOK, [("", Some(seen.took.as_secs_f64()))]);
    text.family(&GPU, devices.iter().map(|device| (about(device), Some(1.0))));
    gpus(text, &seen.sample.gpus);
    let backends =
        devices.iter().flat_map(|device| backends(device.index, &device.uuid, &device.backends));
    text.family(&ENFORCEMENT, backends.map(|labels| (labels, Some(1.0))));
    migs(text, &seen.sample.gpus);
    let (gpus, mut roll) = (&seen.sample.gpus, Roll::default());
    tenants::write(text, gpus, &seen.given, &mut roll);
    accounts::write(text, gpus, &mut roll);
    pods::write(text, &pods::uses(seen));
}

fn build(text: &mut Exposition) {
    let version = Labels::default().with("version", env!("CARGO_PKG_VERSION"));
    text.family(&BUILD, [(version, Some(1.0))]);
}

pub(crate) fn of_gpu(index: u32, uuid: &str) -> Labels {
    Labels::default().with("gpu", &index.to_string()).with("uuid", uuid)
}

fn about(device: &Device) -> Labels {
    of_gpu(device.index, &device.uuid)
        .with("pci_bus_id", &device.pci_bus_id)
        .with("product", &device.product)
        .with("model", device.model.as_deref().unwrap_or_default())
}

fn backends(index: u32, uuid: &str, backends: &Backends) -> [Labels; 5] {
    let Backends { mig, memory_limit, mps, time_slice, limiter } = backends;
    let labels = |backend: &str, enforcement: &Enforcement| {
        of_gpu(index, uuid).with("backend", backend).with("enforcement", enforcement.as_str())
    };
    [
        labels("mig", mig),
        labels("memory-limit", memory_limit),
        labels("mps", mps),
        labels("time-slice", time_slice),
        labels("limiter", limiter),
    ]
}

fn gpus(text: &mut Exposition, gpus: &[GpuSample]) {
    let labels: Vec<Labels> = gpus.iter().map(|gpu| of_gpu(gpu.index, &gpu.uuid)).collect();
    for Column { family, value } in GPU_COLUMNS {
        text.family(family, labels.iter().zip(gpus.iter().map(value)));
    }
    let rows = labels.iter().zip(gpus).filter_map(|(labels, gpu)| {
        let (correctable, uncorrectable) = gpu.remapped_rows?;
        let of = |kind: &str, rows: u64| (labels.clone().with("error", kind), Some(float(rows)));
        Some([of("correctable", correctable), of("uncorrectable", uncorrectable)])
    });
    text.family(&REMAPPED, rows.flatten());
    let xids = labels.iter().zip(gpus).flat_map(|(labels, gpu)| {
        let counts = gpu.xid_counts.iter().flatten();
        counts.map(|(code, count)| {
            (labels.clone().with("xid", &code.to_string()), Some(float(*count)))
        })
    });
    text.family(&XIDS, xids);
    for (Column { family, value }, _) in PROFILE_COLUMNS {
        let values = gpus.iter().map(|gpu| value(gpu.profile.as_ref()?));
        text.family(family, labels.iter().zip(values));
    }
}

fn migs(text: &mut Exposition, gpus: &[GpuSample]) {
    let migs = gpus.iter().flat_map(|gpu| gpu.instances.iter().map(move |mig| (gpu.index, mig)));
    let migs: Vec<(Labels, &InstanceSample)> =
        migs.map(|(gpu, mig)| (of_mig(gpu, mig), mig)).collect();
    let about = |(labels, mig): &(Labels, &InstanceSample)| {
        let start = mig.start.map(|start| start.to_string()).unwrap_or_default();
        (labels.clone().with("start", &start), Some(1.0))
    };
    text.family(&MIG, migs.iter().map(about));
    for Column { family, value } in MIG_COLUMNS {
        text.family(family, migs.iter().map(|(labels, mig)| (labels, value(mig))));
    }
    for (Column { family, value }, name) in PROFILE_COLUMNS {
        let values = migs
            .iter()
            .map(|(labels, mig)| (labels, mig.profile_counters.as_ref().and_then(value)));
        text.family(&Family { name, ..*family }, values);
    }
}

fn of_mig(gpu: u32, mig: &InstanceSample) -> Labels {
    of_gpu(gpu, &mig.uuid)
        .with("gpu_instance", &mig.gpu_instance.to_string())
        .with("profile", &mig.profile)
}

#[expect(clippy::cast_precision_loss, reason = "what is measured stays far below 2^53")]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "there are not that many processes")]
pub(crate) fn count(value: usize) -> f64 {
    value as f64
}
