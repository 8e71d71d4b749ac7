//! Why a job of Slurm waits, or what became of it.

use slurm::explain::{self, Standing};
use slurm::queue_view::{QueueView, not_shown};
use slurm::site::Site;
use slurm::{Slurm, SlurmError};

use crate::args::Output;
use crate::failure::{Answer, Failure};
use crate::{screen, words};

/// * `job` — its number, or `ARRAY_TASK`.
pub(crate) fn explain(job: &str, output: Output) -> Result<Answer, Failure> {
    let site = Site::read().map_err(|error| Failure::Usage(error.to_string()))?;
    let view = QueueView::ask(Slurm, site.shard_mib).map_err(|error| unreached(job, &error))?;
    not_shown(&view.unread).iter().for_each(|text| screen::note(text));
    let known = explain::explain(&view, job);
    let is_over = known.as_ref().is_none_or(|it| matches!(it.standing, Standing::Over(_)));
    // Accounting knows what was used; slurmctld forgets soon.
    let kept = match is_over {
        true => explain::over(Slurm, job).map_err(|error| unreached(job, &error))?,
        false => None,
    };
    let answer = kept.or(known).ok_or_else(|| {
        Failure::Usage(format!(
            "{job}: neither the queue nor the accounts of Slurm have such a job; `squeue` and `sacct` list them"
        ))
    })?;
    screen::print(&match output {
        Output::Json => words::to_json(&answer),
        Output::Table => answer.text(site.shard_mib),
    })
}

/// Whoever has no Slurm may have meant something else.
fn unreached(job: &str, error: &SlurmError) -> Failure {
    Failure::Usage(format!(
        "{job} was taken for a job of Slurm, which does not answer: {error}. A workload that is in a file: `hotpot \
         explain '#{job}' jobs.toml --fleet fleet.toml`; a task of a run on this machine: `hotpot explain {job} \
         --run last`"
    ))
}
