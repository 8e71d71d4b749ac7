//! A job that is over, as accounting keeps it, or as slurmctld does for a while.

use formats::Source;
use formats::sacct::{self, JobRow};
use serde::Serialize;

use super::text::counted;
use super::{Answer, Standing};
use crate::commands::{Slurm, SlurmError};
use crate::on_node::sent_back;
use crate::queue_view::JobView;
use crate::usage::{UsedOn, is_disabled};

/// What became of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Over {
    /// Slurm's word.
    pub state: String,
    /// Exit code and signal.
    pub exit: String,
    /// Whether it was started.
    pub ran: bool,
    /// What it had of GPUs, in words.
    pub had: String,
    /// What it used of them, by node, where that was measured.
    pub used: Vec<UsedOn>,
}

impl Over {
    /// As slurmctld remembers it; accounting knows more.
    pub(super) fn of(job: &JobView) -> Self {
        Self {
            state: job.job.state.clone(),
            exit: "not known".to_owned(),
            ran: !job.nodes.is_empty(),
            had: format!("nodes {}", job.nodes.join(",")),
            used: UsedOn::all_of(&job.job.admin_comment),
        }
    }
}

/// Asks accounting for a job that is over; `None` if it keeps no such job, or there is no accounting.
///
/// # Errors
/// Accounting does not answer.
pub fn over(slurm: Slurm, name: &str) -> Result<Option<Answer>, SlurmError> {
    let format = format!("--format={}", sacct::COLUMNS);
    let separator = format!("--delimiter={}", sacct::SEPARATOR);
    let words = ["--allocations", "--parsable2", &format, &separator, "--jobs", name];
    let text = match slurm.call_in_seconds("sacct", &words) {
        Err(error) if is_disabled(&error) => return Ok(None),
        other => other?,
    };
    Ok(of_accounting(&text, name))
}

/// Reads accounting's answer.
pub(super) fn of_accounting(text: &str, name: &str) -> Option<Answer> {
    let source = Source::from_bytes("sacct", text.as_bytes().to_vec()).ok()?;
    let (rows, _) = sacct::rows(&source).ok()?;
    let row = rows.iter().find(|row| row.id == name || row.raw_id == name);
    let row = row.or_else(|| rows.first())?;
    Some(Answer {
        format: "hotpot-slurm-job/1",
        job: row.id.clone(),
        name: row.name.clone(),
        user: row.user.clone(),
        account: row.account.clone(),
        partitions: vec![row.partition.clone()],
        state: row.state.clone(),
        for_s: Some(row.elapsed_s),
        asks: asks(row),
        array: None,
        pilots: None,
        sent_back: sent_back(&row.admin_comment),
        standing: Standing::Over(Over {
            state: row.state.clone(),
            exit: row.exit.clone(),
            ran: !row.nodes.is_empty(),
            had: had(row),
            used: UsedOn::all_of(&row.admin_comment),
        }),
    })
}

fn asks(row: &JobRow) -> String {
    format!("{}, {}", counted(row.asked.cpus, "CPU"), gpus(&row.asked))
}

fn gpus(tres: &sacct::Tres) -> String {
    let mut parts: Vec<String> =
        tres.typed_gpus.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    let untyped = tres.gpus - tres.typed_gpus.values().sum::<u64>().min(tres.gpus);
    if untyped > 0 {
        parts.push(counted(untyped, "GPU"));
    }
    if tres.shards > 0 {
        parts.push(counted(tres.shards, "shard"));
    }
    if parts.is_empty() { "no GPU".to_owned() } else { parts.join(", ") }
}

fn had(row: &JobRow) -> String {
    if row.nodes.is_empty() {
        return "nothing: it never started".to_owned();
    }
    format!("{} on {}", gpus(&row.given), row.nodes)
}
