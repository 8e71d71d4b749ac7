//! A machine for the tests of the view: MIG, MPS, shared, single, idle and lost GPUs.

use std::collections::BTreeSet;

use model::{Catalogue, MigGeometry, ProfileIndex};
use node::backend::{Backends, Enforcement};
use node::inventory::{ComputeMode, Device, DriverFacts, Instance, Inventory, Mig};
use node::sample::{GpuSample, InstanceSample, ProcessSample, ProfileCounters, Sample};
use node::tenant::Tenant;

use super::pot::{Class, Part, Pot, pots};
use super::{Picture, Shown};

const GIB: u64 = 1 << 30;

/// A part of a pot as wide as told, `used` of it in use.
pub(super) fn part(label: &str, from: f64, to: f64, used: f64) -> Part {
    Part {
        label: label.into(),
        class: Class::Task,
        from,
        to,
        room_bytes: Some(1000),
        used_bytes: Some((used * 1000.0) as u64),
        processes: 1,
        ..Part::default()
    }
}

/// A pot with these parts.
pub(super) fn pot(parts: Vec<Part>) -> Pot {
    let idle = machine().into_iter().find(|pot| pot.parts.is_empty()).expect("an idle GPU");
    Pot { parts, ..idle }
}

/// The pots of [`inventory`] and [`sample`].
pub(super) fn machine() -> Vec<Pot> {
    pots(&inventory(), &sample(), &BTreeSet::new(), &[])
}

pub(super) fn picture() -> Picture {
    let at_ms = sample().at_ms;
    Picture { at_ms, simulated: true, of: Shown::Machine(inventory().driver), pots: machine() }
}

fn geometry() -> MigGeometry {
    let catalogue = Catalogue::shipped().expect("the shipped catalogue");
    catalogue.get("a100-80gb").and_then(|model| model.mig.clone()).expect("a model with MIG")
}

fn device(index: u32, compute_mode: ComputeMode, mig: Option<Mig>) -> Device {
    let absent = |why: &str| Enforcement::Absent(why.into());
    Device {
        index,
        uuid: format!("GPU-{index}"),
        pci_bus_id: format!("00000000:{index:02X}:00.0"),
        product: "NVIDIA A100-SXM4-80GB".into(),
        model: Some("a100-80gb".into()),
        memory_mib: 81_920,
        reserved_mib: 596,
        compute_capability: (8, 0),
        compute_mode,
        minor: None,
        numa_node: Some(0),
        mig,
        backends: Backends {
            mig: Enforcement::Hard,
            memory_limit: absent("the driver has no memory limits for cgroups"),
            mps: Enforcement::Cooperative,
            time_slice: Enforcement::Cooperative,
            limiter: absent("the limiter library is not installed"),
        },
        links: Vec::new(),
    }
}

/// One GPU with MIG, one for MPS, three in default mode, one that is not known (lost).
pub(super) fn inventory() -> Inventory {
    let geometry = geometry();
    let bare = Instance {
        gpu_instance: 9,
        profile: geometry.find("1g.10gb").unwrap_or(ProfileIndex(0)),
        start: 6,
        device: None,
        divided: false,
        pids: Vec::new(),
    };
    let mig = Mig {
        enabled: true,
        pending: true,
        profile_ids: vec![0; geometry.profiles.len()],
        geometry,
        instances: vec![bare],
    };
    let anybody = ComputeMode::Default;
    Inventory {
        driver: DriverFacts { driver: "580.95.05".into(), nvml: "13".into(), cuda: (13, 0) },
        devices: vec![
            device(0, anybody, Some(mig)),
            device(1, ComputeMode::ExclusiveProcess, None),
            device(2, anybody, None),
            device(3, anybody, None),
            device(4, anybody, None),
        ],
        lost: Vec::new(),
    }
}

fn task(task: &str) -> Tenant {
    Tenant::Task { run: "embed".into(), task: task.into() }
}

fn process(pid: u32, gib: u64, tenant: Tenant) -> ProcessSample {
    let memory_bytes = Some(gib * GIB);
    ProcessSample { pid, gpu_instance: None, memory_bytes, sm_ratio: Some(0.2), tenant }
}

fn gpu(index: u32, busy: f64, processes: Vec<ProcessSample>) -> GpuSample {
    let used = processes.iter().filter_map(|process| process.memory_bytes).sum();
    GpuSample {
        index,
        uuid: format!("GPU-{index}"),
        memory_total_bytes: Some(80 * GIB),
        memory_used_bytes: Some(used),
        busy_ratio: Some(busy),
        temperature_celsius: Some(31.0 + busy * 40.0),
        power_watts: Some(60.0 + busy * 300.0),
        xid: Some(0),
        processes_listed: true,
        processes,
        ..GpuSample::default()
    }
}

fn with_instances() -> GpuSample {
    let instance = |number: u32, profile: &str, start: u8, of: u64, used: u64| InstanceSample {
        gpu_instance: number,
        uuid: format!("MIG-{number}"),
        profile: profile.into(),
        start: Some(start),
        memory_total_bytes: Some(of * GIB),
        memory_used_bytes: Some(used * GIB),
        profile_counters: None,
    };
    let on = |number: u32, process: ProcessSample| ProcessSample {
        gpu_instance: Some(number),
        ..process
    };
    GpuSample {
        mig_enabled: Some(true),
        busy_ratio: None,
        profile: Some(ProfileCounters { engine_ratio: Some(0.37), ..ProfileCounters::default() }),
        instances: vec![instance(1, "3g.40gb", 0, 40, 22), instance(2, "2g.20gb", 4, 20, 0)],
        ..gpu(0, 0.37, vec![on(1, process(100, 22, Tenant::SlurmJob(4711)))])
    }
}

pub(super) fn sample() -> Sample {
    let clients = (0..7).map(|at| process(200 + at, 4, task(&at.to_string()))).collect();
    let mixed = vec![
        process(300, 30, Tenant::Pod("5f1c9a60-7a63".into())),
        process(301, 10, Tenant::User(1000)),
        process(302, 2, task("late")),
    ];
    let lost = GpuSample { index: 5, uuid: "GPU-5".into(), lost: true, ..GpuSample::default() };
    Sample {
        at_ms: 1_800_000_000_000,
        gpus: vec![
            with_instances(),
            gpu(1, 0.93, clients),
            gpu(2, 0.5, mixed),
            gpu(3, 1.0, vec![process(400, 71, Tenant::User(1001))]),
            gpu(4, 0.0, Vec::new()),
            lost,
        ],
    }
}
