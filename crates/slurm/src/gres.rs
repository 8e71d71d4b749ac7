//! GRES as Slurm prints and reads it: what a job has been given on a node, and which devices a node's
//! gres.conf names in which order.

use std::collections::BTreeMap;

use crate::hostlist;

/// So much of one kind of GRES, as a node offers or a job asks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount<'a> {
    /// `gpu`, `shard` or `mps`.
    pub name: &'a str,
    /// Its type, such as `a100` or `1g.10gb`.
    pub kind: Option<&'a str>,
    /// How many; 1 where none is said (slurm.conf manual, `Gres`; sbatch manual, `--gres`).
    pub count: u64,
}

/// Whether GRES of this name are GPUs, or parts of them.
pub(crate) fn is_of_gpus(name: &str) -> bool {
    matches!(name, "gpu" | "shard" | "mps")
}

/// Reads what nodes offer, such as `gpu:a100:2(S:0-1),shard:634`, and what jobs ask: `gres:gpu:a100:2` in 22.05,
/// `gres/gpu:a100=2` later.
pub fn amounts(text: &str) -> impl Iterator<Item = Amount<'_>> {
    words(text).into_iter().filter_map(|word| {
        let word = word.trim().split('(').next().unwrap_or_default();
        let word =
            word.strip_prefix("gres").map_or(word, |rest| rest.trim_start_matches([':', '/']));
        let mut parts: Vec<&str> = word.split([':', '=']).collect();
        let count = parts.last().and_then(|last| last.parse().ok());
        if count.is_some() {
            parts.pop();
        }
        let name = parts.first().copied().filter(|name| !name.is_empty())?;
        Some(Amount { name, kind: parts.get(1).copied(), count: count.unwrap_or(1) })
    })
}

/// What a job has been given of one kind of GRES on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    /// `gpu`, `shard` or `mps`.
    pub name: String,
    /// Its type, such as `a100` or `1g.10gb`.
    pub kind: Option<String>,
    /// How many of each device, by its position in gres.conf: 1 for whole ones, 0 where Slurm does not say.
    pub of_device: BTreeMap<u32, u64>,
}

/// Reads what `scontrol show job -d` says of one node, such as `gpu:a100:2(IDX:0-1),shard:3(IDX:2)`.
///
/// From 26.05 on shards of several devices are printed as `shard:8(-/5,5/5,3/5)`: held of each device.
pub fn booked(text: &str) -> Vec<Booked> {
    words(text).into_iter().filter_map(one).collect()
}

fn one(word: &str) -> Option<Booked> {
    let (ask, detail) = word.trim().strip_suffix(')')?.split_once('(')?;
    let mut parts = ask.split(':');
    let name = parts.next()?.to_owned();
    let rest: Vec<&str> = parts.collect();
    let (kind, count) = match rest.as_slice() {
        [count] => (None, count.parse::<u64>().ok()?),
        [kind, count] => (Some((*kind).to_owned()), count.parse().ok()?),
        _ => return None,
    };
    let of_device = match detail.strip_prefix("IDX:") {
        Some(list) => {
            let devices = hostlist::numbers(list)?;
            // Of several that are shared Slurm gives to one job only where
            // SelectTypeParameters=MULTIPLE_SHARING_GRES_PJ, and does not say here how much of each.
            let each = match (name.as_str(), devices.len()) {
                ("gpu", _) => 1,
                (_, 1) => count,
                _ => 0,
            };
            devices.into_iter().map(|device| (device, each)).collect()
        }
        None => {
            let held = |part: &str| part.split('/').next().and_then(|held| held.parse().ok());
            let held = detail.split(',').map(|part| held(part).unwrap_or(0));
            (0..).zip(held).filter(|(_, held)| *held > 0).collect()
        }
    };
    Some(Booked { name, kind, of_device })
}

/// Words between commas; those inside of brackets do not part them.
pub(crate) fn words(text: &str) -> Vec<&str> {
    let (mut words, mut depth, mut from) = (Vec::new(), 0_i32, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                words.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[from..]);
    words
}

/// One device of a node's gres.conf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLine {
    /// Its type, such as `a100` or `1g.10gb`.
    pub kind: Option<String>,
    /// Number of the device file of its GPU, `/dev/nvidia…`.
    pub minor: Option<u32>,
    /// Whether the line names several files: a MIG instance.
    pub is_instance: bool,
    /// The file that no other device has: a card's, or the last of an instance, that of its compute instance.
    pub file: String,
}

/// The GPUs that gres.conf names for a node, in its order; empty if it leaves them to be detected. Slurm may
/// count them in another: see [`counted`].
pub fn devices_of(conf: &str, node: &str) -> Vec<DeviceLine> {
    let lines = conf.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.flat_map(|line| line_devices(line, node)).collect()
}

/// Devices in the order in which Slurm counts them: by their types as the node's `Gres=` has them, and among
/// those of one type as in gres.conf (measured, 22.05).
///
/// * `gres` — such as `gpu:a100:3,gpu:1g.10gb:7,shard:951`.
pub fn counted(mut devices: Vec<DeviceLine>, gres: &str) -> Vec<DeviceLine> {
    let types: Vec<&str> =
        amounts(gres).filter(|one| one.name == "gpu").filter_map(|one| one.kind).collect();
    let place = |device: &DeviceLine| {
        let kind = device.kind.as_deref().unwrap_or_default();
        types.iter().position(|one| *one == kind).unwrap_or(types.len())
    };
    devices.sort_by_key(place);
    devices
}

fn line_devices(line: &str, node: &str) -> Vec<DeviceLine> {
    let words = line.split_whitespace().filter_map(|word| word.split_once('='));
    let words: BTreeMap<String, &str> =
        words.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    let get = |name: &str| words.get(name).copied();
    let is_ours = get("nodename").is_none_or(|list| hostlist::contains(list, node));
    if get("name") != Some("gpu") || !is_ours {
        return Vec::new();
    }
    let kind = get("type").map(str::to_owned);
    let line = |of_card: &str, own: Option<&str>| DeviceLine {
        kind: kind.clone(),
        minor: trailing_number(of_card),
        is_instance: own.is_some(),
        file: own.unwrap_or(of_card).to_owned(),
    };
    match (get("file"), get("multiplefiles")) {
        (Some(files), _) => hostlist::expand(files).iter().map(|file| line(file, None)).collect(),
        (None, Some(files)) => {
            let files: Vec<&str> = files.split(',').collect();
            vec![line(files.first().unwrap_or(&""), files.last().copied())]
        }
        (None, None) => Vec::new(),
    }
}

fn trailing_number(text: &str) -> Option<u32> {
    let digits = text.len() - text.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    text[text.len() - digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_holds_is_read_from_old_and_new_releases() {
        let held = booked("gpu:a100:2(IDX:1-2),shard:3(IDX:0)");
        assert_eq!((held[0].name.as_str(), held[0].kind.as_deref()), ("gpu", Some("a100")));
        assert_eq!(held[0].of_device, BTreeMap::from([(1, 1), (2, 1)]));
        assert_eq!(held[1].of_device, BTreeMap::from([(0, 3)]));
        let held = booked("shard:8(0/5,5/5,3/5,0/5)");
        assert_eq!(held[0].of_device, BTreeMap::from([(1, 5), (2, 3)]));
        assert_eq!(booked("gpu:2(IDX:0,3)")[0].of_device, BTreeMap::from([(0, 1), (3, 1)]));
        assert_eq!(booked("shard:8(IDX:0,3)")[0].of_device, BTreeMap::from([(0, 0), (3, 0)]));
        assert!(booked("").is_empty() && booked("gpu:a100:x(IDX:0)").is_empty());
    }

    #[test]
    fn amounts_are_read_as_nodes_offer_and_as_jobs_ask_them() {
        let of = |text| {
            let found = amounts(text).map(|one| (one.name, one.kind.unwrap_or("-"), one.count));
            found.collect::<Vec<_>>()
        };
        let offered = [("gpu", "a100", 2), ("shard", "-", 634)];
        assert_eq!(of("gpu:a100:2(S:0,2),shard:634"), offered);
        assert_eq!(of("gres:gpu:a100:2,gres:shard:634"), offered);
        assert_eq!(of("gres/gpu:a100=2,gres/shard=634"), offered);
        assert_eq!(of("gres:gpu"), [("gpu", "-", 1)]);
        assert_eq!(of("gpu:1g.10gb"), [("gpu", "1g.10gb", 1)]);
        assert!(of("").is_empty() && of("(null)").is_empty());
    }

    #[test]
    fn devices_are_counted_in_the_order_of_the_file() {
        let conf = "NodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1] # whole\n\
                    NodeName=n3 Name=gpu Type=a100 File=/dev/nvidia7\n\
                    Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia2,/dev/nvidia-caps/nvidia-cap12\n\
                    NodeName=n1 Name=shard Count=8\n";
        let found = devices_of(conf, "n1");
        let minors: Vec<_> = found.iter().map(|line| (line.minor, line.is_instance)).collect();
        assert_eq!(minors, [(Some(0), false), (Some(1), false), (Some(2), true)]);
        assert!(devices_of("AutoDetect=nvml", "n1").is_empty());
        let minors = |gres| {
            let found = counted(devices_of(conf, "n1"), gres);
            found.iter().map(|line| line.minor.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(minors("gpu:1g.10gb:1,gpu:a100:2(S:0),shard:8"), [2, 0, 1]);
        assert_eq!(minors("gpu:a100:2,gpu:1g.10gb:1"), [0, 1, 2]);
    }
}
