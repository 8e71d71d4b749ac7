//! What a node offers: each card as one device of which many claims can hold shares, and, where the card can be
//! divided by hardware, one device for each instance that could be made. Pure.
//!
//! Counters say what excludes what: a card has one for each memory slice, one for compute slices, and one for each
//! profile of which there can be fewer instances than slices would allow. An instance consumes those that it takes, the
//! card all of them, once for all of its shares: so it is either shared or divided.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, CounterSet, Device, DeviceCapacity,
    DeviceCounterConsumption,
};
use model::{CatalogueError, GpuModel, MigGeometry, MigProfile, ProfileIndex};
use node::inventory::{self, Inventory, LostDevice};

use super::attributes;
use crate::quantity::MIB;
use crate::{names, quantity};

const MILLI: u64 = 1000;

/// All cards of a node, in the driver's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offers {
    /// The cards.
    pub cards: Vec<Card>,
}

/// One card, and what can be had of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// Position in the driver's order.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// Device memory that shares can have, in MiB; 0 if the driver does not say.
    pub memory_mib: u64,
    /// The device of the card itself.
    pub device: Device,
    /// Those of the instances that could be made on it.
    pub instances: Vec<Instance>,
    /// What the card and its instances consume; `None` without instances.
    pub counters: Option<CounterSet>,
    /// MIG profiles, in the driver's order.
    pub geometry: Option<MigGeometry>,
    /// Why nobody new should be put on it.
    pub fault: Option<Fault>,
}

/// A MIG instance that could be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its device.
    pub device: Device,
    /// The profile, as a position in the card's geometry.
    pub profile: ProfileIndex,
    /// First memory slice.
    pub start: u8,
}

/// Why nobody new should be put on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// One word: `lost` or `unusable`.
    pub kind: &'static str,
    /// For people.
    pub why: String,
}

/// What a device's name stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Named<'a> {
    /// A card.
    Card(&'a Card),
    /// An instance on it.
    Instance(&'a Card, &'a Instance),
}

impl Offers {
    /// * `before` — what was offered last: a lost card tells no more what it is.
    ///
    /// # Errors
    /// None in a build whose tests have passed: the catalogue is compiled in.
    pub fn of(inventory: &Inventory, before: &Self) -> Result<Self, CatalogueError> {
        let engine = inventory.to_engine()?;
        let model = |at: usize| {
            let found = engine.devices.iter().position(|device| *device == at);
            found.and_then(|at| engine.gpus.get(at)).map(|gpu| gpu.model().clone())
        };
        let devices = inventory.devices.iter().enumerate();
        let mut cards: Vec<Card> = devices
            .map(|(at, device)| {
                card(inventory, device, &model(at).unwrap_or_else(|| device.to_model()))
            })
            .collect();
        cards.extend(inventory.lost.iter().filter_map(|lost| before.lost(lost)));
        cards.sort_by_key(|card| card.index);
        Ok(Self { cards })
    }

    /// A lost card as it was. One that never told what it is cannot be offered.
    fn lost(&self, lost: &LostDevice) -> Option<Card> {
        let is_it = |card: &&Card| match &lost.uuid {
            Some(uuid) => card.uuid == *uuid,
            None => card.index == lost.index,
        };
        let fault = Some(Fault { kind: "lost", why: lost.why.clone() });
        self.cards.iter().find(is_it).map(|card| Card { fault, ..card.clone() })
    }

    /// What a device's name stands for; `None` if there is no such device.
    pub fn named(&self, name: &str) -> Option<Named<'_>> {
        self.cards.iter().find_map(|card| {
            if card.device.name == name {
                return Some(Named::Card(card));
            }
            let instance = card.instances.iter().find(|instance| instance.device.name == name);
            instance.map(|instance| Named::Instance(card, instance))
        })
    }
}

impl Card {
    /// Its device and those of its instances.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        std::iter::once(&self.device).chain(self.instances.iter().map(|one| &one.device))
    }
}

fn card(inventory: &Inventory, device: &inventory::Device, model: &GpuModel) -> Card {
    let common = attributes::of(device, model, &inventory.driver);
    let geometry = model.mig.as_ref().filter(|_| device.backends.mig.holds());
    let counters = geometry.map(|geometry| counters(&device.uuid, geometry));
    let own = Device {
        name: names::card(&device.uuid),
        attributes: Some(joined(&common, attributes::of_card(device))),
        capacity: (model.memory_mib > 0).then(|| capacity_of_card(model.memory_mib)),
        allow_multiple_allocations: (model.memory_mib > 0).then_some(true),
        consumes_counters: counters.as_ref().map(|set| vec![all_of(set)]),
        ..Device::default()
    };
    let instances = geometry.map(|geometry| {
        let placements = geometry.indexed().flat_map(|(index, profile)| {
            profile.starts.iter().map(move |start| (index, profile, *start))
        });
        let instance = |(index, profile, start): (ProfileIndex, &MigProfile, u8)| Instance {
            device: Device {
                name: names::instance(&device.uuid, &profile.name, start),
                attributes: Some(joined(
                    &common,
                    attributes::of_instance(device, &profile.name, start),
                )),
                capacity: Some(capacity_of_instance(model, geometry, profile)),
                consumes_counters: Some(vec![consumption(&device.uuid, geometry, profile, start)]),
                ..Device::default()
            },
            profile: index,
            start,
        };
        placements.map(instance).collect()
    });
    Card {
        index: device.index,
        uuid: device.uuid.clone(),
        memory_mib: model.memory_mib,
        device: own,
        instances: instances.unwrap_or_default(),
        counters,
        geometry: geometry.cloned(),
        fault: device.unusable().map(|why| Fault { kind: "unusable", why }),
    }
}

fn joined(common: &attributes::Attributes, own: attributes::Attributes) -> attributes::Attributes {
    common.clone().into_iter().chain(own).collect()
}

/// Who asks for no amount of memory gets all of it, who asks for no compute has no cap of it.
///
/// Compute has no step: the scheduler rounds amounts that have one to whole ones, and every part would be all.
fn capacity_of_card(memory_mib: u64) -> BTreeMap<String, DeviceCapacity> {
    let all = quantity::of_bytes(memory_mib * MIB);
    let memory = CapacityRequestPolicy {
        default: Some(all.clone()),
        valid_range: Some(CapacityRequestPolicyRange {
            min: quantity::of_bytes(MIB),
            max: Some(all.clone()),
            step: Some(quantity::of_bytes(MIB)).filter(|_| memory_mib > 1),
        }),
        valid_values: None,
    };
    let compute = CapacityRequestPolicy {
        default: Some(quantity::of_milli(0)),
        valid_range: Some(CapacityRequestPolicyRange {
            min: quantity::of_milli(0),
            max: Some(quantity::of_milli(MILLI)),
            step: None,
        }),
        valid_values: None,
    };
    let of = |value, policy| DeviceCapacity { value, request_policy: Some(policy) };
    BTreeMap::from([
        (names::MEMORY.to_owned(), of(all, memory)),
        (names::COMPUTE.to_owned(), of(quantity::of_milli(MILLI), compute)),
    ])
}

fn capacity_of_instance(
    model: &GpuModel,
    geometry: &MigGeometry,
    profile: &MigProfile,
) -> BTreeMap<String, DeviceCapacity> {
    let memory = quantity::of_bytes(model.instance_memory_mib(profile) * MIB);
    let milli =
        MILLI * u64::from(profile.compute_slices) / u64::from(geometry.compute_slices.max(1));
    let of = |value| DeviceCapacity { value, request_policy: None };
    BTreeMap::from([
        (names::MEMORY.to_owned(), of(memory)),
        (names::COMPUTE.to_owned(), of(quantity::of_milli(milli))),
    ])
}

fn counters(uuid: &str, geometry: &MigGeometry) -> CounterSet {
    let slices = (0..geometry.memory_slices).map(|slice| (names::memory_slice(slice), 1));
    let compute = (names::COMPUTE_SLICES.to_owned(), geometry.compute_slices);
    let profiles = geometry.profiles.iter().filter(|profile| is_scarce(geometry, profile));
    let profiles = profiles.map(|profile| (names::word(&profile.name), profile.instances_max));
    CounterSet {
        name: names::card(uuid),
        counters: counted(slices.chain([compute]).chain(profiles)),
    }
}

/// Whether there can be fewer instances of a profile than slices alone would allow, as of `+me`: there are few media
/// engines.
fn is_scarce(geometry: &MigGeometry, profile: &MigProfile) -> bool {
    let by_compute = geometry.compute_slices / profile.compute_slices.max(1);
    let by_start = u8::try_from(profile.starts.len()).unwrap_or(u8::MAX);
    profile.instances_max < by_compute.min(by_start)
}

fn consumption(
    uuid: &str,
    geometry: &MigGeometry,
    profile: &MigProfile,
    start: u8,
) -> DeviceCounterConsumption {
    let slices =
        (start..start.saturating_add(profile.memory_slices)).map(|at| (names::memory_slice(at), 1));
    let compute = (names::COMPUTE_SLICES.to_owned(), profile.compute_slices);
    let scarce = is_scarce(geometry, profile).then(|| (names::word(&profile.name), 1));
    DeviceCounterConsumption {
        counter_set: names::card(uuid),
        counters: counted(slices.chain([compute]).chain(scarce)),
    }
}

fn all_of(set: &CounterSet) -> DeviceCounterConsumption {
    DeviceCounterConsumption { counter_set: set.name.clone(), counters: set.counters.clone() }
}

fn counted(counts: impl Iterator<Item = (String, u8)>) -> BTreeMap<String, Counter> {
    counts.map(|(name, count)| (name, Counter { value: quantity::of_count(count) })).collect()
}

#[cfg(test)]
pub(super) mod tests;
