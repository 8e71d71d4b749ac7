//! MIG profiles by name: which there are, which a card has, how many fit.

use std::collections::BTreeMap;

use formats::is_mig_profile;
use model::{Catalogue, GpuModel, MigGeometry};

/// Whether a profile is of some card; variants (`+gfx`, `-me`) count as their base.
pub(crate) fn exists(name: &str) -> bool {
    all().iter().any(|(known, _)| known == base(name))
}

/// The names that are near, with the models that have them.
pub(crate) fn nearest(name: &str) -> String {
    let all = all();
    let near = formats::near(base(name), all.iter().map(|(name, _)| name.as_str()));
    let models = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, of)| of.clone());
    let shown = near.iter().take(2).map(|name| {
        let of = models(name).unwrap_or_default();
        format!("{name} ({})", of.join(", "))
    });
    let shown: Vec<String> = shown.collect();
    match shown.is_empty() {
        true => "write one such as 1g.10gb".to_owned(),
        false => format!("the nearest are {}", shown.join(" and ")),
    }
}

/// A profile that was meant by a name which differs by letter case and points alone: `1g10gb`, `1G.10GB`.
pub(crate) fn respelt(name: &str) -> Option<String> {
    let plain = |text: &str| {
        let letters = text.chars().filter(char::is_ascii_alphanumeric);
        letters.collect::<String>().to_ascii_lowercase()
    };
    let word = plain(name);
    let all = all();
    let meant = all.iter().map(|(known, _)| known).find(|known| plain(known) == word)?;
    (meant != name).then(|| meant.clone())
}

/// Whether a word has a profile's shape, or that of one with a slip: `1g10gb`, `2g.20g`, `1G.10GB`.
pub(crate) fn looks_like_one(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let letters: String = word.chars().filter(|c| c.is_ascii_alphabetic()).collect();
    is_mig_profile(base(&word))
        || (word.starts_with(|c: char| c.is_ascii_digit()) && letters == "ggb")
}

/// Whether a card has a profile.
pub(crate) fn has(geometry: Option<&MigGeometry>, name: &str) -> bool {
    geometry.is_some_and(|mig| mig.profiles.iter().any(|one| base(&one.name) == base(name)))
}

/// The profiles of a card without variants, for people.
pub(crate) fn shown(geometry: Option<&MigGeometry>) -> String {
    let names = geometry.iter().flat_map(|mig| &mig.profiles).filter(|one| one.is_plain());
    let names: Vec<&str> = names.map(|one| one.name.as_str()).collect();
    match names.is_empty() {
        true => "it has no MIG".to_owned(),
        false => format!("it has {}", names.join(", ")),
    }
}

/// Most instances of a profile that so many cards have at once; `None` if they lack it.
pub(crate) fn most(geometry: &MigGeometry, name: &str, cards: u64) -> Option<u64> {
    let profile = geometry.profiles.iter().find(|one| one.name == base(name))?;
    Some(u64::from(profile.instances_max) * cards)
}

/// Whether one card holds all these instances at once; variants are not looked at.
pub(crate) fn fit(geometry: &MigGeometry, wanted: &BTreeMap<String, u64>) -> bool {
    let held = |layout: &model::MigLayout, name: &str| {
        let index = geometry.find(name);
        let same = layout.instances().iter().filter(|(profile, _)| Some(*profile) == index);
        same.count() as u64
    };
    let plain = |name: &str| name == base(name) && geometry.find(name).is_some();
    geometry.layouts().iter().any(|layout| {
        wanted.iter().filter(|(name, _)| plain(name)).all(|(name, n)| held(layout, name) >= *n)
    })
}

/// Every profile without variants, with the models that have it.
fn all() -> Vec<(String, Vec<String>)> {
    let Ok(catalogue) = Catalogue::shipped() else { return Vec::new() };
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let of = |model: &GpuModel| model.mig.iter().flat_map(|mig| mig.profiles.clone()).collect();
    for model in catalogue.iter() {
        let profiles: Vec<model::MigProfile> = of(model);
        for profile in profiles.into_iter().filter(|profile| profile.is_plain()) {
            all.entry(profile.name).or_default().push(model.name.clone());
        }
    }
    all.into_iter().collect()
}

/// A profile without what it has (`+me`) or has not (`-me`).
fn base(name: &str) -> &str {
    name.split(['+', '-']).next().unwrap_or(name)
}
