//! gres.conf and the node's part of slurm.conf, from the GPUs that a machine has.
//!
//! Whole cards first, then instances, by type, in both files: Slurm counts devices in the order of types in `Gres=`,
//! within a type in that of the lines of gres.conf. With an instance's type before that of a whole card, jobs for
//! the card run without any, and shards are lost (measured, 22.05).
//! `gpu` and `shard`, never `mps` beside them: jobs then lose their devices (measured, 22.05).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::GpuModel;
use node::inventory::{Device, Inventory};
pub use node::mig::capability_files;
use node::model_names::EngineGpus;

use crate::site::Site;

/// What is rendered for one kind of node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conf {
    /// Lines of gres.conf.
    pub gres: String,
    /// `Gres=…` for the node's line in slurm.conf.
    pub node_gres: String,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// One GPU line.
struct Line {
    kind: String,
    files: String,
    is_instance: bool,
}

/// Renders the configuration of nodes that look like this machine.
///
/// * `nodes` — their names, as a Slurm list.
/// * `site` — how it calls cards, what a shard stands for, where device files lie.
/// * `capabilities` — device files of an instance, by GPU's minor, number of GPU instance and of compute
///   instance; `None` where the driver has none.
///
/// # Errors
/// GPUs that cannot be named in gres.conf.
pub fn render(
    nodes: &str,
    inventory: &Inventory,
    site: &Site,
    capabilities: impl Fn(u32, u32, u32) -> Option<[String; 2]>,
) -> Result<Conf, String> {
    let engine = inventory.to_engine().map_err(|error| error.to_string())?;
    let mut notes: Vec<String> =
        engine.left_out.iter().map(|(gpu, why)| format!("{gpu} is left out: {why}")).collect();
    notes.extend(
        inventory.lost.iter().map(|gpu| format!("GPU {} is left out: {}", gpu.index, gpu.why)),
    );
    let mut devices: Vec<(&Device, &GpuModel)> = usable(inventory, &engine).collect();
    devices.sort_by_key(|(device, _)| (device.minor, device.index));
    let folder = site.devices_of(nodes).display().to_string();
    let mut lines = Vec::new();
    let mut shards = Vec::new();
    for (device, model) in devices {
        let minor = device.minor.unwrap_or(device.index);
        if device.mig.as_ref().is_some_and(|mig| mig.enabled) {
            lines.extend(instances(device, &format!("{folder}/nvidia{minor}"), &capabilities)?);
        } else {
            let files = format!("{folder}/nvidia{minor}");
            let kind = site.card_type(&model.name);
            lines.push(Line { kind, files: files.clone(), is_instance: false });
            shards.push((files, model.memory_mib / site.shard_mib));
        }
    }
    lines.sort_by(|one, other| (one.is_instance, &one.kind).cmp(&(other.is_instance, &other.kind)));
    let mut kinds: Vec<&str> =
        lines.iter().filter(|line| line.is_instance).map(|line| line.kind.as_str()).collect();
    kinds.dedup();
    if kinds.len() > 1 {
        let kinds = kinds.join(", ");
        notes.push(format!(
            "instances of several types ({kinds}): with shard in GresTypes, Slurm 22.05 runs jobs for all but \
             the first without any; have one type on a node, or no shards"
        ));
    }
    Ok(Conf { gres: gres(nodes, &lines, &shards), node_gres: node_gres(&lines, &shards), notes })
}

fn usable<'a>(
    inventory: &'a Inventory,
    engine: &'a EngineGpus,
) -> impl Iterator<Item = (&'a Device, &'a GpuModel)> {
    let devices = engine.devices.iter().filter_map(|at| inventory.devices.get(*at));
    devices.zip(engine.gpus.iter().map(model::Gpu::model))
}

fn instances(
    device: &Device,
    file: &str,
    capabilities: &impl Fn(u32, u32, u32) -> Option<[String; 2]>,
) -> Result<Vec<Line>, String> {
    let Some(mig) = &device.mig else { return Ok(Vec::new()) };
    let minor = device.minor.unwrap_or(device.index);
    let mut lines = Vec::new();
    for instance in &mig.instances {
        let (Some(profile), Some(inside)) =
            (mig.geometry.profile(instance.profile), &instance.device)
        else {
            continue;
        };
        let found = capabilities(minor, instance.gpu_instance, inside.compute_instance);
        let [gpu_file, compute_file] = found.ok_or_else(|| {
            let (index, number) = (device.index, instance.gpu_instance);
            format!("GPU {index}: the driver names no device files for its instance {number}")
        })?;
        let files = format!("{file},{gpu_file},{compute_file}");
        lines.push(Line { kind: profile.name.clone(), files, is_instance: true });
    }
    Ok(lines)
}

fn gres(nodes: &str, lines: &[Line], shards: &[(String, u64)]) -> String {
    let mut text = String::new();
    for Line { kind, files, is_instance } in lines {
        let word = if *is_instance { "MultipleFiles" } else { "File" };
        let _ = writeln!(text, "NodeName={nodes} Name=gpu Type={kind} {word}={files}");
    }
    for (file, count) in shards {
        let _ = writeln!(text, "NodeName={nodes} Name=shard Count={count} File={file}");
    }
    text
}

fn node_gres(lines: &[Line], shards: &[(String, u64)]) -> String {
    let mut counts: BTreeMap<(bool, &str), u64> = BTreeMap::new();
    for line in lines {
        *counts.entry((line.is_instance, line.kind.as_str())).or_default() += 1;
    }
    let mut words: Vec<String> =
        counts.iter().map(|((_, kind), count)| format!("gpu:{kind}:{count}")).collect();
    let total: u64 = shards.iter().map(|(_, count)| count).sum();
    if total > 0 {
        words.push(format!("shard:{total}"));
    }
    words.join(",")
}
