//! Sending a job back to the queue with the reason, for `hotpot explain` and whoever looks at it.
//!
//! Not from within Prolog: a job that is requeued while its Prolog runs is later started without one
//! (seen with 22.05). Until then its tasks are kept from running by its file.

use std::thread;
use std::time::{Duration, Instant};

use super::NodeError;
use crate::commands::{Slurm, SlurmError, start_later};
use crate::job::Job;

/// A job that was sent back so often is held: something is wrong that trying again does not mend.
const RESTARTS_MAX: u32 = 10;
/// What stands in front of the reason in a job's AdminComment.
const MARK: &str = "hotpot-sent-back(";
/// How long other nodes' Prologs of a job may take.
const PROLOGS: Duration = Duration::from_secs(300);
/// How long a job has run before it is ended: a signal that comes before slurmstepd has started the script is
/// lost, and Slurm takes a node out of use whose tasks cannot be ended.
const SETTLED: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Starts `hotpot slurm send-back` for a job, which outlives the Prolog that starts it.
pub(super) fn send_back_later(job: u32, why: &str) -> Result<(), NodeError> {
    start_later(&["send-back", &job.to_string(), why])
        .map_err(|source| NodeError::File { path: "hotpot".into(), source })
}

/// Requeues a job once its Prologs are through, or cancels one that Slurm cannot start anew by itself.
///
/// * `why` — noted in its AdminComment.
///
/// # Errors
/// Slurm does not answer, or refuses.
pub fn send_back(slurm: Slurm, id: u32, why: &str) -> Result<(), SlurmError> {
    let begun = Instant::now();
    let job = loop {
        let Some(job) = Job::ask(slurm, id)? else { return Ok(()) };
        if !job.in_prolog || begun.elapsed() > PROLOGS {
            break job;
        }
        thread::sleep(LOOK_EVERY);
    };
    if !job.is_on_nodes() {
        return Ok(());
    }
    thread::sleep(SETTLED);
    let (id, comment) = (format!("jobid={}", job.target), noted(&job.admin_comment, why));
    // The reason is good to have; the job must go back without it too.
    let _said = slurm.call("scontrol", &["update", &id, &format!("admincomment={comment}")]);
    match (job.can_be_requeued, job.restarts < RESTARTS_MAX) {
        (true, true) => slurm.call("scontrol", &["requeue", &job.target])?,
        (true, false) => slurm.call("scontrol", &["requeuehold", &job.target])?,
        (false, _) => slurm.call("scancel", &[&job.target])?,
    };
    Ok(())
}

/// Why a job was sent back the last time, by its AdminComment; `None` if it was not.
pub fn sent_back(comment: &str) -> Option<String> {
    let (_, rest) = comment.split_once(MARK)?;
    Some(rest.split(')').next().unwrap_or(rest).to_owned())
}

/// The comment with a reason, instead of an earlier one.
fn noted(comment: &str, why: &str) -> String {
    let why: String = why.chars().map(|c| if "()\"'".contains(c) { ' ' } else { c }).collect();
    let before = match comment.split_once(MARK) {
        Some((before, rest)) => {
            let after = rest.split_once(')').map_or("", |(_, after)| after);
            format!("{}{after}", before.trim_end())
        }
        None => comment.to_owned(),
    };
    format!("{before} {MARK}{why})").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_takes_the_place_of_an_earlier_one() {
        let once = noted("hotpot(gpu-mem=1)", "n1: held by slurm/7 (whole)");
        assert_eq!(once, "hotpot(gpu-mem=1) hotpot-sent-back(n1: held by slurm/7  whole )");
        assert_eq!(noted(&once, "n2: x"), "hotpot(gpu-mem=1) hotpot-sent-back(n2: x)");
        assert_eq!(noted("", "x"), "hotpot-sent-back(x)");
        assert_eq!(sent_back(&once).as_deref(), Some("n1: held by slurm/7  whole "));
        assert_eq!(sent_back("hotpot(gpu-mem=1)"), None);
    }
}
