//! Limits of the API, and what is changed of what is stored.

use super::super::devices::tests::{machine, offers};
use super::super::devices::{Card, Fault};
use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

fn pool(features: Features) -> Pool {
    Pool { node: "n1".into(), node_uid: "uid".into(), effect: "NoSchedule", features }
}

fn names(slices: &[ResourceSlice]) -> Vec<&str> {
    slices.iter().map(|slice| slice.metadata.name.as_deref().unwrap()).collect()
}

/// As the API server would store it.
fn stored(changes: &Changes, before: &[ResourceSlice]) -> Vec<ResourceSlice> {
    let fresh = changes.create.iter().chain(&changes.replace);
    let mut all: Vec<ResourceSlice> = fresh.cloned().collect();
    let kept = before.iter().filter(|slice| {
        let name = slice.metadata.name.as_ref().unwrap();
        !changes.delete.contains(name) && !names(&all).contains(&name.as_str())
    });
    all.extend(kept.cloned().collect::<Vec<_>>());
    all
}

#[test]
fn a_node_with_eight_divisible_cards_keeps_every_limit() {
    for model in ["h100-80gb", "b200"] {
        let slices = wanted(&offers(model, 8), &pool(Features::ALL));
        assert_eq!(slices.len(), 9, "counters apart, and one for each card");
        for slice in &slices {
            let (devices, sets) = (&slice.spec.devices, &slice.spec.shared_counters);
            assert!(devices.is_none() != sets.is_none());
            assert!(devices.as_ref().is_none_or(|devices| devices.len() <= 64));
            assert!(sets.as_ref().is_none_or(|sets| sets.len() <= 8));
            assert!(slice.metadata.name.as_ref().unwrap().len() <= 253);
            assert_eq!(slice.spec.pool.resource_slice_count, 9);
        }
    }
    let many = wanted(&offers("t4", 70), &pool(Features::ALL));
    let devices: Vec<usize> =
        many.iter().map(|slice| slice.spec.devices.as_ref().unwrap().len()).collect();
    assert_eq!(devices, [64, 6]);
    let nine = wanted(&offers("h100-80gb", 9), &pool(Features::ALL));
    assert_eq!(names(&nine)[..2], ["n1-gpu.hotpot.dev-counters-0", "n1-gpu.hotpot.dev-counters-1"]);
}

#[test]
fn an_older_server_is_sent_only_what_it_keeps() {
    let older = Features { shares: false, counters: None, taints: false };
    let mut offers = offers("h100-80gb", 2);
    offers.cards[1].fault = Some(Fault { kind: "lost", why: "so".into() });
    let slices = wanted(&offers, &pool(older));
    assert_eq!(names(&slices), ["n1-gpu.hotpot.dev-cards-0"]);
    let [card] = &slices[0].spec.devices.as_ref().unwrap()[..] else {
        panic!("the other one is lost")
    };
    assert_eq!((&card.consumes_counters, card.allow_multiple_allocations), (&None, None));
    assert!(card.capacity.as_ref().unwrap().values().all(|one| one.request_policy.is_none()));
    assert_eq!(older.missing().len(), 3);
    let together = Features { counters: Some(Counters::Together), ..Features::ALL };
    let slices = wanted(&offers, &pool(together));
    assert!(slices.iter().all(|slice| slice.spec.shared_counters.as_ref().unwrap().len() == 1));
    assert_eq!(slices.len(), 2);
}

#[test]
fn only_what_differs_is_changed_and_generations_go_up() {
    let pool = pool(Features::ALL);
    let two = wanted(&offers("h100-80gb", 2), &pool);
    let first = changes(&[], two.clone());
    assert_eq!((first.create.len(), first.replace.len(), first.delete.len()), (3, 0, 0));
    assert!(first.create.iter().all(|slice| slice.spec.pool.generation == 1));
    let there = stored(&first, &[]);
    assert!(changes(&there, two).is_empty());
    let mut ill = offers("h100-80gb", 2);
    ill.cards[1].fault = Some(Fault { kind: "lost", why: "so".into() });
    let marked = changes(&there, wanted(&ill, &pool));
    assert_eq!((marked.create.len(), marked.replace.len(), marked.delete.len()), (0, 1, 0));
    assert_eq!(marked.replace[0].spec.pool.generation, 1, "one alone is seen at once");
    let less = changes(&there, wanted(&offers("h100-80gb", 1), &pool));
    assert_eq!((less.create.len(), less.replace.len(), less.delete.len()), (0, 2, 1));
    assert!(less.replace.iter().all(|slice| slice.spec.pool.generation == 2));
    assert!(changes(&stored(&less, &there), wanted(&offers("h100-80gb", 1), &pool)).is_empty());
}

#[test]
fn slices_that_the_kubelet_has_removed_are_made_again() {
    let pool = pool(Features::ALL);
    let offers = offers("h100-80gb", 2);
    let mut there = stored(&changes(&[], wanted(&offers, &pool)), &[]);
    there.pop();
    let again = changes(&there, wanted(&offers, &pool));
    assert_eq!((again.create.len(), again.replace.len()), (1, 2));
    assert!(again.create.iter().chain(&again.replace).all(|one| one.spec.pool.generation == 2));
}

#[test]
fn a_taint_keeps_its_time_and_is_no_difference() {
    let pool = pool(Features::ALL);
    let mut offers = offers("t4", 1);
    offers.cards[0].fault = Some(Fault { kind: "lost", why: "so".into() });
    let mut there = stored(&changes(&[], wanted(&offers, &pool)), &[]);
    let time = Some(Time(Timestamp::UNIX_EPOCH));
    for taint in there[0].spec.devices.as_mut().unwrap()[0].taints.iter_mut().flatten() {
        taint.time_added.clone_from(&time);
    }
    assert!(changes(&there, wanted(&offers, &pool)).is_empty());
    let attributes = offers.cards[0].device.attributes.as_mut().unwrap();
    attributes.remove("numaNode");
    let changed = changes(&there, wanted(&offers, &pool));
    let taints = changed.replace[0].spec.devices.as_ref().unwrap()[0].taints.as_ref().unwrap();
    assert_eq!(taints[0].time_added, time);
    assert_eq!(taints[0].key, "gpu.hotpot.dev/lost");
}

#[test]
fn a_server_that_drops_a_part_is_found_out() {
    let sent = &wanted(&offers("t4", 1), &pool(Features::ALL))[0];
    let mut kept = sent.clone();
    kept.spec.pool.generation = 7;
    assert!(is_same(&kept, sent));
    kept.spec.devices.as_mut().unwrap()[0].allow_multiple_allocations = None;
    assert!(!is_same(&kept, sent));
}

#[test]
fn a_long_name_of_a_node_leaves_room() {
    let long = Pool { node: "n".repeat(253), ..pool(Features::ALL) };
    let slices = wanted(&offers("h100-80gb", 1), &long);
    assert!(names(&slices).iter().all(|name| name.len() <= 253));
    assert_eq!(slices[0].spec.pool.name.len(), 253);
}

/// For whoever holds them against Kubernetes' own rules: one slice a line, into the file of that name.
#[test]
fn all_of_them_can_be_written_down() {
    let Some(path) = std::env::var_os("HOTPOT_SLICES") else { return };
    let mut ill: Vec<Card> = offers("b200", 1).cards;
    ill[0].fault = Some(Fault { kind: "lost", why: "so".into() });
    let nodes = [
        offers("h100-80gb", 8),
        offers("rtx-pro-6000-96gb", 2),
        offers("t4", 70),
        Offers { cards: ill },
    ];
    let slices =
        nodes.iter().flat_map(|node| changes(&[], wanted(node, &pool(Features::ALL))).create);
    let lines: Vec<String> = slices.map(|slice| serde_json::to_string(&slice).unwrap()).collect();
    std::fs::write(path, lines.join("\n")).unwrap();
    assert_eq!(machine("t4", 1).devices.len(), 1);
}
