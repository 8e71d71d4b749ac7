//! Whole GPUs and MIG instances that a script asks for: numbers, types, and what goes round by word of mouth.

use std::ops::Range;

use formats::placed::Placed;

use super::ask::{Ask, is_number};
use crate::card::Card;
use crate::finding::Severity::{Better, Refused};
use crate::finding::{Edit, Finding};
use crate::mig;

const UNAVAILABLE: &str = "sbatch answers `Requested node configuration is not available`";
const INVALID: &str = "Slurm answers `Invalid generic resource (gres) specification`";

/// * `options` — all of the job, and those of each of its steps.
pub(super) fn check(
    asks: &[Ask<'_>],
    options: (&[Placed], &[Vec<Placed>]),
    card: Option<&Card>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for ask in asks {
        if let Some(word) = ask.folk() {
            found.push(folk(ask, word).with(shards(ask, options)));
        } else if ask.name == "gpu" {
            found.extend(number(ask).or_else(|| typed(ask, card)));
        } else {
            found.extend(misnamed(ask));
        }
    }
    found
}

/// `--gpus=1:shared`.
fn folk(ask: &Ask<'_>, word: &str) -> Finding {
    let happens = format!(
        "no version of Slurm knows it: {INVALID}, or takes `{word}` for a type that no node has"
    );
    let instead = match word {
        "mps" => {
            "write --gres=mps:N, N percent of a GPU where the site offers MPS, or hotpot's --gpu-compute=50%"
        }
        _ => {
            "write --gres=shard:N, N of the parts that the site has made of a GPU, or hotpot's --gpu-mem=8G; shard:1 is the least part"
        }
    };
    Finding::new(("gpus-shared", Refused), ask.span.clone(), happens, instead)
}

/// Of one GPU the least part is meant, if the job says nothing else of GPUs: whatever else it says may not go with a part.
fn shards(ask: &Ask<'_>, (job, steps): (&[Placed], &[Vec<Placed>])) -> Option<Edit> {
    let of_gpus = |option: &&Placed| {
        ["gres", "exclusive"].contains(&option.name) || option.name.contains("gpu")
    };
    let is_alone =
        job.iter().chain(steps.iter().flatten()).filter(of_gpus).all(|one| one == ask.option)
            && !ask.option.value.contains(',');
    let is_plain = ["gres", "gpus", "gpus-per-node"].contains(&ask.option.name) && ask.is_exact;
    let count = match *ask.words.as_slice() {
        ["shard" | "shards", count] if is_number(count) && count != "0" => count,
        ["mps", _] | [_, "mps"] => return None,
        [count] if is_number(count) && count != "1" => return None,
        [] | [_] | [_, "1"] | ["1", _] => "1",
        _ => return None,
    };
    (is_alone && is_plain).then(|| match ask.is_gres() {
        true => Edit::new(ask.span.clone(), format!("shard:{count}")),
        false => Edit::new(ask.option.span.clone(), format!("--gres=shard:{count}")),
    })
}

/// `--gres=gpus:1`, `--gres=GPU:1`, `--gres=2`.
fn misnamed(ask: &Ask<'_>) -> Option<Finding> {
    let lower = ask.name.to_ascii_lowercase();
    let meant = match lower.as_str() {
        "gpu" | "gpus" => Some("gpu"),
        "shard" | "shards" => Some("shard"),
        "mps" => Some("mps"),
        _ => None,
    };
    let meant = meant.filter(|meant| *meant != ask.name);
    let instead = match meant {
        Some(meant) => format!("write {meant}, in small letters"),
        None if is_number(ask.name) && ask.words.is_empty() => {
            format!("write --gres=gpu:{0}, or --gpus={0}", ask.name)
        }
        None => return None,
    };
    let start = ask.span.start;
    let edit = meant.filter(|_| ask.is_exact);
    let edit = edit.map(|meant| Edit::new(start..start + ask.name.len(), meant));
    let happens = format!("no resource is called {}: {INVALID}", ask.name);
    Some(Finding::new(("gres-name", Refused), ask.span.clone(), happens, instead).with(edit))
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
        ["gpu" | "gpus", ref rest @ ..] if !ask.is_gres() => {
            let instead = format!("write --{}={}", ask.option.name, or_one(rest));
            let happens =
                format!("Slurm takes `gpu` for a type here, which no node has: {UNAVAILABLE}");
            let finding =
                Finding::new(("gpus-no-number", Refused), ask.span.clone(), happens, instead);
            Some(finding.with(at(or_one(rest))))
        }
        [kind] if is_type(kind) => Some(
            Finding::new(
                ("gpus-no-number", Better),
                ask.span.clone(),
                "sbatch's manual wants a number here, [type:]number: a type alone is for --gres",
                format!("write {kind}:1"),
            )
            .with(at(format!("{kind}:1")).filter(|_| names_a_card(kind))),
        ),
        [kind, count] if is_type(kind) && is_number(count) => None,
        [count, kind] if is_number(count) && is_type(kind) => {
            let edit = at(format!("{kind}:{count}")).filter(|_| names_a_card(kind));
            refused("write the type first, as in a100:2", edit)
        }
        _ if ask.words.iter().any(|word| is_fraction(word)) => {
            let happens = format!("GPUs are counted whole: {INVALID}");
            let instead = "for a part of a GPU write --gres=shard:N where the cluster has shards, or hotpot's --gpu-mem=8G, --gpu-compute=50%";
            Some(Finding::new(("gpu-fraction", Refused), ask.span.clone(), happens, instead))
        }
        _ => refused("write N or type:N, such as 2 or a100:2", None),
    }
}

fn or_one(words: &[&str]) -> String {
    if words.is_empty() { "1".to_owned() } else { words.join(":") }
}

/// Whether a type is one beyond doubt: cards have a number in their name, and words such as `two` or `exclusive` have none.
fn names_a_card(kind: &str) -> bool {
    kind.contains(|c: char| c.is_ascii_digit()) && !kind.contains('=')
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
    let refusal = format!("{UNAVAILABLE}, unless the site has called a type so");
    of_profile(profile, (ask.span.clone(), &refusal), card)
        .or_else(|| too_many(ask, profile, card?))
}

/// More instances of a node than its cards hold.
fn too_many(ask: &Ask<'_>, profile: &str, card: &Card) -> Option<Finding> {
    let is_of_node = ["gres", "gpus-per-node"].contains(&ask.option.name);
    let most = mig::most(card.mig()?, profile, card.count()).filter(|_| is_of_node)?;
    let count = ask.count().filter(|count| *count > most)?;
    let happens = format!(
        "{count} instances of {profile} are asked of {} x {} on each node, which hold at most {most}: {UNAVAILABLE}",
        card.count(),
        card.name()
    );
    let instead = format!("ask at most {most} of a node, and more by --nodes");
    Some(Finding::new(("mig-too-many", Refused), ask.span.clone(), happens, instead))
}

/// A profile that no card has, or not the one that is named.
///
/// * `refusal` — how a request for one that no card has ends.
pub(super) fn of_profile(
    name: &str,
    (span, refusal): (Range<usize>, &str),
    card: Option<&Card>,
) -> Option<Finding> {
    if !mig::looks_like_one(name) {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    if !mig::exists(&lower) {
        let happens = format!("no card has a MIG profile {name}: {refusal}");
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
