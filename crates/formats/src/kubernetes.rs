//! Kubernetes manifests (`batch/v1` Job and `v1` Pod): their command, resources and completions.
//!
//! The command runs on the machine itself. An image is not pulled: a container that leaves its command
//! to the image is refused. Fields and their meaning: Kubernetes API reference, Job and Pod.

use model::{Class, Demand, GpuAsk, GpuDemand, ModeSet, Owner, SharingKind, Workload, WorkloadId};

use crate::array::ArraySpec;
use crate::demand::GPUS_MAX;
use crate::error::{Complaint, ReadError, quote};
use crate::job::{Job, Launch, Program};
use crate::keys::{Field, Keys};
use crate::text::Source;
use crate::{WORKLOADS_MAX, manifest, names, quantity};

/// The name by which the operator's plugin offers whole GPUs.
const GPU: &str = "nvidia.com/gpu";
/// In front of a MIG profile, with `.` for the `+` of media variants (NVIDIA device plugin).
const MIG: &str = "nvidia.com/mig-";

/// Fields that are followed; others are named as ignored.
const JOB_KEYS: [&str; 5] =
    ["template", "completions", "parallelism", "completionMode", "activeDeadlineSeconds"];
const POD_KEYS: [&str; 2] = ["containers", "activeDeadlineSeconds"];
const CONTAINER_KEYS: [&str; 7] =
    ["name", "image", "command", "args", "env", "workingDir", "resources"];

/// Whether a file is a manifest, by its first keys.
pub fn is_manifest(source: &Source) -> bool {
    let yaml = ["yaml", "yml"].contains(&source.extension().as_str());
    yaml && source.text().lines().any(|line| line.starts_with("apiVersion:"))
}

/// Reads the jobs of a manifest, which may hold several documents.
///
/// # Errors
/// A document that is neither Job nor Pod, a container whose command is left to its image, more than
/// one container, or a value that is wrong, with its line.
pub fn jobs(source: &Source) -> Result<Vec<Job>, ReadError> {
    let mut jobs = Vec::new();
    for document in manifest::documents(source)? {
        let tree = document.tree()?;
        jobs.push(job(&manifest::root(&document, &tree)?)?);
    }
    Ok(jobs)
}

fn job(file: &Keys<'_>) -> Result<Job, ReadError> {
    let kind = file.need("kind", "kind: Job")?;
    let metadata = file.need("metadata", "metadata with a name")?.any_keys()?;
    let named = metadata.first_of(&["name", "generateName"]);
    let name = named.map(|field| field.text()).transpose()?.unwrap_or("job").trim_end_matches('-');
    let owner = metadata.get("namespace").map(|field| field.text()).transpose()?;
    let spec = file.need("spec", "a spec")?.any_keys()?;
    let mut ignored = Vec::new();
    let (pod, array, limit) = match kind.text()? {
        "Pod" => (spec, None, None),
        "Job" => {
            let template = spec.need("template", "a template")?.any_keys()?;
            let pod = template.need("spec", "a spec")?.any_keys()?;
            ignored.extend(manifest::others("spec", &spec, &JOB_KEYS));
            (pod, completions(&spec)?, spec.get("activeDeadlineSeconds"))
        }
        other => {
            let what = format!("{} is not run here", quote(other));
            return Err(kind.error(what, "give a Job or a Pod"));
        }
    };
    let limit = limit.or(pod.get("activeDeadlineSeconds"));
    let time_limit_ms = limit.map(|field| field.read(quantity::seconds_ms)).transpose()?;
    let container = container(&pod)?;
    let pattern = Workload {
        class: Class::Batch,
        time_limit_ms,
        ..Workload::new(
            WorkloadId(0),
            name.to_string(),
            Owner::new(owner.unwrap_or("default")),
            demand(&container)?,
        )
    };
    let index_variable = array.as_ref().map(|_| "JOB_COMPLETION_INDEX".to_string());
    let mut warnings = Vec::new();
    let launch = Launch { index_variable, ..launch(&container, &mut warnings)? };
    ignored.extend(manifest::others("pod", &pod, &POD_KEYS));
    ignored.extend(manifest::others("container", &container, &CONTAINER_KEYS));
    Ok(Job { pattern, array, launch, after: Vec::new(), ignored, warnings })
}

/// Completions and parallelism as an array with a limit; an index each, as in mode `Indexed`.
fn completions(spec: &Keys<'_>) -> Result<Option<ArraySpec>, ReadError> {
    let count =
        |name: &str| spec.get(name).map(|field| field.count(1, WORKLOADS_MAX as u32)).transpose();
    let parallelism = count("parallelism")?.unwrap_or(1);
    let Some(completions) = count("completions")?.or((parallelism > 1).then_some(parallelism))
    else {
        return Ok(None);
    };
    let at_once_max = if parallelism < completions { parallelism } else { 0 };
    Ok(Some(ArraySpec { indices: (0..completions).collect(), at_once_max }))
}

/// The pod's only container.
fn container<'a>(pod: &Keys<'a>) -> Result<Keys<'a>, ReadError> {
    if let Some(field) = pod.get("initContainers") {
        return Err(field.error("are not run here", "put their work into the command"));
    }
    let field = pod.need("containers", "a container")?;
    match field.items()?.as_slice() {
        [only] => only.any_keys(),
        other => {
            let what = format!("are {}; one is run here", other.len());
            Err(field.error(what, "split them into jobs of one container"))
        }
    }
}

fn launch(container: &Keys<'_>, warnings: &mut Vec<String>) -> Result<Launch, ReadError> {
    let image = container.get("image").map(|field| field.text()).transpose()?;
    let Some(command) = container.get("command") else {
        let image = image.map_or(String::from("its image"), |image| format!("image {image}"));
        let at = container.need("name", "a name")?;
        let what = format!(
            "leaves its command to {image}, and images are not pulled: tasks run on this machine as it is"
        );
        return Err(at.error(what, "add command: [\"…\"] with a program that is installed here"));
    };
    if let Some(image) = image {
        warnings
            .push(format!("image {image} is not used: the command runs on this machine as it is"));
    }
    let mut words = manifest::words(&command)?;
    if words.is_empty() {
        return Err(command.error("names no program", "give [\"program\", \"argument\", …]"));
    }
    if let Some(args) = container.get("args") {
        words.extend(manifest::words(&args)?);
    }
    let env = manifest::env(container)?;
    let directory = container.get("workingDir").map(|field| field.text()).transpose()?;
    let program = Program::Command(manifest::expand(&words, &env));
    Ok(Launch { program, directory: directory.map(Into::into), env, ..Launch::default() })
}

/// Limits count, as they do for extended resources; CPU and memory are what is requested.
fn demand(container: &Keys<'_>) -> Result<Demand, ReadError> {
    let Some(resources) = container.get("resources") else { return Ok(Demand::default()) };
    let resources = resources.any_keys()?;
    let part = |name: &str| resources.get(name).map(|field| field.any_keys()).transpose();
    let (requests, limits) = (part("requests")?, part("limits")?);
    let amount = |name: &str| {
        let of_requests = requests.as_ref().and_then(|keys| keys.get(name));
        of_requests.or(limits.as_ref().and_then(|keys| keys.get(name)))
    };
    let cpu_milli = amount("cpu").map(|field| field.read(cpu)).transpose()?.unwrap_or(0);
    let memory = amount("memory").map(|field| field.read(manifest::memory_mib)).transpose()?;
    let mut gpus = None;
    for field in limits.iter().chain(&requests).flat_map(Keys::iter) {
        if let Some(asked) = gpu(&field)?.filter(|_| gpus.is_none()) {
            gpus = Some(asked);
        }
    }
    Ok(Demand { cpu_milli, memory_mib: memory.unwrap_or(0), gpus, ..Demand::default() })
}

fn gpu(field: &Field<'_>) -> Result<Option<GpuDemand>, ReadError> {
    let (each, modes) = match field.name() {
        GPU => (GpuAsk::Whole, ModeSet::ALL),
        name => match name.strip_prefix(MIG) {
            Some(profile) => {
                let profile = profile.replace(".me", "+me");
                let profile =
                    names::mig_profile(&profile).map_err(|wrong| field.complain(wrong))?;
                (GpuAsk::Profile(profile), ModeSet::of(&[SharingKind::Mig]))
            }
            None if name.contains('/') => {
                return Err(field.error("is not offered here", format!("ask for {GPU}")));
            }
            None => return Ok(None),
        },
    };
    let count = field.count(0, GPUS_MAX)?;
    let accepts = Vec::new();
    Ok((count > 0).then_some(GpuDemand {
        count,
        each,
        accepts,
        isolation: Default::default(),
        modes,
    }))
}

/// `2`, `0.5` or `500m`.
fn cpu(text: &str) -> Result<u64, Complaint> {
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().map_err(|_| {
            Complaint::new(format!("{} is no amount of CPU", quote(text)), "give 2, 0.5 or 500m")
        }),
        None => quantity::cpu_milli(text),
    }
}
