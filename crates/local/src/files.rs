//! Where a task's output goes and where it works.

use std::path::{Path, PathBuf};

use formats::job::Program;

use crate::environment::Surroundings;
use crate::pattern::{self, Names};
use crate::work::Work;

/// Paths of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Working folder.
    pub folder: PathBuf,
    /// Standard output.
    pub output: PathBuf,
    /// Standard error, if it goes elsewhere.
    pub error: Option<PathBuf>,
    /// Standard input, if it comes from a file.
    pub input: Option<PathBuf>,
}

/// The paths of a task; relative ones start at its working folder, as with sbatch.
///
/// * `base` — the folder that the run was started in.
pub fn of_task(work: &Work, id: usize, around: &Surroundings, base: &Path) -> Paths {
    let posted = work.job_of(id);
    let launch = &posted.job.launch;
    let task = &work.tasks[id];
    let names = Names {
        job: work.job_number(id),
        task: work.number(id),
        index: task.index,
        name: &posted.job.pattern.name,
        user: &around.user,
        host: &around.host,
    };
    let folder = launch.directory.as_ref().map_or(base.to_path_buf(), |folder| base.join(folder));
    let path = |pattern: &String| folder.join(pattern::expand(pattern, &names));
    let program = match launch.program {
        Program::Script(_) => "slurm",
        Program::Command(_) => "%x",
    };
    let default = match task.index {
        Some(_) => format!("{program}-%A_%a.out"),
        None => format!("{program}-%j.out"),
    };
    Paths {
        output: path(launch.output.as_ref().unwrap_or(&default)),
        error: launch.error.as_ref().map(path),
        input: launch.input.as_ref().map(path),
        folder,
    }
}
