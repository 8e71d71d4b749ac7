//! One door for everything that can be run: the kind of file is told by its content or extension.

use crate::error::ReadError;
use crate::job::Job;
use crate::text::Source;
use crate::trace::TraceKind;
use crate::{kubernetes, sbatch, trace, workloads};

/// Reads the jobs of a file: an sbatch script, a Kubernetes manifest, or workloads in TOML or YAML.
///
/// * `shard_mib` — device memory that one `--gres=shard` stands for.
///
/// # Errors
/// As the readers of each kind; a trace has nothing that could be run.
pub fn jobs_of(source: &Source, shard_mib: u64) -> Result<Vec<Job>, ReadError> {
    if kubernetes::is_manifest(source) {
        return kubernetes::jobs(source);
    }
    match trace::kind(source)? {
        TraceKind::Sbatch => Ok(vec![sbatch::job(source, shard_mib)?]),
        TraceKind::Workloads => workloads::jobs(source),
        TraceKind::Openb | TraceKind::Runtimes | TraceKind::Gavel | TraceKind::Sacct => {
            let what = "is a trace, which has no commands";
            Err(source.error(what, "replay it with `hotpot simulate`, or give an sbatch script"))
        }
    }
}
