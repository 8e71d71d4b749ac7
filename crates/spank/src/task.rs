//! What a task sees of its job's share of GPUs: the devices of its step by the names that CUDA knows, and the
//! variables that hold it to its caps.

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::arguments::Arguments;
use crate::host::{self, Call};
use crate::prolog;
use crate::task_file::TaskFile;

/// Numbers of steps that have all that their job has: `SLURM_INTERACTIVE_STEP`, `SLURM_BATCH_SCRIPT` and
/// `SLURM_EXTERN_CONT` of `slurm.h`.
const STEPS_OF_THE_JOB: std::ops::RangeInclusive<u32> = 0xffff_fffa..=0xffff_fffc;

/// `SLURM_BATCH_SCRIPT` of `slurm.h`.
const BATCH_SCRIPT: u32 = 0xffff_fffb;
/// Seconds for which a job that goes back into the queue is waited for to be ended.
const SENT_BACK_WAIT_S: &CStr = c"300";

/// Gives a task its environment, in the task's process just before its program takes over.
///
/// # Errors
/// Why the task must not run.
pub(crate) fn prepare(call: Call, arguments: &Arguments) -> Result<(), String> {
    prolog::done()?;
    let (job, node) = of(call)?;
    let Some(file) = TaskFile::open(&path(arguments, job, &node))? else { return Ok(()) };
    if !is_of_this_start(call, &file) {
        return Err(format!(
            "job {job} does not run on {node}: hotpot's Prolog has not run for this start of it; to try again: \
             scontrol requeue {job}"
        ));
    }
    if let Some(why) = file.refuse {
        if file.sent_back {
            host::error(&format!("hotpot: job {job} goes back into the queue: {why}"));
            wait_for_the_end();
        }
        return Err(format!("job {job} does not run on {node}: {why}"));
    }
    let set = |name: &str, value: &str| {
        call.set(name, value).map_err(|code| format!("{name} cannot be set: Slurm says {code}"))
    };
    for (name, value) in &file.set {
        set(name, value)?;
    }
    for (name, value) in &file.prepend {
        set(name, &prepended(value, call.variable(name)))?;
    }
    if file.devices.is_empty() {
        return Ok(());
    }
    let gpus = call.variable("SLURM_STEP_GPUS");
    let whole = call.step().is_some_and(|step| STEPS_OF_THE_JOB.contains(&step))
        // Slurm gives a step shards and forgets to say of which GPU when its tasks are bound to GPUs.
        || gpus.is_none() && call.variable("SLURM_SHARDS_ON_NODE").is_some();
    let allowed = if whole { None } else { allowed(&file) };
    let devices = allowed.map_or_else(|| visible(&file.devices, whole, gpus.as_deref()), Ok)?;
    set("CUDA_VISIBLE_DEVICES", &devices)?;
    // Where this is empty, NVIDIA's container tools give what the image asks for.
    set("NVIDIA_VISIBLE_DEVICES", if devices.is_empty() { "void" } else { &devices })
}

/// Waits to be ended, as whoever wrote the file has Slurm do: to end by ourselves would end the job. As another
/// program: Slurm passes over processes that are called slurmstepd, as this one still is.
fn wait_for_the_end() {
    let words = [c"/bin/sleep".as_ptr(), SENT_BACK_WAIT_S.as_ptr(), std::ptr::null()];
    // SAFETY: all-zero is an empty set of signals; the words end with a null pointer and outlive the call.
    unsafe {
        let none = std::mem::zeroed();
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execv(words[0], words.as_ptr());
    }
}

/// The job's number and the node's name.
pub(crate) fn of(call: Call) -> Result<(u32, String), String> {
    let job = call.job().ok_or("Slurm does not say which job this is")?;
    // slurmstepd has it from slurmd; in the job's environment it comes late, and might be the user's.
    let node = std::env::var("SLURMD_NODENAME").ok().or_else(|| call.variable("SLURMD_NODENAME"));
    let node = node.unwrap_or_default();
    if node.contains('/') {
        return Err(format!("'{node}' is not the name of a node"));
    }
    Ok((job, node))
}

/// The job's file.
pub(crate) fn path(arguments: &Arguments, job: u32, node: &str) -> PathBuf {
    Path::new(&arguments.jobs.replace("%n", node)).join(format!("{job}.task"))
}

/// Whether a file is about this start of the job. Only a batch script is started again, and before its steps;
/// what those have in their environment is the user's.
fn is_of_this_start(call: Call, file: &TaskFile) -> bool {
    let is_script = call.step() == Some(BATCH_SCRIPT);
    !is_script || file.restart.is_none_or(|meant| meant == restarts(call))
}

/// How often the job was started before. 22.05 has an item for it that is always 0, and a variable, which is not
/// there the first time; what `sbatch` in a restarted job would pass on of it, the plugin takes away there.
fn restarts(call: Call) -> u32 {
    let variable = call.variable("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok());
    variable.unwrap_or(0)
}

/// The devices whose files this task may open, if there are some that it may not. Where cgroups keep each task to
/// its own, Slurm 22.05 says the same `SLURM_STEP_GPUS` to all tasks of a step.
fn allowed(file: &TaskFile) -> Option<String> {
    let is_forbidden = |number: u32| {
        let path = file.files.iter().find(|(of, _)| *of == number).map(|(_, path)| path);
        let open = |path| OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        // What cgroups forbid, not what a file's mode does.
        path.is_some_and(|path| {
            open(path).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
        })
    };
    let names = file.devices.iter().filter(|(number, _)| !is_forbidden(*number));
    let names: Vec<&str> = names.map(|(_, name)| name.as_str()).collect();
    (names.len() < file.devices.len()).then(|| names.join(","))
}

/// The devices of a step, as CUDA wants them.
///
/// * `whole` — the step has all GPUs of its job.
/// * `gpus` — `SLURM_STEP_GPUS`, which Slurm sets for a step with GPUs, for each task to its own where tasks are
///   bound to GPUs. A step without (`srun --gres=none`) must see none: CUDA would show it all of the node.
fn visible(devices: &[(u32, String)], whole: bool, gpus: Option<&str>) -> Result<String, String> {
    if whole {
        let names: Vec<&str> = devices.iter().map(|(_, name)| name.as_str()).collect();
        return Ok(names.join(","));
    }
    let gpus = gpus.unwrap_or_default();
    let named = gpus.split(',').filter(|gpu| !gpu.is_empty()).map(|gpu| {
        let known = devices.iter().find(|(number, _)| gpu.parse() == Ok(*number));
        let names = known.map(|(_, name)| name.as_str());
        names.ok_or_else(|| format!("GPU {gpu} of this step is not one that hotpot gave the job"))
    });
    Ok(named.collect::<Result<Vec<&str>, String>>()?.join(","))
}

/// A list of files with one more in front, once.
fn prepended(value: &str, before: Option<String>) -> String {
    match before.filter(|before| !before.is_empty()) {
        None => value.into(),
        Some(before) if before.split([':', ' ']).next() == Some(value) => before,
        Some(before) => format!("{value}:{before}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_sees_the_gpus_it_has() {
        let devices = [(0, "GPU-a".to_string()), (2, "GPU-b".into()), (3, "MIG-c".into())];
        let see = |whole, gpus| visible(&devices, whole, gpus);
        assert_eq!(see(true, None).unwrap(), "GPU-a,GPU-b,MIG-c");
        assert_eq!(see(true, Some("0")).unwrap(), "GPU-a,GPU-b,MIG-c", "left over from outside");
        assert_eq!(see(false, Some("3,0")).unwrap(), "MIG-c,GPU-a");
        assert_eq!(see(false, None).unwrap(), "");
        assert!(see(false, Some("1")).unwrap_err().contains("GPU 1 of this step"));
    }

    #[test]
    fn what_the_user_preloads_stays() {
        assert_eq!(prepended("/l.so", None), "/l.so");
        assert_eq!(prepended("/l.so", Some(String::new())), "/l.so");
        assert_eq!(prepended("/l.so", Some("/a.so:/b.so".into())), "/l.so:/a.so:/b.so");
        assert_eq!(prepended("/l.so", Some("/l.so:/a.so".into())), "/l.so:/a.so");
    }
}
