//! The variables that a task finds: Slurm's, so that scripts run as they are, CUDA's and our own.
//!
//! Names and meaning of `SLURM_*`: sbatch manual, "output environment variables".

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use formats::job::Export;
use node::grant::Grant;
use node::limiter::PRELOAD_VARIABLE;

use crate::work::{Posted, Work};

/// What is the same for all tasks of a run.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Variables of the caller.
    pub inherited: BTreeMap<OsString, OsString>,
    /// This machine's name, without its domain.
    pub host: String,
    /// The user's name.
    pub user: String,
    /// The user's number.
    pub uid: u32,
    /// Name of the run, see [`crate::containment::name`].
    pub run: String,
    /// Folder with what stands in for programs of Slurm.
    pub stand_ins: Option<PathBuf>,
}

/// One start of a task.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The task.
    pub id: usize,
    /// The folder that the run was started in.
    pub folder: &'a Path,
    /// What it holds of each GPU, with the GPU's position in the driver's order.
    pub grants: &'a [(u32, Grant)],
    /// When it starts, in seconds since 1970.
    pub at_s: u64,
}

/// Variables without which few programs work; kept even by `--export=NONE`.
const NEEDED: [&str; 6] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"];

/// All variables of a task.
pub fn of(work: &Work, around: &Surroundings, start: &Start<'_>) -> BTreeMap<OsString, OsString> {
    let posted = work.job_of(start.id);
    let launch = &posted.job.launch;
    let mut env = inherited(&launch.export, &around.inherited);
    let mut set = |name: &str, value: String| {
        env.insert(name.into(), value.into());
    };
    for (name, value) in &launch.env {
        set(name, value.clone());
    }
    for (name, value) in slurm(work, posted, around, start) {
        set(name, value);
    }
    if let (Some(variable), Some(index)) = (&launch.index_variable, work.tasks[start.id].index) {
        set(variable, index.to_string());
    }
    for (name, value) in start.grants.iter().flat_map(|(_, grant)| &grant.env) {
        match name.as_str() {
            PRELOAD_VARIABLE => preload(&mut env, value),
            name => drop(env.insert(name.into(), value.into())),
        }
    }
    let mut set = |name: &str, value: String| {
        env.insert(name.into(), value.into());
    };
    let devices: Vec<&str> = start.grants.iter().map(|(_, grant)| grant.device.as_str()).collect();
    // Empty hides every GPU from a task that has booked none.
    set("CUDA_VISIBLE_DEVICES", devices.join(","));
    set(
        "NVIDIA_VISIBLE_DEVICES",
        if devices.is_empty() { "void".into() } else { devices.join(",") },
    );
    if let Some(stand_ins) = &around.stand_ins {
        let path = env.get(OsStr::new("PATH")).cloned().unwrap_or_default();
        let all = std::iter::once(stand_ins.clone()).chain(std::env::split_paths(&path));
        env.insert("PATH".into(), std::env::join_paths(all).unwrap_or(path));
    }
    let mut set = |name: &str, value: String| {
        env.insert(name.into(), value.into());
    };
    set("HOTPOT_RUN", around.run.clone());
    set("HOTPOT_TASK", work.label(start.id));
    env
}

/// Puts a library before those that a task wants to be preloaded itself (names in the list go with `:`
/// or blanks between them, ld.so(8)).
fn preload(env: &mut BTreeMap<OsString, OsString>, library: &str) {
    let list = env.entry(PRELOAD_VARIABLE.into()).or_default();
    let theirs = std::mem::replace(list, library.into());
    let names = theirs.as_bytes().split(|byte| b": \t\n".contains(byte));
    for name in names.filter(|name| !name.is_empty() && *name != library.as_bytes()) {
        list.push(":");
        list.push(OsStr::from_bytes(name));
    }
}

fn inherited(export: &Export, all: &BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
    let keep = |name: &OsString| {
        let name = name.to_string_lossy();
        // A run inside a Slurm job or another run must not hand its own down.
        let of_another = ["SLURM_", "HOTPOT_TASK", "HOTPOT_RUN", "HOTPOT_SIMULATED", "CUDA_MPS_"]
            .iter()
            .any(|own| name.starts_with(own));
        let needed = NEEDED.contains(&name.as_ref());
        let wanted = match export {
            Export::All => true,
            Export::Nothing => needed,
            Export::Named(names) => needed || names.iter().any(|wanted| *wanted == name),
        };
        wanted && !of_another
    };
    all.iter().filter(|(name, _)| keep(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn slurm(
    work: &Work,
    posted: &Posted,
    around: &Surroundings,
    start: &Start<'_>,
) -> Vec<(&'static str, String)> {
    let task = &work.tasks[start.id];
    let pattern = &posted.job.pattern;
    let processes = u64::from(posted.job.launch.processes.max(1));
    let all_cpus = (pattern.demand.cpu_milli / 1000).max(1);
    let cpus = all_cpus.to_string();
    let number = work.number(start.id).to_string();
    let folder = start.folder.display().to_string();
    let mut set = vec![
        ("SLURM_JOB_ID", number.clone()),
        ("SLURM_JOBID", number),
        ("SLURM_JOB_NAME", pattern.name.clone()),
        ("SLURM_JOB_USER", around.user.clone()),
        ("SLURM_JOB_UID", around.uid.to_string()),
        ("SLURM_JOB_ACCOUNT", pattern.owner.to_string()),
        ("SLURM_JOB_PARTITION", "hotpot".to_string()),
        ("SLURM_CLUSTER_NAME", "hotpot".to_string()),
        ("SLURM_SUBMIT_DIR", folder),
        ("SLURM_SUBMIT_HOST", around.host.clone()),
        ("SLURM_JOB_NODELIST", around.host.clone()),
        ("SLURM_NODELIST", around.host.clone()),
        ("SLURMD_NODENAME", around.host.clone()),
        ("SLURM_JOB_NUM_NODES", "1".to_string()),
        ("SLURM_NNODES", "1".to_string()),
        ("SLURM_NODEID", "0".to_string()),
        ("SLURM_PROCID", "0".to_string()),
        ("SLURM_LOCALID", "0".to_string()),
        ("SLURM_NTASKS", processes.to_string()),
        ("SLURM_NPROCS", processes.to_string()),
        ("SLURM_TASKS_PER_NODE", processes.to_string()),
        ("SLURM_CPUS_ON_NODE", cpus.clone()),
        ("SLURM_JOB_CPUS_PER_NODE", cpus),
        ("SLURM_CPUS_PER_TASK", (all_cpus / processes).max(1).to_string()),
        ("SLURM_RESTART_COUNT", task.attempts.saturating_sub(1).to_string()),
        ("SLURM_JOB_START_TIME", start.at_s.to_string()),
    ];
    if pattern.demand.memory_mib > 0 {
        set.push(("SLURM_MEM_PER_NODE", pattern.demand.memory_mib.to_string()));
    }
    if let Some(limit_ms) = pattern.time_limit_ms {
        set.push(("SLURM_JOB_END_TIME", (start.at_s + limit_ms / 1000).to_string()));
    }
    if !start.grants.is_empty() {
        let indices: Vec<String> =
            start.grants.iter().map(|(index, _)| index.to_string()).collect();
        set.push(("SLURM_JOB_GPUS", indices.join(",")));
        set.push(("SLURM_GPUS", indices.len().to_string()));
        set.push(("SLURM_GPUS_ON_NODE", indices.len().to_string()));
    }
    if let (Some(array), Some(index)) = (&posted.job.array, task.index) {
        let (first, last) = (array.indices.first(), array.indices.last());
        let step = match array.indices.as_slice() {
            [first, second, ..] => second - first,
            _ => 1,
        };
        set.push(("SLURM_ARRAY_JOB_ID", work.job_number(start.id).to_string()));
        set.push(("SLURM_ARRAY_TASK_ID", index.to_string()));
        set.push(("SLURM_ARRAY_TASK_COUNT", array.indices.len().to_string()));
        set.push(("SLURM_ARRAY_TASK_MIN", first.copied().unwrap_or(0).to_string()));
        set.push(("SLURM_ARRAY_TASK_MAX", last.copied().unwrap_or(0).to_string()));
        set.push(("SLURM_ARRAY_TASK_STEP", step.to_string()));
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_wants_preloaded_comes_behind_the_limiter() {
        let after = |theirs: Option<&str>| {
            let name = || OsString::from(PRELOAD_VARIABLE);
            let mut env: BTreeMap<OsString, OsString> =
                theirs.map(|theirs| (name(), theirs.into())).into_iter().collect();
            preload(&mut env, "/l.so");
            // One grant for each GPU says the same.
            preload(&mut env, "/l.so");
            env[&name()].clone()
        };
        assert_eq!(after(None), "/l.so");
        assert_eq!(after(Some("/a.so:/b.so /c.so")), "/l.so:/a.so:/b.so:/c.so");
        assert_eq!(after(Some(" :/l.so:")), "/l.so", "a run within a run names it once");
    }
}
