//! Parts of GPUs that a script asks for: shards and MPS, alone and beside whole GPUs.

use formats::placed::Placed;

use super::ask::{Ask, is_number};
use crate::finding::Severity::{Refused, WaitsForEver};
use crate::finding::{Edit, Finding};
use crate::site::Site;

/// MPS of a GPU where no file of the call says it (gres.conf manual).
const MPS_OF_CARD: u64 = 100;

pub(super) fn check(asks: &[Ask<'_>], options: &[Placed], site: &Site) -> Vec<Finding> {
    let is_part = |ask: &&Ask<'_>| ["shard", "mps"].contains(&ask.name) && ask.count() != Some(0);
    let is_gpu =
        |ask: &Ask<'_>| ask.name == "gpu" && ask.folk().is_none() && ask.count() != Some(0);
    let has_gpu = asks.iter().any(is_gpu);
    let mut found = Vec::new();
    for ask in asks.iter().filter(is_part) {
        if has_gpu {
            found.push(beside(ask));
        }
        found.extend(number(ask).or_else(|| over(ask, site)));
        found.extend(options.iter().rfind(|option| option.name == "exclusive").and_then(exclusive));
    }
    found.dedup_by(|one, other| (one.name, &one.span) == (other.name, &other.span));
    found
}

fn beside(ask: &Ask<'_>) -> Finding {
    Finding::new(
        ("gpu-beside-part", Refused),
        ask.span.clone(),
        format!(
            "one request for whole GPUs and for {}: Slurm answers `Invalid generic resource (gres) specification`",
            ask.name
        ),
        format!("keep one of the two; {} already is a part of a GPU", ask.name),
    )
}

/// `shard:a100:2`, and what is no number.
fn number(ask: &Ask<'_>) -> Option<Finding> {
    let name = ask.name;
    match *ask.words.as_slice() {
        [] => None,
        [count] if is_number(count) => None,
        [_, count] if is_number(count) => {
            let happens = format!(
                "{name} has no types: the job starts, and its steps end with `Unable to create step: Invalid generic resource (gres) specification`"
            );
            let edit = ask.is_exact.then(|| Edit::new(ask.span.clone(), format!("{name}:{count}")));
            let instead =
                format!("write {name}:{count}, and choose nodes by --constraint or --partition");
            Some(
                Finding::new(("part-with-type", Refused), ask.span.clone(), happens, instead)
                    .with(edit),
            )
        }
        _ => {
            let happens = format!(
                "`{}` is no number: Slurm answers `Invalid generic resource (gres) specification`",
                ask.words.join(":")
            );
            let instead = format!("write {name}:N with a whole number");
            Some(Finding::new(("gpus-no-number", Refused), ask.span.clone(), happens, instead))
        }
    }
}

/// More than one card has.
fn over(ask: &Ask<'_>, site: &Site) -> Option<Finding> {
    let asked = ask.count()?;
    if site.may_take_several {
        return None;
    }
    let (most, name, of) = match ask.name {
        "shard" => (site.shards_of_card?, "shards-over-one-gpu", "shards"),
        _ => (site.mps_of_card.unwrap_or(MPS_OF_CARD), "mps-over-one-gpu", "percent of MPS"),
    };
    (asked > most).then(|| {
        let happens = format!("one GPU has {most} {of}, and a job's come from one GPU: it is pending for ever, Reason=Resources; from Slurm 23.11 on it is refused unless SelectTypeParameters has MULTIPLE_SHARING_GRES_PJ");
        let instead = format!("ask at most {}:{most}, or whole GPUs with --gpus=N", ask.name);
        Finding::new((name, WaitsForEver), ask.span.clone(), happens, instead)
    })
}

/// `--exclusive=user` and its like leave the rest of the node to others.
fn exclusive(option: &Placed) -> Option<Finding> {
    option.value.is_empty().then(|| Finding::new(
        ("exclusive-with-part", WaitsForEver),
        option.span.clone(),
        "--exclusive wants whole nodes, and a share is a part of a GPU: the job is pending for ever (Slurm 22.05)",
        "leave out --exclusive, or ask whole GPUs with --gpus=N",
    ))
}
