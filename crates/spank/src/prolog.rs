//! hotpot's Prolog, run by the plugin where Slurm has not run it: a job that was requeued is started without one
//! at times (seen with 22.05), and a site may have no Prolog at all.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::arguments::Arguments;
use crate::host::Call;
use crate::pilots::own_file;
use crate::task::{of, path};
use crate::task_file::TaskFile;

/// Where it lies, seen from the plugin's folder.
const INSTALLED: &str = "slurm/prolog";

/// Why no task may run: noted in slurmstepd, heeded in the tasks' processes that it makes. By itself slurmstepd
/// must go on, or Slurm would wait for it.
static FAILED: Mutex<Option<String>> = Mutex::new(None);

/// Sees to it that the job's file is there, in slurmstepd and as root, before any task.
pub(crate) fn ensure(call: Call, arguments: &Arguments) {
    if let (Err(why), Ok(mut failed)) = (try_to(call, arguments), FAILED.lock()) {
        *failed = Some(why);
    }
}

/// # Errors
/// The file could not be had: no task may run.
pub(crate) fn done() -> Result<(), String> {
    let failed = FAILED.lock().map_err(|error| error.to_string())?;
    failed.as_ref().map_or(Ok(()), |why| Err(why.clone()))
}

fn try_to(call: Call, arguments: &Arguments) -> Result<(), String> {
    let (job, node) = of(call)?;
    let path = path(arguments, job, &node);
    // Whether it is of this start can be told only later: Slurm does not yet say how often the job was started.
    let is_there = || TaskFile::open(&path).is_ok_and(|file| file.is_some());
    if is_there() {
        return Ok(());
    }
    let Some(program) = program(arguments) else { return Ok(()) };
    let mut command = Command::new(&program);
    command.env("SLURM_JOB_ID", job.to_string()).env("SLURMD_NODENAME", &node);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let shown = program.display();
    let done = command.status().map_err(|error| format!("{shown}: {error}"))?;
    if !done.success() {
        return Err(format!("job {job} does not run on {node}: {shown} failed ({done})"));
    }
    if is_there() { Ok(()) } else { Err(format!("{}: {shown} did not write it", path.display())) }
}

fn program(arguments: &Arguments) -> Option<PathBuf> {
    let installed = || Some(own_file()?.parent()?.join(INSTALLED)).filter(|path| path.is_file());
    arguments.prolog.clone().or_else(installed)
}
