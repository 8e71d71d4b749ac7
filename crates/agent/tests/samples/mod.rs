//! GPUs of which everything is known, and who is on them.
#![allow(dead_code, reason = "not every file needs all of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent::{Format, MetricNames, Observation, Occupant, PodName, render};
use node::account::{Account, Counts};
use node::backend::{Backends, Enforcement};
use node::inventory::{ComputeMode, Device, DriverFacts, Inventory};
use node::live::LiveShare;
use node::sample::{
    AccountSample, GpuSample, InstanceSample, ProcessSample, ProfileCounters, Sample,
};
use node::tenant::{Given, Tenant};

pub(crate) fn device(index: u32) -> Device {
    Device {
        index,
        uuid: format!("GPU-{index}"),
        pci_bus_id: "00000000:10:00.0".into(),
        product: "NVIDIA \"H100\"".into(),
        model: Some("h100-80gb".into()),
        memory_mib: 80 << 10,
        reserved_mib: 1 << 10,
        compute_capability: (9, 0),
        compute_mode: ComputeMode::Default,
        minor: None,
        numa_node: None,
        mig: None,
        backends: Backends {
            mig: Enforcement::Hard,
            memory_limit: Enforcement::Absent("old kernel".into()),
            mps: Enforcement::Cooperative,
            time_slice: Enforcement::Cooperative,
            limiter: Enforcement::Absent("not installed".into()),
        },
        links: Vec::new(),
    }
}

pub(crate) fn counters() -> ProfileCounters {
    let [a, b, c, d, e] = [Some(0.5), Some(0.25), Some(0.125), Some(0.1), Some(0.2)];
    ProfileCounters {
        engine_ratio: a,
        sm_ratio: b,
        occupancy_ratio: c,
        tensor_ratio: d,
        dram_ratio: e,
    }
}

/// A GPU of which everything is known.
pub(crate) fn whole() -> GpuSample {
    GpuSample {
        index: 0,
        uuid: "GPU-0".into(),
        lost: false,
        memory_total_bytes: Some(80 << 30),
        memory_used_bytes: Some(8 << 30),
        memory_reserved_bytes: Some(1 << 30),
        busy_ratio: Some(0.57),
        memory_busy_ratio: Some(0.3),
        encoder_ratio: Some(0.0),
        decoder_ratio: Some(0.0),
        temperature_celsius: Some(60.0),
        memory_temperature_celsius: Some(70.0),
        power_watts: Some(321.5),
        energy_joules: Some(1234.5),
        sm_clock_hertz: Some(1.41e9),
        memory_clock_hertz: Some(2.6e9),
        pcie_replays: Some(3),
        remapped_rows: Some((4, 5)),
        xid: Some(79),
        xid_counts: Some(BTreeMap::from([(13, 2), (79, 1)])),
        mig_enabled: Some(false),
        profile: Some(counters()),
        instances: Vec::new(),
        processes_listed: true,
        processes: vec![
            process(10, Tenant::Task { run: "r".into(), task: "1".into() }),
            process(11, Tenant::Task { run: "r".into(), task: "2".into() }),
            process(12, Tenant::SlurmJob(9)),
            process(13, Tenant::Pod("0b2a".into())),
            process(14, Tenant::User(1000)),
            process(15, Tenant::Unknown),
        ],
        accounts: vec![account("1", 1 << 30), account("2", 1 << 20), of_claim("c1", 1 << 29)],
        ended: [("r".to_owned(), Counts { gpu_us: 500_000, ..counts() })].into(),
    }
}

pub(crate) fn process(pid: u32, tenant: Tenant) -> ProcessSample {
    ProcessSample {
        pid,
        gpu_instance: None,
        memory_bytes: Some(1 << 30),
        sm_ratio: Some(0.1),
        tenant,
    }
}

pub(crate) fn counts() -> Counts {
    Counts {
        launches: 10,
        gpu_us: 1_500_000,
        throttled: 4,
        throttled_us: 250_000,
        refused_by_cap: 2,
        refused_by_card: 1,
    }
}

/// What a task of the run `r` has booked.
pub(crate) fn account(task: &str, plain_bytes: u64) -> AccountSample {
    let memory = [("plain".to_owned(), plain_bytes), ("context".to_owned(), 1 << 28)];
    let account = Account {
        processes: 1,
        memory_bytes: memory.into(),
        peak_bytes: 2 * plain_bytes,
        counts: counts(),
        ..Account::default()
    };
    AccountSample {
        tenant: Tenant::Task { run: "r".into(), task: task.into() },
        cap_bytes: Some(2 << 30),
        compute_milli: Some(300),
        account,
        gpu_ratio: None,
        throttled_ratio: None,
    }
}

/// What the containers of a claim have booked.
pub(crate) fn of_claim(uid: &str, plain_bytes: u64) -> AccountSample {
    AccountSample {
        tenant: Tenant::Claim(uid.into()),
        gpu_ratio: Some(0.15),
        ..account("", plain_bytes)
    }
}

/// A share of a claim, which is one container's.
pub(crate) fn occupant(uid: &str, (gpu, device, kind): (&str, &str, &str), pod: &str) -> Occupant {
    let share = LiveShare { gpu: gpu.into(), kind: kind.into(), ..LiveShare::default() };
    let [namespace, claim, container] = ["team", uid, "main"].map(str::to_owned);
    let pod = PodName { namespace, claim, pod: pod.to_owned(), container };
    Occupant { claim: uid.into(), device: device.into(), share, pod }
}

/// A GPU with a MIG device.
pub(crate) fn divided() -> GpuSample {
    let instance = InstanceSample {
        gpu_instance: 9,
        uuid: "MIG-9".into(),
        profile: "1g.10gb".into(),
        start: Some(2),
        memory_total_bytes: Some(10 << 30),
        memory_used_bytes: Some(2 << 30),
        profile_counters: Some(counters()),
    };
    let instances = vec![instance];
    let (index, uuid) = (1, "GPU-1".into());
    GpuSample { index, uuid, busy_ratio: None, profile: None, instances, ..whole() }
}

pub(crate) fn observation(gpus: Vec<GpuSample>) -> Observation {
    let driver = DriverFacts { driver: "580.1".into(), nvml: "13.580.1".into(), cuda: (13, 0) };
    let devices = vec![device(0), device(1)];
    let inventory = Arc::new(Inventory { driver, devices, lost: Vec::new() });
    let sample = Sample { at_ms: 1, gpus };
    let given = vec![given("r", "GPU-0", 2048), given("r", "GPU-0", 1024)];
    let occupants = vec![
        occupant("c1", ("GPU-0", "GPU-0", "memory-capped"), "web-1"),
        occupant("c2", ("GPU-1", "MIG-9", "mig"), "train"),
    ];
    Observation { inventory, sample, given, occupants, took: Duration::from_millis(5) }
}

pub(crate) fn given(run: &str, gpu: &str, memory_mib: u64) -> Given {
    let share = LiveShare {
        gpu: gpu.into(),
        kind: "mps".into(),
        memory_mib,
        enforcement: "cooperative".into(),
        ..LiveShare::default()
    };
    Given { tenant: Tenant::Task { run: run.into(), task: "1".into() }, share }
}

pub(crate) fn prometheus(seen: &Observation, names: MetricNames) -> String {
    render(Some(seen), names, Format::Prometheus, "host")
}
