//! Whole GPUs and MIG instances that a script asks for: numbers, types, and what goes round by word of mouth.

use std::ops::Range;

use super::ask::{Ask, is_number};
use crate::card::Card;
use crate::finding::Severity::{Better, Refused};
use crate::finding::{Edit, Finding};
use crate::mig;

const INVALID: &str = "sbatch answers `Invalid generic resource (gres) specification`";

pub(super) fn check(asks: &[Ask<'_>], card: Option<&Card>) -> Vec<Finding> {
    let mut found = Vec::new();
    for ask in asks {
        if ask.is_folk() {
            found.push(folk(ask, asks));
        } else if ask.name == "gpu" {
            found.extend(number(ask).or_else(|| typed(ask, card)));
        }
    }
    found
}

/// `--gpus=1:shared`: of one GPU the least part is meant, if nothing else is asked.
fn folk(ask: &Ask<'_>, asks: &[Ask<'_>]) -> Finding {
    let is_one = !ask.words.iter().any(|word| is_number(word) && *word != "1");
    let edit = (is_one && ask.is_exact && asks.len() == 1).then(|| match ask.is_gres() {
        true => Edit::new(ask.span.clone(), "shard:1"),
        false => Edit::new(ask.option.span.clone(), "--gres=shard:1"),
    });
    let happens = format!(
        "no version of Slurm knows it: {INVALID}, or takes `shared` for a type that no node has"
    );
    let instead = "write --gres=shard:N, N of the parts that the site has made of a GPU, or hotpot's --gpu-mem=8G; shard:1 is the least part";
    Finding::new(("gpus-shared", Refused), ask.span.clone(), happens, instead).with(edit)
}

/// A number that is none, or stands in the wrong place.
fn number(ask: &Ask<'_>) -> Option<Finding> {
    let at =
        |words: String| ask.is_exact.then(|| Edit::new(ask.span.clone(), prefixed(ask, &words)));
    let is_type = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic()) || mig::looks_like_one(word)
    };
    let refused = |instead: &str, edit| {
        let happens = format!("{} is no number of GPUs: {INVALID}", shown(ask));
        Some(
            Finding::new(("gpus-no-number", Refused), ask.span.clone(), happens, instead)
                .with(edit),
        )
    };
    match *ask.words.as_slice() {
        [] => None,
        [count] if is_number(count) => None,
        [kind] if is_type(kind) && ask.is_gres() => None,
        [kind] if is_type(kind) => Some(
            Finding::new(
                ("gpus-no-number", Better),
                ask.span.clone(),
                "sbatch's manual wants a number here, [type:]number: a type alone is for --gres",
                format!("write {kind}:1"),
            )
            .with(at(format!("{kind}:1"))),
        ),
        [kind, count] if is_type(kind) && is_number(count) => None,
        [count, kind] if is_number(count) && is_type(kind) => {
            refused("write the type first, as in a100:2", at(format!("{kind}:{count}")))
        }
        _ if ask.words.iter().any(|word| is_fraction(word)) => {
            let happens = format!("GPUs are counted whole: {INVALID}");
            let instead = "for a part of a GPU write --gres=shard:N where the cluster has shards, or hotpot's --gpu-mem=8G, --gpu-compute=50%";
            Some(Finding::new(("gpu-fraction", Refused), ask.span.clone(), happens, instead))
        }
        _ => refused("write N or type:N, such as 2 or a100:2", None),
    }
}

fn prefixed(ask: &Ask<'_>, words: &str) -> String {
    if ask.is_gres() { format!("{}:{words}", ask.name) } else { words.to_owned() }
}

fn shown(ask: &Ask<'_>) -> String {
    format!("`{}`", prefixed(ask, &ask.words.join(":")))
}

fn is_fraction(word: &str) -> bool {
    word.contains('.') && word.parse::<f64>().is_ok()
}

/// A type that is, or looks like, a MIG profile; driver plugins put the card before it: `a100_1g.10gb`.
fn typed(ask: &Ask<'_>, card: Option<&Card>) -> Option<Finding> {
    let kind = ask.words.first().filter(|word| !is_number(word))?;
    let profile = kind.rsplit('_').next().unwrap_or(kind);
    of_profile(profile, ask.span.clone(), card)
}

/// A profile that no card has, or not the one that is named.
pub(super) fn of_profile(name: &str, span: Range<usize>, card: Option<&Card>) -> Option<Finding> {
    if !mig::looks_like_one(name) {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    if !mig::exists(&lower) {
        let happens = format!(
            "no card has a MIG profile {name}: sbatch answers `Requested node configuration is not available`, unless the site has called a type so"
        );
        let instead = mig::nearest(&lower);
        return Some(Finding::new(("mig-unknown", Refused), span, happens, instead));
    }
    let card = card.filter(|card| !mig::has(card.mig(), &lower))?;
    let happens = format!(
        "{} has no MIG profile {lower}: no node of these cards ever has one to give",
        card.name()
    );
    Some(Finding::new(("mig-not-on-card", Refused), span, happens, mig::shown(card.mig())))
}
