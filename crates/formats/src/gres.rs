//! What Slurm's own options ask of GPUs: `--gpus`, `--gpus-per-node`, `--gpus-per-task`, `--gres`.

use crate::demand::GPUS_MAX;
use crate::directives::Directives;
use crate::error::{Complaint, ReadError, quote};

/// Percent of one GPU that `--gres=mps` counts in: `Count` is 100 per GPU by default (gres.conf
/// manual).
pub(crate) const MPS_PER_GPU: u32 = 100;

/// How a script's tasks are spread, as far as GPUs per member depend on it.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    /// Members of the gang: nodes.
    pub(crate) members: u32,
    /// Tasks on each node.
    pub(crate) tasks_per_member: u32,
}

/// What is asked for on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// GPUs, perhaps of one type.
    Gpus {
        /// The type in lower case: a GPU model or a MIG profile.
        model: Option<String>,
        /// How many; 0 means none.
        count: u32,
    },
    /// Shards of one GPU.
    Shards(u32),
    /// Percent of one GPU under MPS.
    Mps(u32),
}

/// What Slurm's own options ask for per member, and the option that said so.
pub(crate) fn asked(
    directives: &Directives<'_>,
    spread: Spread,
    warnings: &mut Vec<String>,
) -> Result<Option<(&'static str, Asked)>, ReadError> {
    let mut found = counts(directives, spread)?;
    let gres = directives.read("gres", |text| gres(text, warnings))?.unwrap_or_default();
    found.extend(gres.into_iter().map(|asked| ("gres", asked)));
    let Some((first, asked)) = found.pop() else {
        return Ok(None);
    };
    let Some((second, _)) = found.iter().find(|(_, other)| *other != asked) else {
        return Ok(Some((first, asked)));
    };
    let complaint = if *second == first {
        Complaint::new("mixes whole GPUs, shards or MPS, which Slurm refuses", "keep one")
    } else {
        let what = format!("and --{first} ask for different GPUs on each node");
        Complaint::new(what, "keep one of the two")
    };
    Err(directives.complain(second, complaint))
}

/// What the options other than `--gres` ask for per member.
fn counts(
    directives: &Directives<'_>,
    spread: Spread,
) -> Result<Vec<(&'static str, Asked)>, ReadError> {
    let mut found = Vec::new();
    for option in ["gpus-per-node", "gpus-per-task", "gpus"] {
        let read = |text: &str| typed_count(text, false);
        let Some((model, count)) = directives.read(option, read)? else {
            continue;
        };
        let count = match option {
            "gpus" => per_member(count, spread.members),
            "gpus-per-task" => few(count.saturating_mul(spread.tasks_per_member)),
            _ => few(count),
        };
        let count = count.map_err(|complaint| directives.complain(option, complaint))?;
        found.push((option, Asked::Gpus { model, count }));
    }
    Ok(found)
}

fn per_member(count: u32, members: u32) -> Result<u32, Complaint> {
    if !count.is_multiple_of(members) {
        let what = format!("{count} GPUs cannot be spread evenly over {members} nodes");
        return Err(Complaint::new(what, "write --gpus-per-node=N instead"));
    }
    few(count / members)
}

/// GPUs that one node may have.
fn few(count: u32) -> Result<u32, Complaint> {
    if count <= GPUS_MAX {
        return Ok(count);
    }
    let what = format!("asks for more than {GPUS_MAX} GPUs on one node");
    Err(Complaint::new(what, "ask for fewer, or for more --nodes"))
}

/// A number written in digits alone.
fn number(word: &str) -> Option<u32> {
    let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if digits { word.parse().ok() } else { None }
}

/// `[type:]N`, as in `--gpus=a100:2`. In `--gres` a type alone means one.
fn typed_count(text: &str, bare_type: bool) -> Result<(Option<String>, u32), Complaint> {
    if text.contains(',') {
        let what = format!("{} asks for several types at once", quote(text));
        return Err(Complaint::new(what, "ask for one type, or for a number without type"));
    }
    let parts: Vec<_> = text.split(':').collect();
    if parts.contains(&"shared") {
        return Err(folk(text));
    }
    let typed = |word: &str, count| Ok((Some(word.to_ascii_lowercase()), count));
    let is_type = |word: &str| {
        word.starts_with(|c: char| c.is_alphanumeric()) && word.contains(char::is_alphabetic)
    };
    match *parts.as_slice() {
        [word] if bare_type && is_type(word) => typed(word, 1),
        [word] => number(word).map(|count| (None, count)).ok_or_else(|| no_count(text)),
        [word, count] if is_type(word) => match number(count) {
            Some(count) => typed(word, count),
            None => Err(no_count(text)),
        },
        _ => Err(no_count(text)),
    }
}

fn no_count(text: &str) -> Complaint {
    let what = format!("{} is not a number of GPUs", quote(text));
    Complaint::new(what, "give N or type:N, such as 2 or a100:2")
}

/// The request that is passed on by word of mouth and exists in no Slurm version.
fn folk(text: &str) -> Complaint {
    Complaint::new(
        format!("{} exists in no version of Slurm", quote(text)),
        "write --gres=shard:N on a cluster with shards, or here --gpu-mem=2G --gpu-share=auto",
    )
}

/// The items of `--gres` that are GPUs or parts of one; others are named in a warning.
fn gres(text: &str, warnings: &mut Vec<String>) -> Result<Vec<Asked>, Complaint> {
    let mut found = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !["", "none"].contains(item)) {
        let item = item.strip_prefix("gres:").or(item.strip_prefix("gres/")).unwrap_or(item);
        let (name, rest) = item.split_once(':').unwrap_or((item, "1"));
        match name {
            "gpu" => {
                let (model, count) = typed_count(rest, true)?;
                found.push(Asked::Gpus { model, count: few(count)? });
            }
            "shard" => found.push(Asked::Shards(part(item, rest, u32::from(u16::MAX))?)),
            "mps" => found.push(Asked::Mps(part(item, rest, MPS_PER_GPU)?)),
            _ => warnings.push(format!("--gres: {} is not booked", quote(item))),
        }
    }
    Ok(found)
}

/// The number of shards or MPS percents, which never span GPUs.
fn part(item: &str, count: &str, most: u32) -> Result<u32, Complaint> {
    match count.parse::<u32>() {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        Ok(_) => {
            let what = format!("{} is more than one GPU has, or nothing", quote(item));
            Err(Complaint::new(what, format!("give 1 to {most}: a part lies on one GPU")))
        }
        Err(_) => {
            let what = format!("{} is not a number of parts", quote(item));
            Err(Complaint::new(what, "give shard:N or mps:N, without a type"))
        }
    }
}
