//! Which cards should become what: packed by the geometry of the catalogue, few of them changed.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use model::{Catalogue, MigLayout};
use proptest::prelude::*;
use slurm::layout::{Card, CardLayout, Demand, NodeCards, Plan, plan};

const SHARD_MIB: u64 = 256;

fn card(node: &str, minor: u32, layout: CardLayout) -> Card {
    let (model, kind) = (Some("a100-80gb".to_owned()), "a100".to_owned());
    Card { gpu: format!("GPU-{node}-{minor}"), minor, model, kind, layout }
}

fn node(name: &str, jobs: u64, layouts: Vec<CardLayout>) -> NodeCards {
    let cards = (0..).zip(layouts).map(|(minor, layout)| card(name, minor, layout));
    NodeCards { name: name.to_owned(), jobs, cards: cards.collect() }
}

fn whole(count: usize) -> Vec<CardLayout> {
    vec![CardLayout::Whole; count]
}

fn mig(instances: &[(&str, u8)]) -> CardLayout {
    let named = instances.iter().map(|(name, start)| ((*name).to_owned(), *start));
    CardLayout::Mig(named.collect())
}

fn plan_for(nodes: &[NodeCards], want: &str, shards: bool) -> Plan {
    let demand = Demand::wanted(want).unwrap();
    let catalogue = Catalogue::shipped().unwrap();
    plan(nodes, &demand, shards.then_some(SHARD_MIB), &catalogue)
}

/// What a plan changes: node, card, and what the card becomes.
fn changes(plan: &Plan) -> Vec<String> {
    let cards = |node: &slurm::layout::NodePlan| {
        let name = node.node.clone();
        let one = move |card: &slurm::layout::CardPlan| {
            format!("{name}/{} {}", card.minor, card.becomes.words())
        };
        node.cards.iter().map(one).collect::<Vec<_>>()
    };
    plan.nodes.iter().flat_map(cards).collect()
}

#[test]
fn as_few_cards_as_can_be_are_changed_and_those_of_idle_nodes_first() {
    let nodes = [node("n1", 2, whole(2)), node("n2", 0, whole(2))];
    let plan = plan_for(&nodes, "1g.10gb=8,a100=1", false);
    assert_eq!(changes(&plan), ["n2/0 7 × 1g.10gb", "n2/1 7 × 1g.10gb"]);
    assert!(plan.unmet.is_empty());
    let because = &plan.nodes[0].cards[0].because;
    assert_eq!(because, "8 × 1g.10gb asked, 8 missing; the node is idle");
    assert!(changes(&plan_for(&nodes, "a100=4", false)).is_empty(), "all is there");
}

#[test]
fn room_on_divided_cards_is_used_before_more_cards_are_divided() {
    let half = mig(&[("3g.40gb", 0)]);
    let nodes = [node("n1", 0, vec![CardLayout::Whole, half])];
    let plan = plan_for(&nodes, "3g.40gb=2,a100=1", false);
    assert_eq!(changes(&plan), ["n1/1 2 × 3g.40gb"]);
    let kept = &plan.nodes[0].cards[0].becomes;
    assert!(matches!(kept, CardLayout::Mig(all) if all.contains(&("3g.40gb".to_owned(), 0))));
}

#[test]
fn what_is_needed_is_not_taken_away_and_what_cannot_be_had_is_said() {
    let nodes = [node("n1", 0, whole(2))];
    let plan = plan_for(&nodes, "a100=2,1g.10gb=3", false);
    assert_eq!((changes(&plan), plan.unmet), (vec![], BTreeMap::from([("1g.10gb".into(), 3)])));
    let plan = plan_for(&nodes, "9g.90gb=1", false);
    assert_eq!((changes(&plan), plan.unmet), (vec![], BTreeMap::from([("9g.90gb".into(), 1)])));
    let seven: Vec<(&str, u8)> = (0..7).map(|start| ("1g.10gb", start)).collect();
    let nodes = [node("n1", 0, vec![mig(&seven), mig(&seven)])];
    let plan = plan_for(&nodes, "gpu=1,1g.10gb=7", false);
    assert_eq!(changes(&plan), ["n1/0 whole"]);
}

#[test]
fn with_shards_a_node_has_instances_of_one_type() {
    let nodes = [node("n1", 0, whole(2)), node("n2", 0, whole(1))];
    let mixed = plan_for(&nodes[1..], "1g.10gb=1,3g.40gb=1", false);
    assert_eq!(mixed.nodes[0].cards.len(), 1);
    assert!(mixed.unmet.is_empty());
    let plan = plan_for(&nodes, "1g.10gb=7,3g.40gb=2", true);
    for node in &plan.nodes {
        let kinds = node.cards.iter().map(|card| card.becomes.words());
        let kinds: std::collections::BTreeSet<String> = kinds.collect();
        assert_eq!(kinds.len(), 1, "{kinds:?}");
    }
    assert!(plan.unmet.is_empty(), "{plan:?}");
    let plan = plan_for(&nodes[1..], "1g.10gb=1,3g.40gb=1", true);
    assert_eq!(plan.unmet.len(), 1);
}

#[test]
fn shards_that_are_asked_for_keep_whole_cards() {
    let nodes = [node("n1", 0, whole(2))];
    let mut demand = Demand::wanted("1g.10gb=14").unwrap();
    demand.shards.waiting = 10;
    let plan = plan(&nodes, &demand, Some(SHARD_MIB), &Catalogue::shipped().unwrap());
    assert_eq!(changes(&plan), ["n1/0 7 × 1g.10gb"]);
    assert_eq!(plan.unmet["1g.10gb"], 7);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every layout fits, nothing that was there and asked for goes missing, and what the plan says is unmet is.
    #[test]
    fn plans_fit_and_never_make_it_worse(
        cards in prop::collection::vec(0_usize..3, 1..6),
        want in prop::collection::vec(0_u64..9, 3),
        shards in any::<bool>(),
    ) {
        let seven: Vec<(&str, u8)> = (0..7).map(|start| ("1g.10gb", start)).collect();
        let kinds = [CardLayout::Whole, mig(&seven), mig(&[("3g.40gb", 0), ("3g.40gb", 4)])];
        let nodes: Vec<NodeCards> = cards.iter().enumerate()
            .map(|(at, kind)| node(&format!("n{at}"), at as u64 % 2, vec![kinds[*kind].clone()]))
            .collect();
        let asked = [("a100", want[0]), ("1g.10gb", want[1]), ("3g.40gb", want[2])];
        let text: Vec<String> = asked.iter().map(|(kind, count)| format!("{kind}={count}")).collect();
        let plan = plan_for(&nodes, &text.join(","), shards);
        let catalogue = Catalogue::shipped().unwrap();
        let geometry = catalogue.get("a100-80gb").unwrap().mig.as_ref().unwrap();
        let mut after: BTreeMap<String, CardLayout> = nodes.iter()
            .flat_map(|node| &node.cards)
            .map(|card| (card.gpu.clone(), card.layout.clone()))
            .collect();
        let count = |layouts: &BTreeMap<String, CardLayout>, kind: &str| -> u64 {
            layouts.values().map(|layout| match layout {
                CardLayout::Whole => u64::from(kind == "a100"),
                CardLayout::Mig(all) => all.iter().filter(|(name, _)| name == kind).count() as u64,
            }).sum()
        };
        let before = after.clone();
        for card in plan.nodes.iter().flat_map(|node| &node.cards) {
            prop_assert_eq!(&after[&card.gpu], &card.was);
            if let CardLayout::Mig(all) = &card.becomes {
                let mut layout = MigLayout::default();
                for (name, start) in all {
                    let profile = geometry.find(name).unwrap();
                    prop_assert!(geometry.admit(&layout, profile, *start).is_ok());
                    layout = layout.with(profile, *start);
                }
            }
            after.insert(card.gpu.clone(), card.becomes.clone());
        }
        let weight = |kind: &str| match kind { "a100" => 8, "3g.40gb" => 4, _ => 1 };
        let missing = |layouts: &BTreeMap<String, CardLayout>| -> u64 {
            let one = |(kind, want): &(&str, u64)| {
                weight(kind) * want.saturating_sub(count(layouts, kind))
            };
            asked.iter().map(one).sum()
        };
        prop_assert!(missing(&after) <= missing(&before));
        prop_assert!(plan.nodes.is_empty() || missing(&after) < missing(&before));
        for (kind, want) in asked {
            let unmet = want.saturating_sub(count(&after, kind));
            prop_assert_eq!(plan.unmet.get(kind).copied().unwrap_or(0), unmet);
        }
    }
}
