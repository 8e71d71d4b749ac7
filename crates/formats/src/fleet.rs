//! Fleet files (TOML or YAML): nodes, their GPUs, and GPU models that hotpot does not know.
//!
//! The keys are described in `docs/files.md`. [`open`] also takes an openb node list.

use std::collections::BTreeSet;
use std::path::Path;

use model::{Catalogue, Fleet, Gpu, GpuModel, ModeSet, ModelId, Node, SharingKind};

use crate::error::ReadError;
use crate::keys::{Field, Keys};
use crate::near::near;
use crate::text::Source;
use crate::{names, openb, quantity};

/// Most nodes of a fleet.
pub const NODES_MAX: usize = 100_000;
/// Most GPUs of a node: its GPUs are counted in a byte.
pub const NODE_GPUS_MAX: u32 = 255;
/// Most GPUs of a fleet.
pub const FLEET_GPUS_MAX: usize = 1_000_000;

const NODE_KEYS: [&str; 5] = ["name", "count", "cpus", "memory", "gpus"];
const GPU_KEYS: [&str; 3] = ["model", "count", "modes"];
const MODEL_KEYS: [&str; 6] = ["name", "memory", "reserved", "context", "modes", "mig_like"];

/// Reads a fleet from a fleet file or an openb node list (`.csv`, also gzip).
///
/// # Errors
/// As [`Source::open`], [`read`] and [`openb::node_rows`].
pub fn open(path: &Path, catalogue: &mut Catalogue) -> Result<Fleet, ReadError> {
    let source = Source::open(path)?;
    match source.extension().as_str() {
        "csv" => Ok(openb::fleet(&openb::node_rows(&source)?, catalogue)),
        "toml" | "yaml" | "yml" => read(&source, catalogue),
        other => {
            let what = format!("has the extension {other:?}, which is not one of a fleet");
            Err(source.error(what, "name it .toml or .yaml, or .csv for an openb node list"))
        }
    }
}

/// Reads a fleet file. GPU models that it defines are entered into the catalogue.
///
/// # Errors
/// The first value that is wrong, with its line: an unknown key or GPU model, a mode that the model
/// cannot do, two nodes of one name, more than [`NODES_MAX`] nodes or
/// [`FLEET_GPUS_MAX`] GPUs.
pub fn read(source: &Source, catalogue: &mut Catalogue) -> Result<Fleet, ReadError> {
    let tree = source.tree()?;
    let file = Keys::of_file(source, &tree, &["node", "gpu_model"])?;
    for item in file.items("gpu_model")? {
        let model = gpu_model(&item.keys(&MODEL_KEYS)?, catalogue)?;
        catalogue.insert(model);
    }
    let mut nodes = Vec::new();
    let mut taken = BTreeSet::new();
    let mut gpus = 0;
    for item in file.need("node", "a [[node]] table")?.items()? {
        let keys = item.keys(&NODE_KEYS)?;
        let pattern = node(&keys, catalogue)?;
        for name in node_names(&keys)? {
            if !taken.insert(name.clone()) {
                let what = format!("{name:?} is the name of two nodes");
                return Err(item.error(what, "rename one of them"));
            }
            gpus += pattern.gpus.len();
            if nodes.len() == NODES_MAX || gpus > FLEET_GPUS_MAX {
                let what = format!("makes more than {NODES_MAX} nodes or {FLEET_GPUS_MAX} GPUs");
                return Err(item.error(what, "lower count"));
            }
            nodes.push(pattern.named(name));
        }
    }
    Ok(Fleet::new(nodes))
}

/// What the nodes of one entry have in common.
struct Pattern {
    cpu_milli: u64,
    memory_mib: u64,
    gpus: Vec<Gpu>,
}

impl Pattern {
    fn named(&self, name: String) -> Node {
        Node::idle(name, self.cpu_milli, self.memory_mib, self.gpus.clone())
    }
}

fn node(keys: &Keys<'_>, catalogue: &Catalogue) -> Result<Pattern, ReadError> {
    let cpu_milli = keys.need("cpus", "cpus = 64")?.read(quantity::cpu_milli)?;
    let memory_mib = keys.need("memory", "memory = \"256GiB\"")?.read(quantity::memory_mib)?;
    let mut gpus = Vec::new();
    for item in keys.items("gpus")? {
        let keys = item.keys(&GPU_KEYS)?;
        let gpu = gpu(&keys, catalogue)?;
        let count = keys.get("count").map_or(Ok(1), |field| field.count(1, NODE_GPUS_MAX))?;
        if gpus.len() + count as usize > NODE_GPUS_MAX as usize {
            let what = format!("makes more than {NODE_GPUS_MAX} GPUs on one node");
            return Err(item.error(what, "lower count"));
        }
        gpus.extend(std::iter::repeat_n(gpu, count as usize));
    }
    Ok(Pattern { cpu_milli, memory_mib, gpus })
}

/// `name` alone, or with `count` `name-0`, `name-1` and so on.
fn node_names(keys: &Keys<'_>) -> Result<Vec<String>, ReadError> {
    let name = keys.need("name", "name = \"n1\"")?.text()?;
    let Some(count) = keys.get("count") else {
        return Ok(vec![name.to_string()]);
    };
    let count = count.count(1, NODES_MAX as u32)?;
    Ok((0..count).map(|at| format!("{name}-{at}")).collect())
}

fn gpu(keys: &Keys<'_>, catalogue: &Catalogue) -> Result<Gpu, ReadError> {
    let field = keys.need("model", "model = \"a100-80gb\"")?;
    let name = field.text()?;
    let Some(model) = catalogue.get(name) else {
        let close = near(name, catalogue.iter().map(|model| model.name.as_str()));
        let meant = if close.is_empty() { String::new() } else { close.join(" or ") + ", or " };
        let way_out = format!("give {meant}add [[gpu_model]] with name and memory");
        return Err(field.error(format!("{name:?} is not a known GPU model"), way_out));
    };
    let Some(modes) = keys.get("modes") else {
        return Ok(Gpu::idle(model.clone(), ModeSet::ALL));
    };
    let mut offers = ModeSet::EMPTY;
    for item in modes.items()? {
        let mode = item.read(names::mode)?;
        if !model.modes.contains(mode) {
            let what = format!("{} cannot do {mode}", model.name);
            let known: Vec<_> = model.modes.iter().map(SharingKind::as_str).collect();
            return Err(item.error(what, format!("it can do {}", known.join(", "))));
        }
        offers = offers.with(mode);
    }
    Ok(Gpu::idle(model.clone(), offers))
}

/// A GPU model of the user's own.
fn gpu_model(keys: &Keys<'_>, catalogue: &Catalogue) -> Result<GpuModel, ReadError> {
    let name = keys.need("name", "name = \"my-gpu\"")?.text()?.to_ascii_lowercase();
    let memory = keys.need("memory", "memory = \"24GiB\"")?;
    let total_mib = memory.read(quantity::memory_mib)?;
    let reserved_mib = keys.read("reserved", quantity::memory_mib)?.unwrap_or(0);
    if total_mib <= reserved_mib {
        return Err(memory.error("leaves nothing after what is reserved", "give more"));
    }
    let mig = match keys.get("mig_like") {
        None => None,
        Some(field) => Some(geometry_of(&field, catalogue)?),
    };
    let all = ModeSet::of(&[
        SharingKind::Exclusive,
        SharingKind::TimeSlice,
        SharingKind::Mps,
        SharingKind::MemoryCapped,
    ]);
    let mut modes = if mig.is_some() { all.with(SharingKind::Mig) } else { all };
    if let Some(field) = keys.get("modes") {
        modes = own_modes(&field, mig.is_some())?;
    }
    Ok(GpuModel {
        id: ModelId(0),
        name,
        memory_mib: total_mib - reserved_mib,
        context_mib: keys.read("context", quantity::memory_mib)?.unwrap_or(0),
        modes,
        mig,
    })
}

fn own_modes(field: &Field<'_>, has_mig: bool) -> Result<ModeSet, ReadError> {
    let mut modes = ModeSet::of(&[SharingKind::Exclusive]);
    for item in field.items()? {
        let mode = item.read(names::mode)?;
        if mode == SharingKind::Mig && !has_mig {
            return Err(item.error("needs the instance profiles", "add mig_like = \"a100-80gb\""));
        }
        modes = modes.with(mode);
    }
    Ok(modes)
}

fn geometry_of(field: &Field<'_>, catalogue: &Catalogue) -> Result<model::MigGeometry, ReadError> {
    let name = field.text()?;
    let geometry = catalogue.get(name).and_then(|model| model.mig.clone());
    geometry.ok_or_else(|| {
        let known = catalogue.iter().filter(|model| model.mig.is_some());
        let known: Vec<_> = known.map(|model| model.name.as_str()).collect();
        let way_out = format!("give one of {}", known.join(", "));
        field.error(format!("{name:?} is not a known GPU model with MIG"), way_out)
    })
}
