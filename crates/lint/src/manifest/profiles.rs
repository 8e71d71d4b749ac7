//! MIG instances that a pod asks: profiles that exist, that its card has, and that fit on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use formats::tree::Entry;
use model::{GpuModel, MigGeometry};

use super::amounts::{self, Amount, MIG};
use super::doc::{Doc, items};
use super::pod;
use crate::card::{self, Card};
use crate::finding::Finding;
use crate::finding::Severity::WaitsForEver;
use crate::mig;

/// The instances that a container asks, by profile.
pub(super) fn instances(amounts: &[Amount<'_>]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for one in amounts {
        let number = one.number().filter(|number| *number > 0);
        if let (Some(name), Some(number)) = (profile(one), number) {
            all.entry(name).or_insert(number);
        }
    }
    all
}

/// How many instances that are, of all profiles.
pub(super) fn sum(instances: &BTreeMap<String, u64>) -> u64 {
    instances.values().copied().fold(0, u64::saturating_add)
}

/// The profile of a resource, `1g.10gb+me` of `nvidia.com/mig-1g.10gb.me`.
fn profile(one: &Amount<'_>) -> Option<String> {
    one.key.name.strip_prefix(MIG).map(|name| name.replace(".me", "+me"))
}

/// Profiles that no card has, or not those that the pod is for.
pub(super) fn check(
    doc: &Doc<'_>,
    amounts: &[Amount<'_>],
    spec: &Entry,
    card: Option<&Card>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for one in amounts {
        let Some(name) = profile(one) else { continue };
        let span = doc.key(one.key);
        if !mig::exists(&name) {
            let happens = format!(
                "no card has a MIG profile {name}: the pod is pending for ever, or refused by hotpot's webhook"
            );
            let meant = mig::respelt(&name);
            let edit = meant.as_ref().and_then(|name| doc.rename(one.key, &format!("{MIG}{name}")));
            let near = || mig::nearest(&name);
            let instead = meant.map_or_else(near, |name| format!("write {MIG}{name}"));
            found.push(
                Finding::new(("mig-unknown", WaitsForEver), span, happens, instead).with(edit),
            );
            continue;
        }
        let models = models(spec, card);
        if let Some((shown, geometry)) = lacking(&models, card, &name) {
            let happens = format!(
                "{shown} has no MIG profile {name}: no node of these cards ever has one to give"
            );
            found.push(Finding::new(
                ("mig-not-on-card", WaitsForEver),
                span,
                happens,
                mig::shown(geometry),
            ));
        }
    }
    found
}

/// The models that the pod's node selector may mean, where no card is named.
fn models(spec: &Entry, card: Option<&Card>) -> Vec<Arc<GpuModel>> {
    let product = pod::product(spec).filter(|_| card.is_none());
    product.map(|(product, _)| card::of_product(product)).unwrap_or_default()
}

/// The card that lacks a profile; none if one of those that may be meant has it.
fn lacking<'a>(
    models: &'a [Arc<GpuModel>],
    card: Option<&'a Card>,
    name: &str,
) -> Option<(&'a str, Option<&'a MigGeometry>)> {
    let of_card = card.map(|card| (card.name(), card.mig()));
    let of_model = models.first().map(|model| (model.name.as_str(), model.mig.as_ref()));
    let has = models.iter().any(|model| mig::has(model.mig.as_ref(), name));
    of_card.or(of_model).filter(|(_, geometry)| !has && !mig::has(*geometry, name))
}

/// More instances than the cards of one node hold: a pod is on one node.
pub(super) fn together(
    doc: &Doc<'_>,
    spec: &Entry,
    wanted: &BTreeMap<String, u64>,
    card: Option<&Card>,
) -> Option<Finding> {
    let models = models(spec, card);
    let of_selector = || {
        let count = pod::product(spec)?.1?;
        let model = models.first().filter(|_| models.len() == 1)?;
        Some((model.name.as_str(), count, model.mig.as_ref()?))
    };
    let of_card = card.and_then(|card| Some((card.name(), card.count(), card.mig()?)));
    let (shown, cards, geometry) = of_card.or_else(of_selector)?;
    let most = |name: &str| mig::most(geometry, name, cards);
    let over = wanted.iter().find(|(name, count)| most(name).is_some_and(|most| **count > most));
    let (name, happens, instead) = match over {
        Some((name, count)) => {
            let most = most(name).unwrap_or(0);
            let happens = format!(
                "{count} instances of {name} are asked of {cards} x {shown}, which hold at most {most}: the pod is pending for ever"
            );
            (name, happens, format!("ask at most {most} in a pod, or spread them over more pods"))
        }
        None if cards == 1 && !mig::fit(geometry, wanted) => {
            let all: Vec<String> = wanted.iter().map(|(name, n)| format!("{n} x {name}")).collect();
            let happens = format!(
                "one {shown} does not hold {} at once: the pod is pending for ever",
                all.join(" and ")
            );
            (
                wanted.keys().next()?,
                happens,
                "ask for fewer or smaller ones, or make two pods of it".to_owned(),
            )
        }
        None => return None,
    };
    let containers = items(spec, "containers").iter().flat_map(amounts::of);
    let first = containers.into_iter().find(|one| profile(one).as_ref() == Some(name))?;
    Some(Finding::new(("mig-too-many", WaitsForEver), doc.key(first.key), happens, instead))
}
