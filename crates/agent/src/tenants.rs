//! Our families about tenants: what their processes use, and what their tasks have been given.

use std::collections::{BTreeMap, BTreeSet};

use model::SharingKind;
use node::sample::{GpuSample, ProcessSample};
use node::tenant::{Given, Tenant};

use crate::exposition::{Exposition, Kind, Labels};
use crate::own::{Column, column, count, float, of_gpu};

/// Tenants told apart on one GPU; the rest are taken together as `other`, so that nobody can make
/// series without end.
const TENANTS_MAX: usize = 256;

#[rustfmt::skip]
const HOLDINGS: &[Column<Holding>] = &[
    column("hotpot_tenant_memory_used_bytes", Kind::Gauge, "Device memory that a tenant's processes hold.",
        |holding| holding.memory_bytes),
    column("hotpot_tenant_sm_ratio", Kind::Gauge, "SM time that a tenant's processes took in the last period.",
        |holding| holding.sm_ratio),
    column("hotpot_tenant_processes", Kind::Gauge, "Processes that a tenant has on the GPU.",
        |holding| Some(count(holding.processes))),
];

#[rustfmt::skip]
const SHARES: &[Column<Shares>] = &[
    column("hotpot_tenant_shares", Kind::Gauge, "Shares of a GPU that a tenant's running tasks have been given.",
        |shares| Some(count(shares.count))),
    column("hotpot_tenant_memory_granted_bytes", Kind::Gauge, "Device memory that a tenant's running tasks have been given.",
        |shares| (shares.memory_bytes > 0).then(|| float(shares.memory_bytes))),
];

/// What one tenant has on one GPU or MIG device.
#[derive(Clone, Copy, Debug)]
struct Holding {
    /// `None` if it is not known of one of the processes.
    memory_bytes: Option<f64>,
    sm_ratio: Option<f64>,
    processes: usize,
}

/// What one tenant's tasks have been given of one GPU, of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    count: usize,
    memory_bytes: u64,
}

/// Kind and name of a tenant, as its labels have them.
pub(crate) type Named = (&'static str, String);

/// Names of the families, in the order of the text.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let holdings = HOLDINGS.iter().map(|column| column.family.name);
    holdings.chain(SHARES.iter().map(|column| column.family.name))
}

/// Writes the families.
pub(crate) fn write(text: &mut Exposition, gpus: &[GpuSample], given: &[Given], roll: &mut Roll) {
    let holdings = holdings(gpus, roll);
    for Column { family, value } in HOLDINGS {
        text.family(family, holdings.iter().map(|(labels, holding)| (labels, value(holding))));
    }
    let shares = shares(gpus, given, roll);
    for Column { family, value } in SHARES {
        text.family(family, shares.iter().map(|(labels, shares)| (labels, value(shares))));
    }
}

fn holdings(gpus: &[GpuSample], roll: &mut Roll) -> Vec<(Labels, Holding)> {
    let mut holdings: BTreeMap<(u32, Option<u32>, Named), Holding> = BTreeMap::new();
    for gpu in gpus {
        for process in &gpu.processes {
            let key = (gpu.index, process.gpu_instance, roll.name(gpu.index, &process.tenant));
            holdings.entry(key).or_default().add(process);
        }
    }
    let labelled = |((gpu, instance, named), holding): ((u32, Option<u32>, Named), Holding)| {
        let instance = instance.map(|instance| instance.to_string()).unwrap_or_default();
        let labels = of_gpu(gpu, uuid(gpus, gpu)).with("gpu_instance", &instance);
        (of_tenant(labels, &named), holding)
    };
    holdings.into_iter().map(labelled).collect()
}

fn shares(gpus: &[GpuSample], given: &[Given], roll: &mut Roll) -> Vec<(Labels, Shares)> {
    type Key = (u32, Named, SharingKind, &'static str);
    let mut shares: BTreeMap<Key, Shares> = BTreeMap::new();
    for Given { tenant, share } in given {
        let gpu = gpus.iter().find(|gpu| gpu.uuid == share.gpu);
        // What a file says that makes no sense is left out.
        let (Some(gpu), Some(kind), Some(hard)) =
            (gpu, share.sharing(), enforcement(&share.enforcement))
        else {
            continue;
        };
        let key = (gpu.index, roll.name(gpu.index, tenant), kind, hard);
        let shares = shares.entry(key).or_default();
        shares.count += 1;
        let bytes = share.memory_mib.saturating_mul(1 << 20);
        shares.memory_bytes = shares.memory_bytes.saturating_add(bytes);
    }
    let labelled = |((gpu, named, kind, hard), shares): (Key, Shares)| {
        let labels = of_tenant(of_gpu(gpu, uuid(gpus, gpu)), &named);
        (labels.with("sharing", kind.as_str()).with("enforcement", hard), shares)
    };
    shares.into_iter().map(labelled).collect()
}

/// The word for how hard a cap holds, if it is one.
fn enforcement(word: &str) -> Option<&'static str> {
    ["hard", "cooperative", "absent"].into_iter().find(|known| *known == word)
}

fn uuid(gpus: &[GpuSample], index: u32) -> &str {
    gpus.iter().find(|gpu| gpu.index == index).map_or("", |gpu| &gpu.uuid)
}

pub(crate) fn of_tenant(labels: Labels, (kind, name): &Named) -> Labels {
    labels.with("tenant_kind", kind).with("tenant", name)
}

/// Tenants met on each GPU.
#[derive(Debug, Default)]
pub(crate) struct Roll(BTreeMap<u32, BTreeSet<Named>>);

impl Roll {
    /// A tenant's kind and name; `other` once there are too many.
    pub(crate) fn name(&mut self, gpu: u32, tenant: &Tenant) -> Named {
        let named = named(tenant);
        let met = self.0.entry(gpu).or_default();
        if met.len() >= TENANTS_MAX && !met.contains(&named) {
            return ("other", String::new());
        }
        met.insert(named.clone());
        named
    }
}

/// Kind and name. Tasks are taken together by run: a run of a thousand short tasks would otherwise
/// leave a thousand series behind.
fn named(tenant: &Tenant) -> Named {
    match tenant {
        Tenant::Task { run, task: _ } => ("run", run.clone()),
        Tenant::SlurmJob(job) => ("slurm-job", job.to_string()),
        Tenant::Pod(uid) => ("pod", uid.clone()),
        Tenant::Claim(uid) => ("claim", uid.clone()),
        Tenant::User(uid) => ("user", uid.to_string()),
        Tenant::Unknown => ("unknown", String::new()),
    }
}

impl Default for Holding {
    fn default() -> Self {
        Self { memory_bytes: Some(0.0), sm_ratio: Some(0.0), processes: 0 }
    }
}

impl Holding {
    fn add(&mut self, process: &ProcessSample) {
        let sum = |so_far: Option<f64>, more: Option<f64>| Some(so_far? + more?);
        self.memory_bytes = sum(self.memory_bytes, process.memory_bytes.map(float));
        self.sm_ratio = sum(self.sm_ratio, process.sm_ratio);
        self.processes += 1;
    }
}
