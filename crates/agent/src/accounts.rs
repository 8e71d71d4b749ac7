//! Our families about tenants that the limiter holds: what it wrote down of them.

use std::collections::BTreeMap;

use node::account::{Account, Counts};
use node::sample::{AccountSample, GpuSample};
use node::tenant::Tenant;

use crate::exposition::{Exposition, Family, Kind, Labels};
use crate::own::{Column, column, float, of_gpu};
use crate::tenants::{Named, Roll, of_tenant};

const BOOKED: Family = Family {
    name: "hotpot_tenant_memory_booked_bytes",
    kind: Kind::Gauge,
    help: "Device memory that a tenant's limiter has booked, by what it is held for.",
};
const REFUSED: Family = Family {
    name: "hotpot_tenant_refused_allocations_total",
    kind: Kind::Counter,
    help: "Allocations refused: over the tenant's cap, or because the card was full.",
};

/// What running tasks of a tenant have.
#[rustfmt::skip]
const NOW: &[Column<Now>] = &[
    column("hotpot_tenant_memory_cap_bytes", Kind::Gauge, "Caps of device memory of a tenant's tasks that the limiter holds.",
        |now| now.cap_bytes.map(float)),
    column("hotpot_tenant_memory_peak_bytes", Kind::Gauge, "The most device memory that one task of a tenant has booked at once.",
        |now| Some(float(now.peak_bytes))),
    column("hotpot_tenant_compute_cap_ratio", Kind::Gauge, "Caps of compute of a tenant's tasks, in parts of the GPU's time.",
        |now| now.compute_milli.map(|milli| f64::from(milli) / 1000.0)),
];

/// What a tenant has had, ended tasks included.
#[rustfmt::skip]
const COUNTS: &[Column<Counts>] = &[
    column("hotpot_tenant_gpu_seconds_total", Kind::Counter, "GPU time that a tenant had, as its limiter measured it.",
        |counts| Some(float(counts.measured_us()?) / 1e6)),
    column("hotpot_tenant_launches_total", Kind::Counter, "Kernels and graphs that a tenant launched.",
        |counts| Some(float(counts.launches))),
    column("hotpot_tenant_throttled_launches_total", Kind::Counter, "Launches of a tenant that its limiter held back.",
        |counts| Some(float(counts.throttled))),
    column("hotpot_tenant_throttled_seconds_total", Kind::Counter, "Time for which launches were held back, summed over processes.",
        |counts| Some(float(counts.throttled_us) / 1e6)),
];

/// A tenant's running tasks on one GPU, summed.
#[derive(Clone, Debug, Default)]
struct Now {
    memory_bytes: BTreeMap<String, u64>,
    /// `None` if one of the tasks has no cap.
    cap_bytes: Option<u64>,
    compute_milli: Option<u32>,
    peak_bytes: u64,
    tasks: usize,
}

/// GPU and tenant.
type Key = (u32, Named);

/// Names of the families, in the order of the text.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let now = NOW.iter().map(|column| column.family.name);
    let counts = COUNTS.iter().map(|column| column.family.name);
    std::iter::once(BOOKED.name).chain(now).chain(counts).chain([REFUSED.name])
}

/// Writes the families.
pub(crate) fn write(text: &mut Exposition, gpus: &[GpuSample], roll: &mut Roll) {
    let mut running: BTreeMap<Key, Now> = BTreeMap::new();
    let mut counts: BTreeMap<Key, Counts> = BTreeMap::new();
    for gpu in gpus {
        for sample in &gpu.accounts {
            let key = (gpu.index, roll.name(gpu.index, &sample.tenant));
            running.entry(key.clone()).or_default().add(sample);
            let sum = counts.entry(key).or_default();
            *sum = sum.plus(&sample.account.counts);
        }
        for (run, ended) in &gpu.ended {
            let tenant = Tenant::Task { run: run.clone(), task: String::new() };
            let sum = counts.entry((gpu.index, roll.name(gpu.index, &tenant))).or_default();
            *sum = sum.plus(ended);
        }
    }
    let running = labelled(running, gpus);
    let counts = labelled(counts, gpus);
    let kinds = running.iter().flat_map(|(labels, now)| {
        let of = |(kind, bytes): (&String, &u64)| {
            (labels.clone().with("kind", kind), Some(float(*bytes)))
        };
        now.memory_bytes.iter().map(of)
    });
    text.family(&BOOKED, kinds);
    for Column { family, value } in NOW {
        text.family(family, running.iter().map(|(labels, now)| (labels, value(now))));
    }
    for Column { family, value } in COUNTS {
        text.family(family, counts.iter().map(|(labels, counts)| (labels, value(counts))));
    }
    let refused = counts.iter().flat_map(|(labels, counts)| {
        let by = |by: &str, count| (labels.clone().with("by", by), Some(float(count)));
        [by("cap", counts.refused_by_cap), by("card", counts.refused_by_card)]
    });
    text.family(&REFUSED, refused);
}

fn labelled<T>(found: BTreeMap<Key, T>, gpus: &[GpuSample]) -> Vec<(Labels, T)> {
    let label = |((index, named), what): (Key, T)| {
        let uuid = gpus.iter().find(|gpu| gpu.index == index).map_or("", |gpu| &gpu.uuid);
        (of_tenant(of_gpu(index, uuid), &named), what)
    };
    found.into_iter().map(label).collect()
}

impl Now {
    fn add(&mut self, sample: &AccountSample) {
        let Account { memory_bytes, peak_bytes, .. } = &sample.account;
        for (kind, bytes) in memory_bytes {
            let sum = self.memory_bytes.entry(kind.clone()).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        self.peak_bytes = self.peak_bytes.max(*peak_bytes);
        let first = self.tasks == 0;
        self.cap_bytes = sum(self.cap_bytes, sample.cap_bytes, first, u64::saturating_add);
        let milli = (self.compute_milli, sample.compute_milli);
        self.compute_milli = sum(milli.0, milli.1, first, u32::saturating_add);
        self.tasks += 1;
    }
}

/// The sum of caps; `None` as soon as one is missing.
fn sum<T>(so_far: Option<T>, more: Option<T>, first: bool, add: fn(T, T) -> T) -> Option<T> {
    if first { more } else { so_far.zip(more).map(|(one, other)| add(one, other)) }
}
