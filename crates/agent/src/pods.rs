//! Our families about pods: what each share of Kubernetes holds and has had, in whichever way its card is divided.

use model::SharingKind;
use node::account::Counts;
use node::sample::{AccountSample, GpuSample, InstanceSample};
use node::tenant::Tenant;

use crate::exposition::{Exposition, Family, Kind, Labels};
use crate::observation::Observation;
use crate::occupants::{Occupant, PodName};
use crate::own::{Column, column, float, of_gpu};

const REFUSED: Family = Family {
    name: "hotpot_pod_refused_allocations_total",
    kind: Kind::Counter,
    help: "Allocations refused: over the cap of the share, or because the card was full.",
};

#[rustfmt::skip]
const COLUMNS: &[Column<PodUse>] = &[
    column("hotpot_pod_memory_used_bytes", Kind::Gauge, "Device memory that a container's share holds.",
        |one| one.memory_used_bytes),
    column("hotpot_pod_memory_cap_bytes", Kind::Gauge, "Device memory that a container's share may hold.",
        |one| one.memory_cap_bytes),
    column("hotpot_pod_compute_cap_ratio", Kind::Gauge, "Compute that a container's share may take, in parts of the card's time.",
        |one| one.compute_cap_ratio),
    column("hotpot_pod_busy_ratio", Kind::Gauge, "Part of the last period in which a container's share had the card, or its MIG device was busy.",
        |one| one.busy_ratio),
    column("hotpot_pod_gpu_seconds_total", Kind::Counter, "GPU time that a container's share had.",
        |one| Some(float(one.counts?.measured_us()?) / 1e6)),
    column("hotpot_pod_throttled_seconds_total", Kind::Counter, "Time for which launches of a container's share were held back, summed over processes.",
        |one| Some(float(one.counts?.throttled_us) / 1e6)),
];

/// What was measured of a share.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodUse {
    /// Position of its card.
    pub(crate) gpu: u32,
    /// UUID of its card or MIG device.
    pub(crate) device: String,
    /// Whose it is.
    pub(crate) name: PodName,
    /// Device memory that it holds.
    pub(crate) memory_used_bytes: Option<f64>,
    /// Parts of the time of the card or MIG device.
    pub(crate) busy_ratio: Option<f64>,
    memory_cap_bytes: Option<f64>,
    compute_cap_ratio: Option<f64>,
    /// Whether card or MIG device are its own, so that what is told of them is told of it.
    pub(crate) is_whole: bool,
    /// By its limiter; so of what is a part of a card.
    pub(crate) counts: Option<Counts>,
}

/// Names of the families, in the order of the text.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().map(|column| column.family.name).chain([REFUSED.name])
}

/// All shares on cards that are there, with what was measured of them.
pub(crate) fn uses(seen: &Observation) -> Vec<PodUse> {
    let card = |uuid: &str| seen.sample.gpus.iter().find(|gpu| gpu.uuid == uuid);
    let on_card = |one| Some(PodUse::of(one, card(&one.share.gpu)?));
    seen.occupants.iter().filter_map(on_card).collect()
}

/// Writes the families.
pub(crate) fn write(text: &mut Exposition, uses: &[PodUse]) {
    let labelled: Vec<(Labels, &PodUse)> = uses.iter().map(|one| (one.labels(), one)).collect();
    for Column { family, value } in COLUMNS {
        text.family(family, labelled.iter().map(|(labels, one)| (labels, value(one))));
    }
    let counted = labelled.iter().filter_map(|(labels, one)| Some((labels, one.counts?)));
    let refused = counted.flat_map(|(labels, counts)| {
        let by = |by: &str, count| (labels.clone().with("by", by), Some(float(count)));
        [by("cap", counts.refused_by_cap), by("card", counts.refused_by_card)]
    });
    text.family(&REFUSED, refused);
}

/// The labels by which dcgm-exporter and others name a container.
pub(crate) fn of_container(labels: Labels, name: &PodName) -> Labels {
    let PodName { namespace, pod, container, claim: _ } = name;
    labels.with("namespace", namespace).with("pod", pod).with("container", container)
}

impl PodUse {
    fn of(occupant: &Occupant, gpu: &GpuSample) -> Self {
        let (device, name) = (occupant.device.clone(), occupant.pod.clone());
        let one = Self { gpu: gpu.index, device, name, ..Self::default() };
        let is_its = |account: &&AccountSample| matches!(&account.tenant, Tenant::Claim(uid) if *uid == occupant.claim);
        if let Some(account) = gpu.accounts.iter().find(is_its) {
            return one.by_account(account);
        }
        match occupant.share.sharing() {
            Some(SharingKind::Exclusive) => one.of_card(gpu),
            Some(SharingKind::Mig) => {
                let own = gpu.instances.iter().find(|instance| instance.uuid == occupant.device);
                own.map_or(one.clone(), |instance| one.of_instance(instance))
            }
            // What it uses is not told of it alone.
            Some(SharingKind::TimeSlice | SharingKind::Mps | SharingKind::MemoryCapped) | None => {
                let given_mib = Some(occupant.share.memory_mib).filter(|mib| *mib > 0);
                let memory_cap_bytes =
                    given_mib.and_then(|mib| mib.checked_mul(1 << 20)).map(float);
                Self { memory_cap_bytes, ..one }
            }
        }
    }

    fn by_account(self, of: &AccountSample) -> Self {
        Self {
            memory_used_bytes: Some(float(of.account.held_bytes())),
            memory_cap_bytes: of.cap_bytes.map(float),
            compute_cap_ratio: of.compute_milli.map(|milli| f64::from(milli) / 1000.0),
            busy_ratio: of.gpu_ratio,
            counts: Some(of.account.counts),
            ..self
        }
    }

    fn of_card(self, gpu: &GpuSample) -> Self {
        let busy = || gpu.profile.as_ref()?.engine_ratio;
        Self {
            memory_used_bytes: gpu.memory_used_bytes.map(float),
            memory_cap_bytes: gpu.memory_total_bytes.map(float),
            busy_ratio: gpu.busy_ratio.or_else(busy),
            is_whole: true,
            ..self
        }
    }

    fn of_instance(self, instance: &InstanceSample) -> Self {
        Self {
            memory_used_bytes: instance.memory_used_bytes.map(float),
            memory_cap_bytes: instance.memory_total_bytes.map(float),
            busy_ratio: instance.profile_counters.as_ref().and_then(|all| all.engine_ratio),
            is_whole: true,
            ..self
        }
    }

    fn labels(&self) -> Labels {
        of_container(of_gpu(self.gpu, &self.device), &self.name).with("claim", &self.name.claim)
    }

    /// Whether others may have shares of its card too: what is told of the card is not told of it.
    pub(crate) fn is_part(&self) -> bool {
        self.counts.is_some()
    }
}
