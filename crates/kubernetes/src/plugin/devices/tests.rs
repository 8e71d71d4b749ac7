//! Laws of what a node offers, for cards as the catalogue knows them.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{Counter, DeviceCounterConsumption};
use model::{Catalogue, MigLayout};
use node::backend::{Backends, Enforcement};
use node::inventory::{ComputeMode, Device as Found, DriverFacts, Mig};

use super::*;

/// A machine with cards of a model, as a driver would tell of it.
pub(crate) fn machine(model: &str, count: u32) -> Inventory {
    let catalogue = Catalogue::shipped().unwrap();
    let known = catalogue.get(model).unwrap();
    let mig = |geometry: &MigGeometry| {
        let mut geometry = geometry.clone();
        geometry
            .profiles
            .iter_mut()
            .for_each(|one| one.memory_mib = known.instance_memory_mib(one));
        let profile_ids = (0..u32::try_from(geometry.profiles.len()).unwrap()).collect();
        Mig { enabled: false, pending: false, geometry, profile_ids, instances: Vec::new() }
    };
    let absent = || Enforcement::Absent("so".into());
    let device = |index: u32| Found {
        index,
        minor: Some(index),
        uuid: format!("GPU-{index:08}-1111-2222-3333-444444444444"),
        pci_bus_id: format!("00000000:{index:02X}:00.0"),
        product: format!("NVIDIA {model}"),
        model: Some(model.into()),
        memory_mib: known.memory_mib + 500,
        reserved_mib: 500,
        compute_capability: (9, 0),
        compute_mode: ComputeMode::Default,
        numa_node: Some(0),
        mig: known.mig.as_ref().map(mig),
        backends: Backends {
            mig: if known.mig.is_some() { Enforcement::Hard } else { absent() },
            memory_limit: absent(),
            mps: absent(),
            time_slice: absent(),
            limiter: Enforcement::Cooperative,
        },
        links: Vec::new(),
    };
    let driver = DriverFacts { driver: "580.95.05".into(), nvml: "13".into(), cuda: (13, 0) };
    Inventory { driver, devices: (0..count).map(device).collect(), lost: Vec::new() }
}

pub(crate) fn offers(model: &str, count: u32) -> Offers {
    Offers::of(&machine(model, count), &Offers::default()).unwrap()
}

fn value(counter: &Counter) -> u64 {
    quantity::whole(&counter.value).unwrap()
}

fn consumed(device: &Device) -> &DeviceCounterConsumption {
    let [consumption] = &device.consumes_counters.as_ref().unwrap()[..] else { panic!("one set") };
    consumption
}

/// Whether a set of devices stays within the counters.
fn fit(set: &CounterSet, devices: &[&Device]) -> bool {
    set.counters.iter().all(|(name, all)| {
        let taken = devices.iter().filter_map(|device| consumed(device).counters.get(name));
        taken.map(value).sum::<u64>() <= value(all)
    })
}

#[test]
fn counters_allow_just_what_the_card_allows() {
    for model in ["a100-40gb", "h100-80gb", "h200", "b200", "a30", "gb300"] {
        let card = &offers(model, 1).cards[0];
        let (set, geometry) = (card.counters.as_ref().unwrap(), card.geometry.as_ref().unwrap());
        let instances: Vec<&Instance> = card.instances.iter().collect();
        assert!(instances.iter().all(|one| !fit(set, &[&card.device, &one.device])), "{model}");
        assert!(instances.iter().all(|one| fit(set, &[&one.device])), "{model}");
        for (at, first) in instances.iter().enumerate() {
            let layout = MigLayout::default().with(first.profile, first.start);
            for (next, second) in instances.iter().enumerate().skip(at + 1) {
                let pair = [&first.device, &second.device];
                let legal = geometry.admit(&layout, second.profile, second.start).is_ok();
                assert_eq!(fit(set, &pair), legal, "{} {}", pair[0].name, pair[1].name);
                if !legal {
                    continue;
                }
                let layout = layout.with(second.profile, second.start);
                for third in &instances[next + 1..] {
                    let legal = geometry.admit(&layout, third.profile, third.start).is_ok();
                    assert_eq!(fit(set, &[pair[0], pair[1], &third.device]), legal);
                }
            }
        }
    }
}

#[test]
fn the_card_takes_all_of_its_counters() {
    let card = &offers("h100-80gb", 1).cards[0];
    let set = card.counters.as_ref().unwrap();
    assert_eq!(consumed(&card.device).counters, set.counters);
    let names: Vec<&str> = set.counters.keys().map(String::as_str).collect();
    let slices = (0..8).map(|slice| format!("memory-slice-{slice}"));
    let expected: Vec<String> =
        ["1g-10gb-me".to_owned(), "compute-slices".into()].into_iter().chain(slices).collect();
    assert_eq!(names, expected);
}

#[test]
fn names_are_labels_and_nobody_has_anothers() {
    for model in ["h100-80gb", "b200", "rtx-pro-6000-96gb", "t4"] {
        let offers = offers(model, 8);
        let devices: Vec<&Device> = offers.cards.iter().flat_map(Card::devices).collect();
        let names: BTreeSet<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names.len(), devices.len(), "{model}");
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(names.iter().all(|name| name.len() <= 63 && name.chars().all(fine)), "{model}");
        assert!(devices.iter().all(|device| {
            let counts = [
                device.attributes.as_ref().map(BTreeMap::len),
                device.capacity.as_ref().map(BTreeMap::len),
            ];
            counts.into_iter().flatten().sum::<usize>() <= 32
        }));
        let sets = offers.cards.iter().filter_map(|card| card.counters.as_ref());
        assert!(sets.into_iter().all(|set| set.counters.len() <= 32 && set.name.len() <= 63));
    }
    assert_ne!(
        names::instance("GPU-1", "1g.24gb+me", 0),
        names::instance("GPU-1", "1g.24gb-me", 0)
    );
}

#[test]
fn a_lost_card_stays_as_it_was_and_a_faulty_one_says_why() {
    let mut inventory = machine("t4", 3);
    let before = Offers::of(&inventory, &Offers::default()).unwrap();
    inventory.devices.remove(1);
    inventory.devices[1].compute_mode = ComputeMode::Prohibited;
    for uuid in [None, Some(before.cards[1].uuid.clone())] {
        inventory.lost = vec![LostDevice { index: 1, uuid, why: "fallen off the bus".into() }];
        let now = Offers::of(&inventory, &before).unwrap();
        assert_eq!(now.cards[0], before.cards[0]);
        let lost = Fault { kind: "lost", why: "fallen off the bus".into() };
        assert_eq!(now.cards[1], Card { fault: Some(lost), ..before.cards[1].clone() });
        let fault = now.cards[2].fault.as_ref().unwrap();
        assert_eq!((fault.kind, fault.why.contains("prohibited")), ("unusable", true));
    }
    assert_eq!(
        Offers::of(&inventory, &Offers::default()).unwrap().cards.len(),
        2,
        "nobody knows it"
    );
}

#[test]
fn a_card_whose_memory_is_not_known_is_given_whole_only() {
    let mut inventory = machine("t4", 1);
    (inventory.devices[0].memory_mib, inventory.devices[0].reserved_mib) = (0, 0);
    let card = &Offers::of(&inventory, &Offers::default()).unwrap().cards[0];
    assert_eq!((&card.device.capacity, card.device.allow_multiple_allocations), (&None, None));
}

#[test]
fn a_card_reads_as_the_api_wants_it() {
    let card = &offers("t4", 1).cards[0];
    let text = serde_json::to_string_pretty(&card.device).unwrap();
    let expected = include_str!("t4.json");
    assert_eq!(text, expected.trim_end());
}
