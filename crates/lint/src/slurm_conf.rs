//! slurm.conf: the lines that say which generic resources there are and who gives them out.

use crate::conf::{self, Item, Record};
use crate::finding::Severity::{Better, NotWhatYouThink, Refused};
use crate::finding::{Edit, Finding};
use crate::spread;

/// What is wrong in a slurm.conf, as far as GPUs are concerned.
pub(crate) fn check(text: &str) -> Vec<Finding> {
    let records = conf::records(text);
    let items = |key: &'static str| records.iter().filter_map(move |record| record.get(key));
    let nodes: Vec<&Item> = records
        .iter()
        .filter(|it| it.get("nodename").is_some())
        .filter_map(|it| it.get("gres"))
        .collect();
    let types = items("grestypes").next();
    let has_gpus = types.is_some_and(|item| names(item).any(|name| name == "gpu"));
    let mut found: Vec<Finding> = types.iter().filter_map(|types| both(types, &nodes)).collect();
    found.extend(missing(types, &nodes));
    if has_gpus {
        found.extend(
            items("selecttype")
                .next()
                .and_then(|it| select(it, items("selecttypeparameters").next())),
        );
        found.extend(items("taskplugin").next().and_then(fence));
    }
    found.extend(records.iter().filter_map(uneven));
    found
}

fn names(item: &Item) -> impl Iterator<Item = &str> {
    item.value.split(',').map(str::trim)
}

/// Whether some node has it.
fn used(nodes: &[&Item], kind: &str) -> bool {
    nodes.iter().any(|gres| conf::gres_of(&gres.value, kind).is_some())
}

/// Shards and MPS at once; what no node has goes.
fn both(types: &Item, nodes: &[&Item]) -> Option<Finding> {
    ["shard", "mps"].iter().all(|kind| names(types).any(|name| name == *kind)).then_some(())?;
    let idle = match (used(nodes, "shard"), used(nodes, "mps")) {
        (true, false) => Some("mps"),
        (false, true) => Some("shard"),
        _ => None,
    };
    let left = |idle| names(types).filter(|name| *name != idle).collect::<Vec<_>>().join(",");
    let edit = idle.map(|idle| Edit::new(types.value_span.clone(), left(idle)));
    let instead = match idle {
        Some(idle) => format!("write GresTypes={}: no node has {idle}", left(idle)),
        None => "keep one of the two: GresTypes=gpu,shard or GresTypes=gpu,mps".to_owned(),
    };
    let happens = "a GPU is divided into shards or into MPS, not both: with both loaded, jobs with shards are given no CUDA_VISIBLE_DEVICES, and jobs of both kinds meet on one GPU";
    let finding =
        Finding::new(("shard-and-mps", NotWhatYouThink), types.span.clone(), happens, instead);
    Some(finding.with(edit))
}

/// What nodes have and GresTypes does not name.
fn missing(types: Option<&Item>, nodes: &[&Item]) -> Vec<Finding> {
    let lacks = |kind: &str| types.is_none_or(|types| !names(types).any(|name| name == kind));
    let mut found = Vec::new();
    for kind in ["gpu", "shard", "mps"].into_iter().filter(|kind| lacks(kind)) {
        let with = |gres: &&&Item| conf::gres_of(&gres.value, kind).is_some();
        let Some(gres) = nodes.iter().find(with) else { continue };
        // Where another file is included, the line may stand there.
        let Some(types) = types else { continue };
        let with: Vec<&str> = names(types).filter(|it| !it.is_empty()).chain([kind]).collect();
        let edit = Edit::new(types.value_span.clone(), with.join(","));
        let finding = Finding::new(
            ("gres-type-missing", Refused),
            gres.span.clone(),
            format!(
                "the node has {kind}, and GresTypes does not name it: sbatch answers `Invalid generic resource (gres) specification` to whoever asks for it"
            ),
            format!("write GresTypes={}, and restart slurmctld and all slurmd", with.join(",")),
        );
        let is_apart =
            !["shard", "mps"].iter().all(|kind| used(nodes, kind) && with.contains(kind));
        found.push(finding.with(Some(edit).filter(|_| is_apart)));
    }
    // One edit at a place: the next round does the rest.
    found.truncate(1);
    found
}

/// cons_tres ends slurmctld without one of CR_CPU, CR_Core and CR_Socket: only where one stands it is put in.
fn select(item: &Item, parameters: Option<&Item>) -> Option<Finding> {
    let happens = match item.value.to_ascii_lowercase().as_str() {
        "select/linear" => {
            "select/linear gives whole nodes: shards and --gpus need select/cons_tres"
        }
        "select/cons_res" => {
            "select/cons_res counts no GPUs: shards and --gpus need select/cons_tres"
        }
        _ => return None,
    };
    let counts = |item: &Item| {
        let value = item.value.to_ascii_uppercase();
        ["CR_CPU", "CR_CORE", "CR_SOCKET"].iter().any(|unit| value.contains(unit))
    };
    let has_unit = parameters.is_some_and(counts);
    let also = if has_unit {
        ""
    } else {
        ", SelectTypeParameters=CR_Core_Memory or another that counts cores"
    };
    let edit = has_unit.then(|| Edit::new(item.value_span.clone(), "select/cons_tres"));
    let instead =
        format!("write SelectType=select/cons_tres{also}, and restart slurmctld and all slurmd");
    let finding =
        Finding::new(("select-type", NotWhatYouThink), item.span.clone(), happens, instead);
    Some(finding.with(edit))
}

fn fence(item: &Item) -> Option<Finding> {
    (!item.value.to_ascii_lowercase().contains("cgroup")).then(|| {
        Finding::new(
            ("devices-not-fenced", Better),
            item.span.clone(),
            "without task/cgroup nothing keeps a job from GPUs that it was not given",
            "write TaskPlugin=task/affinity,task/cgroup, and ConstrainDevices=yes in cgroup.conf",
        )
    })
}

/// A node whose parts do not spread evenly over its GPUs.
fn uneven(record: &Record) -> Option<Finding> {
    let gres = record.get("nodename").and(record.get("gres"))?;
    let of = |kind| conf::gres_of(&gres.value, kind);
    let gpus = of("gpu")?;
    ["shard", "mps"].into_iter().find_map(|kind| {
        let write = format!("{kind}:");
        spread::uneven(&gres.span, (kind, of(kind)?), gpus, (&write, "gres.conf"))
    })
}
