//! sbatch scripts: what `#SBATCH` lines ask for becomes workloads; the commands are not looked at.
//!
//! A job on several nodes is a gang with one member per node. Options and what becomes of them are
//! listed in `docs/files.md`.

use model::{Demand, Owner, Workload, WorkloadId};

use crate::array::ArraySpec;
use crate::dependency;
use crate::directives::Directives;
use crate::error::{Complaint, ReadError, quote};
use crate::gpu_options;
use crate::gres::Spread;
use crate::job::Job;
use crate::launching;
use crate::quantity::{self, CPU_MAX_MILLI, MEMORY_MAX_MIB};
use crate::text::Source;
use crate::workloads::OWNER_DEFAULT;

/// Device memory that one shard stands for unless the caller says otherwise: 1 GiB. Slurm leaves the
/// size to the site (gres.conf: `Name=shard Count=…`).
pub const SHARD_MIB_DEFAULT: u64 = 1024;

/// Most nodes, tasks, or CPUs per task.
const COUNT_MAX: u32 = 65_536;
/// What a bare `--nice` means (sbatch manual).
const NICE_DEFAULT: i64 = 100;

/// What a script asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The job, or one workload per task of its array; ids count from 0.
    pub workloads: Vec<Workload>,
    /// Options that say nothing about placement, such as `--output=log (line 3)`.
    pub ignored: Vec<String>,
    /// What the user should know: options that are unknown, that hotpot does not follow, or that
    /// stand where Slurm does not read them.
    pub warnings: Vec<String>,
}

/// Reads a script.
///
/// * `shard_mib` — device memory that one `--gres=shard` stands for; see [`SHARD_MIB_DEFAULT`].
///
/// # Errors
/// The first option whose value is wrong or contradicts another, with its line. `--gpus=1:shared`,
/// which no Slurm version knows, is answered with what does exist.
pub fn read(source: &Source, shard_mib: u64) -> Result<Script, ReadError> {
    let directives = Directives::of(source)?;
    let mut warnings = directives.warnings.clone();
    let workload = pattern(source, &directives, shard_mib, &mut warnings)?;
    let workloads = match directives.read("array", ArraySpec::parse)? {
        Some(array) => array.tasks(workload.id, &workload),
        None => vec![workload],
    };
    Ok(Script { workloads, ignored: directives.ignored(true), warnings })
}

/// Reads a script that is to be run.
///
/// # Errors
/// As [`read`], and the first option about starting a task whose value is wrong.
pub fn job(source: &Source, shard_mib: u64) -> Result<Job, ReadError> {
    let directives = Directives::of(source)?;
    let mut warnings = directives.warnings.clone();
    Ok(Job {
        pattern: pattern(source, &directives, shard_mib, &mut warnings)?,
        array: directives.read("array", ArraySpec::parse)?,
        launch: launching::launch(
            &directives,
            source.text(),
            spread(&directives)?.tasks_per_member,
        )?,
        after: directives.read("dependency", dependency::parse)?.unwrap_or_default(),
        ignored: directives.ignored(false),
        warnings,
    })
}

/// What one task asks for.
fn pattern(
    source: &Source,
    directives: &Directives<'_>,
    shard_mib: u64,
    warnings: &mut Vec<String>,
) -> Result<Workload, ReadError> {
    let spread = spread(directives)?;
    let gpus = gpu_options::demand(directives, spread, shard_mib, warnings)?;
    let gpu_count = gpus.as_ref().map_or(0, |gpus| gpus.count);
    let cpus = cpus(directives, spread.tasks_per_member, gpu_count)?;
    let memory_mib = memory_mib(directives, cpus, gpu_count, warnings)?;
    Ok(Workload {
        priority: priority(directives)?,
        time_limit_ms: directives.read("time", quantity::slurm_time_ms)?.flatten(),
        members: spread.members, // Slurm's nodes are different nodes.
        apart: spread.members > 1,
        ..Workload::new(
            WorkloadId(0),
            directives.text("job-name").unwrap_or(source.file_name()).to_string(),
            Owner::new(directives.text("account").unwrap_or(OWNER_DEFAULT)),
            Demand { cpu_milli: cpus * 1000, memory_mib, gpus, ..Demand::default() },
        )
    })
}

/// Nodes and tasks per node. Without `--nodes` the tasks stay on one node, unless
/// `--ntasks-per-node` spreads them.
fn spread(directives: &Directives<'_>) -> Result<Spread, ReadError> {
    let nodes = directives.read("nodes", nodes)?;
    let tasks = directives.read("ntasks", count)?;
    let per_node = directives.read("ntasks-per-node", count)?;
    Ok(match (nodes, tasks, per_node) {
        (Some(members), Some(tasks), None) => {
            Spread { members, tasks_per_member: tasks.div_ceil(members) }
        }
        (None, Some(tasks), Some(per_node)) => {
            Spread { members: tasks.div_ceil(per_node), tasks_per_member: per_node.min(tasks) }
        }
        (members, tasks, per_node) => Spread {
            members: members.unwrap_or(1),
            tasks_per_member: per_node.or(tasks).unwrap_or(1),
        },
    })
}

/// CPUs per member, whole ones as in Slurm.
fn cpus(directives: &Directives<'_>, tasks: u32, gpus: u32) -> Result<u64, ReadError> {
    let per_task = directives.read("cpus-per-task", count)?;
    let per_gpu = directives.read("cpus-per-gpu", count)?;
    let (option, cpus) = match (per_task, per_gpu) {
        (Some(_), Some(_)) => {
            let complaint = Complaint::new("contradicts --cpus-per-task", "keep one of the two");
            return Err(directives.complain("cpus-per-gpu", complaint));
        }
        (None, Some(per_gpu)) if gpus > 0 => ("cpus-per-gpu", u64::from(per_gpu) * u64::from(gpus)),
        (per_task, _) => ("cpus-per-task", u64::from(per_task.unwrap_or(1)) * u64::from(tasks)),
    };
    if cpus > CPU_MAX_MILLI / 1000 {
        let what = format!("asks for {cpus} CPUs on one node");
        return Err(directives.complain(option, Complaint::new(what, "ask for fewer")));
    }
    Ok(cpus)
}

/// Main memory per member; 0 if the script does not say.
fn memory_mib(
    directives: &Directives<'_>,
    cpus: u64,
    gpus: u32,
    warnings: &mut Vec<String>,
) -> Result<u64, ReadError> {
    let options = [("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", u64::from(gpus))];
    let given: Vec<_> = options.into_iter().filter(|(option, _)| directives.has(option)).collect();
    let Some((option, times)) = given.first().copied() else {
        return Ok(0);
    };
    if let Some((second, _)) = given.get(1) {
        let complaint = Complaint::new(format!("contradicts --{option}"), "keep one of the two");
        return Err(directives.complain(second, complaint));
    }
    let each = directives.read(option, quantity::slurm_memory_mib)?.unwrap_or(0);
    if each == 0 {
        warnings.push(format!("--{option}=0 means all memory to Slurm; hotpot books none"));
    }
    let total = each.checked_mul(times).filter(|mib| *mib <= MEMORY_MAX_MIB);
    total.ok_or_else(|| {
        let complaint = Complaint::new("adds up to more than 1024 TiB on one node", "ask for less");
        directives.complain(option, complaint)
    })
}

/// `--priority` less `--nice`, held to what fits.
fn priority(directives: &Directives<'_>) -> Result<i32, ReadError> {
    let number = |text: &str| {
        let refuse = |_| {
            Complaint::new(format!("{} is not a whole number", quote(text)), "give one such as 100")
        };
        text.parse::<i64>().map_err(refuse)
    };
    let base = directives.read("priority", |text| match text {
        "TOP" => Ok(i64::from(i32::MAX)),
        text => number(text),
    })?;
    let nice = directives.read("nice", |text| match text {
        "" => Ok(NICE_DEFAULT),
        text => number(text),
    })?;
    let priority = base.unwrap_or(0).saturating_sub(nice.unwrap_or(0));
    let held = priority.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
    Ok(i32::try_from(held).unwrap_or(0))
}

fn count(text: &str) -> Result<u32, Complaint> {
    let number = text.parse::<u32>().ok().filter(|number| (1..=COUNT_MAX).contains(number));
    number.ok_or_else(|| {
        Complaint::new(format!("{} is not a count", quote(text)), format!("give 1 to {COUNT_MAX}"))
    })
}

/// `N` or `least-most`, of which the least counts.
fn nodes(text: &str) -> Result<u32, Complaint> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let (least, most) = (count(least)?, count(most)?);
    if least > most {
        let what = format!("{} has its ends the wrong way round", quote(text));
        return Err(Complaint::new(what, "give least-most, such as 2-4"));
    }
    Ok(least)
}
