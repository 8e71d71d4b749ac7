//! From the arguments to fleets, traces and policies.

use std::io::Read;
use std::path::{Path, PathBuf};

use formats::{Source, TraceKind, TraceOptions};
use model::{Catalogue, Fleet, Gpu, ModeSet, Node, Placement, Policy, Trace};

use crate::args::FleetChoice;
use crate::failure::Failure;
use crate::screen;

/// GPUs of one node of a fleet in a word.
const NODE_GPUS: u32 = 8;
/// Most GPUs of a fleet in a word.
const GPUS_MAX: u32 = 100_000;
/// Seed where none is given.
pub(crate) const SEED: u64 = 42;
const CPU_MILLI_PER_GPU: u64 = 16_000;
const MEMORY_MIB_PER_GPU: u64 = 128 * 1024;

/// The fleet that the arguments name, or the one that belongs to the trace.
pub(crate) fn fleet(choice: &FleetChoice, trace: &Path) -> Result<Fleet, Failure> {
    let mut catalogue = Catalogue::shipped().map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(words) = &choice.gpus {
        return uniform(words, &catalogue);
    }
    let path = match &choice.fleet {
        Some(path) => path.clone(),
        None => beside(trace).ok_or_else(|| {
            Failure::Usage(
                "no fleet given; name one with --fleet FILE, or with --gpus MODEL:COUNT such as \
                 --gpus a100-80gb:16"
                    .to_string(),
            )
        })?,
    };
    Ok(formats::fleet::open(&path, &mut catalogue)?)
}

/// The node list that lies beside an openb task list.
fn beside(trace: &Path) -> Option<PathBuf> {
    let name = trace.file_name()?.to_str()?;
    if !name.starts_with("openb_pod_list") {
        return None;
    }
    let names = ["openb_node_list_gpu_node.csv", "openb_node_list_gpu_node.csv.gz"];
    let path = names.iter().map(|name| trace.with_file_name(name)).find(|path| path.exists())?;
    screen::note(&format!("fleet: {}", path.display()));
    Some(path)
}

/// `a100-80gb:20` as nodes of eight GPUs, the last one with the rest.
fn uniform(words: &str, catalogue: &Catalogue) -> Result<Fleet, Failure> {
    let usage = |what: &str| {
        Failure::Usage(format!("--gpus {words}: {what}; write MODEL:COUNT such as a100-80gb:16"))
    };
    let (name, count) = words.split_once(':').ok_or_else(|| usage("has no count"))?;
    let count = count.parse().ok().filter(|count| (1..=GPUS_MAX).contains(count));
    let count: u32 =
        count.ok_or_else(|| usage(&format!("the count is not a number from 1 to {GPUS_MAX}")))?;
    let model = catalogue.get(name).ok_or_else(|| {
        let known: Vec<&str> = catalogue.iter().map(|model| model.name.as_str()).collect();
        match formats::near(name, known.iter().copied()).as_slice() {
            [] => usage(&format!("unknown GPU model; known are {}", known.join(", "))),
            near => usage(&format!("unknown GPU model, perhaps {}", near.join(" or "))),
        }
    })?;
    let node = |first: u32| {
        let here = NODE_GPUS.min(count - first);
        let gpu = Gpu::idle(model.clone(), ModeSet::ALL);
        let (cpu, memory) =
            (u64::from(here) * CPU_MILLI_PER_GPU, u64::from(here) * MEMORY_MIB_PER_GPU);
        Node::idle(format!("node{}", first / NODE_GPUS), cpu, memory, vec![gpu; here as usize])
    };
    Ok(Fleet::new((0..count).step_by(NODE_GPUS as usize).map(node).collect()))
}

/// The trace in a file, whatever its kind; says what was ignored.
///
/// * `shard_mib` — device memory of a shard of Slurm's, if the user says it.
pub(crate) fn trace(
    path: &Path,
    throughputs: Option<&Path>,
    shard_mib: Option<u64>,
) -> Result<Trace, Failure> {
    let source = Source::open(path)?;
    let mut options = TraceOptions::default();
    options.shard_mib = match (shard_mib, formats::trace::kind(&source)?) {
        (Some(mib), _) => mib,
        (None, TraceKind::Sacct) => site_shard_mib()?,
        (None, _) => options.shard_mib,
    };
    if let Some(path) = throughputs {
        options.throughputs = Some(path.to_path_buf());
    }
    let reading = formats::trace::read(&source, &options)?;
    for note in &reading.notes {
        screen::note(&format!("{}: {note}", path.display()));
    }
    if throughputs.is_some() && reading.kind != TraceKind::Gavel {
        screen::note(&format!("{}: is no Gavel trace; --throughputs is not used", path.display()));
    }
    Ok(reading.trace)
}

/// Jobs of Slurm's accounting in a file, or on standard input where it is `-`; says what was ignored.
pub(crate) fn accounts(path: &Path, shard_mib: Option<u64>) -> Result<Trace, Failure> {
    let source = accounts_source(path)?;
    let mut notes = Vec::new();
    let shard_mib = shard_mib.map_or_else(site_shard_mib, Ok)?;
    let trace = formats::sacct::trace(&source, shard_mib, &mut notes)?;
    notes.iter().for_each(|note| screen::note(&format!("{}: {note}", source.name())));
    Ok(trace)
}

/// A list of sacct's in a file, or on standard input where it is `-`.
pub(crate) fn accounts_source(path: &Path) -> Result<Source, Failure> {
    if path.as_os_str() != "-" {
        return Ok(Source::open(path)?);
    }
    let mut bytes = Vec::new();
    let most = formats::SIZE_MAX_BYTES + 1;
    let read = std::io::stdin().lock().take(most).read_to_end(&mut bytes);
    read.map_err(|error| Failure::Usage(format!("standard input cannot be read: {error}")))?;
    Ok(Source::from_bytes("standard input", bytes)?)
}

/// Device memory of a shard, as the site says it.
fn site_shard_mib() -> Result<u64, Failure> {
    let site = slurm::site::Site::read().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(site.shard_mib)
}

/// The policy of a file, or the default; its placement replaced by the named one.
pub(crate) fn policy(
    file: Option<&Path>,
    placement: Option<&str>,
    seed: Option<u64>,
) -> Result<Policy, Failure> {
    policy_of(file.map(Source::open).transpose()?.as_ref(), placement, seed)
}

/// As [`policy`], of a file that is open.
pub(crate) fn policy_of(
    file: Option<&Source>,
    placement: Option<&str>,
    seed: Option<u64>,
) -> Result<Policy, Failure> {
    let mut policy = match file {
        Some(source) => formats::policy::read(source)?,
        None => Policy::new(Placement::Hotpot),
    };
    // The seed and the weights of a policy file hold for its own placement.
    let other = placement.filter(|name| policy.placement.name() != *name);
    if let Some(name) = other {
        policy.placement = Placement::parse(name).ok_or_else(|| {
            let names = Placement::NAMES.join(", ");
            Failure::Usage(format!("no policy `{name}`; there are {names}"))
        })?;
    }
    if let Placement::Random { seed: of_policy } = &mut policy.placement {
        let of_file = (file.is_some() && other.is_none()).then_some(*of_policy);
        *of_policy = seed.or(of_file).unwrap_or(SEED);
    }
    Ok(policy)
}
