//! The engine's fleet, from nodes and what their agents have published of cards. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use model::{
    Catalogue, Fleet, Gpu, GpuId, GpuModel, MigGeometry, MigProfile, ModeSet, ModelId, NodeId,
    ProfileIndex, SharingKind,
};

use crate::quantity::MIB;
use crate::{names, quantity};

/// Memory that a CUDA context takes where the catalogue does not know the model.
const CONTEXT_MIB: u64 = 500;
/// The driver's numbers of instances are what its agent has taken off for overhead: 5 %, see `GpuModel::instance_memory_mib`.
const INSTANCE_PERCENT: u64 = 95;

/// Slices of a card are counted no further, whatever its node says.
const SLICES_MAX: u8 = 16;

/// CPU and memory of a node that nobody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    /// In thousandths of a CPU.
    pub(super) cpu_milli: u64,
    /// In MiB.
    pub(super) memory_mib: u64,
}

/// The fleet with the names of everything in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Machines {
    /// Nodes in the order of their names, with the cards that they have published.
    pub(super) fleet: Fleet,
    /// The cards of each node, in the fleet's order.
    cards: Vec<Vec<Card>>,
    by_device: BTreeMap<(String, String), Named>,
}

/// A card of the fleet.
#[derive(Clone, Debug)]
struct Card {
    device: String,
    /// Devices of its instances.
    instances: BTreeMap<(ProfileIndex, u8), String>,
}

/// What a device of a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A card, shared or whole.
    Card(GpuId),
    /// An instance of a card.
    Instance(GpuId, ProfileIndex, u8),
}

/// A card as it is read, before all are known.
struct Read {
    card: Card,
    model: GpuModel,
    offers: ModeSet,
    is_closed: bool,
}

impl Machines {
    /// * `free` — what pods have left of each node's CPU and memory; a node without an entry has none.
    pub(super) fn of(
        nodes: &[Arc<Node>],
        slices: &[Arc<ResourceSlice>],
        free: &BTreeMap<String, Host>,
    ) -> Self {
        let pools = by_pool(slices);
        let mut models = Models::default();
        let names: BTreeSet<&str> =
            nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
        let (mut machines, mut fleet) = (Self::default(), Vec::new());
        for (name, at) in names.into_iter().zip(0..) {
            let node = NodeId(at);
            let pool = Pool::of(pools.get(name).cloned().unwrap_or_default());
            let (mut gpus, mut cards) = (Vec::new(), Vec::new());
            for (read, index) in pool.cards().into_iter().zip(0..=u8::MAX) {
                machines.enter(name, GpuId { node, index }, &read.card);
                let mut gpu = Gpu::idle(models.share(read.model), read.offers);
                gpu.set_aside(read.is_closed);
                gpus.push(gpu);
                cards.push(read.card);
            }
            let host = free.get(name).copied().unwrap_or_default();
            fleet.push(model::Node::idle(name.to_owned(), host.cpu_milli, host.memory_mib, gpus));
            machines.cards.push(cards);
        }
        machines.fleet = Fleet::new(fleet);
        machines
    }

    fn enter(&mut self, pool: &str, gpu: GpuId, card: &Card) {
        self.by_device.insert((pool.to_owned(), card.device.clone()), Named::Card(gpu));
        for ((profile, start), device) in &card.instances {
            self.by_device
                .insert((pool.to_owned(), device.clone()), Named::Instance(gpu, *profile, *start));
        }
    }

    /// What a device of a node is; `None` if its agent does not publish it.
    pub(super) fn named(&self, pool: &str, device: &str) -> Option<Named> {
        self.by_device.get(&(pool.to_owned(), device.to_owned())).copied()
    }

    /// The device of a card.
    pub(super) fn card(&self, gpu: GpuId) -> Option<&str> {
        Some(&self.found(gpu)?.device)
    }

    /// The device of an instance.
    pub(super) fn instance(&self, gpu: GpuId, profile: ProfileIndex, start: u8) -> Option<&str> {
        self.found(gpu)?.instances.get(&(profile, start)).map(String::as_str)
    }

    fn found(&self, gpu: GpuId) -> Option<&Card> {
        self.cards.get(gpu.node.index())?.get(usize::from(gpu.index))
    }
}

/// Equal cards have one model.
#[derive(Default)]
struct Models(Vec<Arc<GpuModel>>);

impl Models {
    fn share(&mut self, model: GpuModel) -> Arc<GpuModel> {
        let known =
            self.0.iter().find(|known| GpuModel { id: known.id, ..model.clone() } == ***known);
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let id = ModelId(u16::try_from(self.0.len()).unwrap_or(u16::MAX));
        let entered = Arc::new(GpuModel { id, ..model });
        self.0.push(Arc::clone(&entered));
        entered
    }
}

/// Slices of our driver, by the node that they are of.
fn by_pool(slices: &[Arc<ResourceSlice>]) -> BTreeMap<&str, Vec<&Arc<ResourceSlice>>> {
    let mut pools: BTreeMap<&str, Vec<&Arc<ResourceSlice>>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.spec.driver == names::DRIVER) {
        pools.entry(&slice.spec.pool.name).or_default().push(slice);
    }
    pools
}

/// What a CUDA context takes on a model, by the shipped catalogue, which is read once.
fn context_mib(model: &str) -> u64 {
    static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
    let catalogue = CATALOGUE.get_or_init(|| Catalogue::shipped().unwrap_or_default());
    catalogue.get(model).map_or(CONTEXT_MIB, |known| known.context_mib)
}

/// What the agent of one node has published last.
struct Pool<'a> {
    devices: Vec<&'a Device>,
    /// By set and counter.
    counters: BTreeMap<(&'a str, &'a str), u64>,
}

impl<'a> Pool<'a> {
    /// Of an unfinished generation nothing counts, as for the scheduler.
    fn of(mut ours: Vec<&'a Arc<ResourceSlice>>) -> Self {
        let last = ours.iter().map(|slice| slice.spec.pool.generation).max();
        ours.retain(|slice| Some(slice.spec.pool.generation) == last);
        let wanted = ours.first().map_or(0, |slice| slice.spec.pool.resource_slice_count);
        if i64::try_from(ours.len()).unwrap_or(i64::MAX) < wanted {
            ours.clear();
        }
        ours.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        let sets = ours.iter().flat_map(|slice| slice.spec.shared_counters.iter().flatten());
        let counters = sets.flat_map(|set| {
            set.counters.iter().filter_map(|(name, counter)| {
                Some(((set.name.as_str(), name.as_str()), quantity::whole(&counter.value)?))
            })
        });
        let counters = counters.collect();
        let devices =
            ours.into_iter().flat_map(|slice| slice.spec.devices.iter().flatten()).collect();
        Self { devices, counters }
    }

    /// Cards in the order of the driver's index.
    fn cards(&self) -> Vec<Read> {
        let mut cards: Vec<&Device> = self
            .devices
            .iter()
            .copied()
            .filter(|device| text(device, "type") == Some("card"))
            .collect();
        cards.sort_by_key(|card| (number(card, "index"), card.name.clone()));
        cards.into_iter().map(|card| self.card(card)).collect()
    }

    fn card(&self, device: &Device) -> Read {
        let uuid = text(device, "uuid").unwrap_or(&device.name).to_owned();
        let name = text(device, "model").unwrap_or("gpu").to_owned();
        let (mig, instances) = self.geometry(device, &uuid);
        let model = GpuModel {
            id: ModelId(0),
            memory_mib: capacity(device, names::MEMORY) / MIB,
            context_mib: context_mib(&name),
            modes: ModeSet::ALL,
            mig,
            name,
        };
        let is_closed = device.taints.iter().flatten().any(|taint| taint.effect != "None");
        let card = Card { device: device.name.clone(), instances };
        Read { card, model, offers: offers(device), is_closed }
    }

    /// The card's MIG profiles by its instances' devices, and which device is which.
    fn geometry(
        &self,
        card: &Device,
        uuid: &str,
    ) -> (Option<MigGeometry>, BTreeMap<(ProfileIndex, u8), String>) {
        let mut geometry = MigGeometry {
            compute_slices: self.counter(&card.name, names::COMPUTE_SLICES).min(SLICES_MAX),
            memory_slices: (0..u8::MAX)
                .take_while(|at| {
                    *at < SLICES_MAX && self.counter(&card.name, &names::memory_slice(*at)) > 0
                })
                .count() as u8,
            profiles: Vec::new(),
        };
        let mut places = BTreeMap::new();
        let of_card = |device: &&&Device| text(device, "parentUUID") == Some(uuid);
        for device in self.devices.iter().filter(of_card) {
            let Some((name, start)) = text(device, "profile").zip(number(device, "start")) else {
                continue;
            };
            let Ok(start) = u8::try_from(start) else { continue };
            let index = geometry.find(name).unwrap_or_else(|| {
                geometry.profiles.push(self.profile(device, name, &geometry));
                ProfileIndex((geometry.profiles.len() - 1) as u8)
            });
            let memory_slices = geometry.memory_slices;
            let profile = &mut geometry.profiles[usize::from(index.0)];
            // What does not fit on the card is nothing that it has.
            if u16::from(start) + u16::from(profile.memory_slices) > u16::from(memory_slices) {
                continue;
            }
            profile.starts.push(start);
            profile.starts.sort_unstable();
            places.insert((index, start), device.name.clone());
        }
        self.limit(&card.name, &mut geometry);
        (Some(geometry).filter(|geometry| !geometry.profiles.is_empty()), places)
    }

    fn profile(&self, device: &Device, name: &str, geometry: &MigGeometry) -> MigProfile {
        let consumed = |counter: &str| {
            let all = device.consumes_counters.iter().flatten().flat_map(|one| &one.counters);
            all.filter(|(name, _)| name.as_str() == counter)
                .filter_map(|(_, one)| quantity::whole(&one.value))
                .sum::<u64>()
        };
        let slices = (0..geometry.memory_slices)
            .filter(|at| consumed(&names::memory_slice(*at)) > 0)
            .count();
        MigProfile {
            name: name.to_owned(),
            compute_slices: u8::try_from(consumed(names::COMPUTE_SLICES))
                .map_or(SLICES_MAX + 1, |slices| slices.min(SLICES_MAX + 1)),
            memory_slices: slices as u8,
            memory_mib: (capacity(device, names::MEMORY) / MIB * 100).div_ceil(INSTANCE_PERCENT),
            instances_max: 0,
            starts: Vec::new(),
        }
    }

    /// How many of each profile there can be: what the card counts of it or, without a count, what slices allow.
    fn limit(&self, card: &str, geometry: &mut MigGeometry) {
        for profile in &mut geometry.profiles {
            let by_compute = geometry.compute_slices / profile.compute_slices.max(1);
            let by_start = u8::try_from(profile.starts.len()).unwrap_or(u8::MAX);
            profile.instances_max = match self.counter(card, &names::word(&profile.name)) {
                0 => by_compute.min(by_start),
                counted => counted,
            };
        }
    }

    fn counter(&self, set: &str, name: &str) -> u8 {
        self.counters.get(&(set, name)).map_or(0, |count| u8::try_from(*count).unwrap_or(u8::MAX))
    }
}

/// The ways of sharing that the card's agent can carry out.
fn offers(device: &Device) -> ModeSet {
    let holds = |name: &str| text(device, name).is_some_and(|word| word != "absent");
    let flag =
        |name: &str| attribute(device, name).and_then(|value| value.bool).unwrap_or_default();
    let all = [
        (SharingKind::TimeSlice, true),
        (SharingKind::MemoryCapped, holds("memoryCap")),
        (SharingKind::Mps, flag("mps")),
        (SharingKind::Mig, flag("mig")),
    ];
    let shared = device.allow_multiple_allocations == Some(true);
    let kinds: Vec<SharingKind> = all
        .into_iter()
        .filter(|(kind, can)| *can && (shared || *kind == SharingKind::Mig))
        .map(|(kind, _)| kind)
        .collect();
    ModeSet::of(&kinds).with(SharingKind::Exclusive)
}

fn attribute<'a>(
    device: &'a Device,
    name: &str,
) -> Option<&'a k8s_openapi::api::resource::v1::DeviceAttribute> {
    device.attributes.as_ref()?.get(name)
}

fn text<'a>(device: &'a Device, name: &str) -> Option<&'a str> {
    attribute(device, name)?.string.as_deref()
}

fn number(device: &Device, name: &str) -> Option<i64> {
    attribute(device, name)?.int
}

fn capacity(device: &Device, name: &str) -> u64 {
    let found = device.capacity.as_ref().and_then(|all| all.get(name));
    found.and_then(|capacity| quantity::whole(&capacity.value)).unwrap_or_default()
}
