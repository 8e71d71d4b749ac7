//! One node's part of slurm.conf and gres.conf, changed. Pure: text in, text out.

use std::collections::BTreeMap;

use super::lines;
use crate::gres::{self, Amount};

/// Why a file cannot be changed for one node alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditRefusal {
    /// A line that counts for every node.
    #[error(
        "line {0} names no node and so counts for all; put NodeName= before it, or say GresConf=own in hotpot.conf if each node has a file to itself"
    )]
    ForAll(usize),
    /// Slurm finds the GPUs by itself.
    #[error(
        "line {0} leaves the node's GPUs to AutoDetect; name them (`hotpot slurm conf` prints the lines)"
    )]
    Detected(usize),
    /// The node has `gres/mps`.
    #[error("line {0} offers mps, which hotpot does not book; use gpu and shard")]
    Mps(usize),
}

/// slurm.conf with another `Gres=` of a node; `None` if no line names the node.
///
/// A line of several nodes becomes two.
pub fn with_gres(text: &str, node: &str, gres: &str) -> Option<String> {
    let mut found = false;
    let mut out = String::with_capacity(text.len());
    for line in lines::logical(text) {
        if found || !lines::names(&line, node) {
            out.push_str(&line);
            continue;
        }
        found = true;
        if lines::value(&line, "Gres") == Some(gres) {
            out.push_str(&line);
            continue;
        }
        let (one, rest) = lines::split(&line, node);
        out.push_str(&lines::with(&one, "Gres", gres));
        out.push_str(rest.as_deref().unwrap_or_default());
    }
    found.then_some(out)
}

/// `Gres=` with other GPUs and shards; what else the node has stays.
pub fn merged(old: &str, gpus: &str) -> String {
    let others = gres::words(old).into_iter().filter(|word| !gres::is_of_gpus(name(word)));
    gpus.split(',').chain(others).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(",")
}

fn name(word: &str) -> &str {
    word.split([':', '(']).next().unwrap_or_default()
}

/// Whether two `Gres=` offer the same: GPUs by type, all else by name.
pub fn same(one: &str, other: &str) -> bool {
    counts(one) == counts(other)
}

/// How many of what a `Gres=` offers, by name and, for GPUs, type.
pub fn counts(gres: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for Amount { name, kind, count } in gres::amounts(gres).filter(|one| one.count > 0) {
        let kind = kind.filter(|_| name == "gpu");
        let key = kind.map_or_else(|| name.to_owned(), |kind| format!("{name}:{kind}"));
        *counts.entry(key).or_default() += count;
    }
    counts
}

/// What `slurmd -G` finds: `… Gres Name=gpu Type=a100 Count=1 … File=…`, counted as by [`counts`]. Of an instance
/// it prints a line for each of its files (measured, 22.05); that of its GPU counts.
pub fn told(text: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let is_capability =
        |line: &&str| lines::value(line, "File").is_some_and(|file| file.contains("/nvidia-cap"));
    let lines = text.lines().filter(|line| line.contains("Gres Name="));
    for line in lines.filter(|line| !is_capability(line)) {
        let count = lines::value(line, "Count").and_then(|count| count.parse::<u64>().ok());
        let name = lines::value(line, "Name").unwrap_or_default();
        let kind = lines::value(line, "Type").filter(|kind| *kind != "(null)" && name == "gpu");
        let key = kind.map_or_else(|| name.to_owned(), |kind| format!("{name}:{kind}"));
        *found.entry(key).or_default() += count.unwrap_or(1);
    }
    found.retain(|_, count| *count > 0);
    found
}

/// What the lines of gres.conf say of one node.
enum About {
    /// Nothing that matters here.
    Else,
    /// Its GPUs or shards.
    Devices,
}

fn about(line: &str, number: usize, node: &str, own: bool) -> Result<About, EditRefusal> {
    let named = lines::value(line, "NodeName").is_some();
    if named && !lines::names(line, node) {
        return Ok(About::Else);
    }
    let detect = lines::value(line, "AutoDetect");
    if detect.is_some_and(|how| !how.eq_ignore_ascii_case("off")) {
        return Err(EditRefusal::Detected(number));
    }
    match lines::value(line, "Name").map(str::to_ascii_lowercase).as_deref() {
        Some("mps") => Err(EditRefusal::Mps(number)),
        Some("gpu" | "shard") if named || own => Ok(About::Devices),
        Some("gpu" | "shard") => Err(EditRefusal::ForAll(number)),
        _ => Ok(About::Else),
    }
}

/// The lines of gres.conf with a node's GPUs and shards, as they would stand for it alone.
///
/// * `own` — the file is this node's alone, lines without a name are its own.
///
/// # Errors
/// Lines that cannot be changed for one node.
pub fn devices(text: &str, node: &str, own: bool) -> Result<String, EditRefusal> {
    let mut out = String::new();
    for (line, number) in lines::logical(text).iter().zip(1..) {
        if matches!(about(line, number, node, own)?, About::Devices) {
            let (one, _) = lines::split(line, node);
            out.push_str(one.trim_end());
            out.push('\n');
        }
    }
    Ok(out)
}

/// gres.conf with other lines of a node's GPUs and shards.
///
/// * `fresh` — the lines.
/// * `own` — as for [`devices`].
///
/// # Errors
/// Lines that cannot be changed for one node.
pub fn with_devices(text: &str, node: &str, fresh: &str, own: bool) -> Result<String, EditRefusal> {
    if devices(text, node, own)? == fresh {
        return Ok(text.to_owned());
    }
    let (mut out, mut at) = (String::with_capacity(text.len()), None);
    for (line, number) in lines::logical(text).iter().zip(1..) {
        if matches!(about(line, number, node, own)?, About::Devices) {
            at.get_or_insert(out.len());
            let named = lines::value(line, "NodeName").is_some();
            out.push_str(lines::split(line, node).1.filter(|_| named).as_deref().unwrap_or(""));
        } else {
            out.push_str(line);
        }
    }
    if at.is_none() && !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    out.insert_str(at.unwrap_or(out.len()), fresh);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLURM: &str = "# ours\nClusterName=x\n\
        NodeName=n[1-3] NodeAddr=10.0.0.[1-3] CPUs=4 Gres=gpu:a100:4,fpga:1 # rack 1\n\
        PartitionName=p Nodes=n[1-3]\n";

    #[test]
    fn only_the_nodes_own_gres_is_changed() {
        let changed = with_gres(SLURM, "n2", "gpu:1g.10gb:7").unwrap();
        let line = "NodeName=n[1-3] NodeAddr=10.0.0.[1-3] CPUs=4 Gres=gpu:a100:4,fpga:1 # rack 1\n";
        let lines = "NodeName=n2 NodeAddr=10.0.0.2 CPUs=4 Gres=gpu:1g.10gb:7\n\
            NodeName=n[1,3] NodeAddr=10.0.0.[1,3] CPUs=4 Gres=gpu:a100:4,fpga:1 # rack 1\n";
        assert_eq!(changed, SLURM.replace(line, lines));
        assert_eq!(with_gres(&changed, "n2", "gpu:1g.10gb:7").as_ref(), Some(&changed));
        assert_eq!(with_gres(SLURM, "n2", "gpu:a100:4,fpga:1").as_deref(), Some(SLURM));
        assert_eq!(with_gres(SLURM, "n4", "gpu:1"), None);
        let back = with_gres(&changed, "n2", "gpu:a100:4").unwrap();
        assert_eq!(back, changed.replace("gpu:1g.10gb:7", "gpu:a100:4"));
    }

    #[test]
    fn gres_are_merged_and_compared_by_what_they_offer() {
        assert_eq!(merged("gpu:a100:4,fpga:1,shard:80", "gpu:x:1"), "gpu:x:1,fpga:1");
        assert_eq!(merged("gpu:a100:4(S:0,1),nic:2(S:0)", "gpu:x:1"), "gpu:x:1,nic:2(S:0)");
        assert!(same("gpu:a100:4(S:0-1),shard:a100:80(S:0)", "shard:80,gpu:a100:2,gpu:a100:2"));
        assert!(!same("gpu:a100:4", "gpu:a100:3") && !same("gpu:a100:1", "gpu:b:1"));
    }

    #[test]
    fn what_slurmd_finds_is_counted_by_gpu() {
        let text = "slurmd-n1: Gres Name=shard Type=1g.10gb Count=0 Index=0 ID=1 File=/dev/nvidia0 (null)\n\
            slurmd-n1: Gres Name=gpu Type=1g.10gb Count=1 Index=0 ID=7 File=/dev/nvidia0 (null)\n\
            slurmd-n1: Gres Name=gpu Type=1g.10gb Count=1 Index=3 ID=7 File=/dev/nvidia-caps/nvidia-cap3 (null)\n\
            slurmd-n1: Gres Name=shard Type=a100 Count=8 Index=4 ID=1 File=/dev/nvidia4 (null)\n\
            slurmd-n1: Gres Name=gpu Type=a100 Count=1 Index=4 ID=7 File=/dev/nvidia4 (null)\n";
        assert_eq!(told(text), counts("gpu:1g.10gb:1,gpu:a100:1,shard:8"));
    }

    #[test]
    fn only_the_nodes_own_devices_are_changed() {
        let text = "# head\nNodeName=n[1-3] Name=gpu Type=a100 File=/dev/nvidia[0-3] # all\n\
            Name=fpga File=/dev/f0\nNodeName=n[1-3] Name=shard Count=8\n";
        let old = "NodeName=n2 Name=gpu Type=a100 File=/dev/nvidia[0-3]\n\
            NodeName=n2 Name=shard Count=8\n";
        assert_eq!(devices(text, "n2", false).as_deref(), Ok(old));
        let fresh = "NodeName=n2 Name=gpu Type=b File=/dev/nvidia0\n";
        let changed = with_devices(text, "n2", fresh, false).unwrap();
        let expected = "# head\nNodeName=n2 Name=gpu Type=b File=/dev/nvidia0\n\
            NodeName=n[1,3] Name=gpu Type=a100 File=/dev/nvidia[0-3] # all\n\
            Name=fpga File=/dev/f0\nNodeName=n[1,3] Name=shard Count=8\n";
        assert_eq!(changed, expected);
        assert_eq!(with_devices(&changed, "n2", fresh, false).as_ref(), Ok(&changed));
        assert_eq!(
            devices(&with_devices(&changed, "n2", old, false).unwrap(), "n2", false).as_deref(),
            Ok(old)
        );
    }

    #[test]
    fn lines_that_are_not_one_nodes_are_refused() {
        let text = "\nName=gpu Type=a100 File=/dev/nvidia0\n";
        assert_eq!(devices(text, "n2", false), Err(EditRefusal::ForAll(2)));
        assert_eq!(devices(text, "n2", true).as_deref(), Ok(text.trim_start()));
        let fresh = "Name=gpu Type=b File=/dev/nvidia0\n";
        assert_eq!(with_devices(text, "n2", fresh, true), Ok(format!("\n{fresh}")));
        assert_eq!(devices("AutoDetect=nvml", "n2", true), Err(EditRefusal::Detected(1)));
        assert_eq!(devices("AutoDetect=off", "n2", true).as_deref(), Ok(""));
        assert_eq!(
            devices("NodeName=n[1-2] Name=mps Count=9", "n2", true),
            Err(EditRefusal::Mps(1))
        );
        assert_eq!(devices("NodeName=n1 AutoDetect=nvml", "n2", true).as_deref(), Ok(""));
    }
}
