//! What was held of GPUs and what was used, from Slurm's accounting and what hotpot has written there. All
//! sharing modes are counted in GPU equivalents: a whole GPU is 1, shards are their part of a card, an instance
//! its compute slices.

mod held;
mod quota;
mod size;
mod table;

use formats::sacct::{self, JobRow};
use formats::{ReadError, Source};
use serde::Serialize;

use crate::commands::{Slurm, SlurmError};
use crate::queue_view::QueueView;
pub use held::{By, Line, lines};
pub use quota::{Quota, quotas};
pub(crate) use size::amount;
pub use size::{MARGIN_PERCENT, RUNS_MIN, Size, Sizing, sizes};

/// What jobs' shares are counted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cards<'a> {
    /// The cluster, where it can be asked.
    pub view: Option<&'a QueueView>,
    /// Shards of each card, where the cluster cannot be asked or has told none.
    pub shards: Option<u64>,
    /// Device memory of a shard.
    pub shard_mib: u64,
}

/// What is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish<'a> {
    /// Only what was held from here on, in seconds since 1970; 0 for all.
    pub since_s: u64,
    /// What the lines are of.
    pub by: By,
    /// Of this user only.
    pub user: Option<&'a str>,
    /// How sizes are suggested.
    pub sizing: Sizing,
}

/// The report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// `hotpot-slurm-report/1`.
    pub format: &'static str,
    /// What the lines are of.
    pub by: By,
    /// Those who held most first.
    pub lines: Vec<Line>,
    /// All of them.
    pub total: Line,
    /// Right sizes of what was measured.
    pub sizes: Vec<Size>,
    /// Quotas beside what is held now.
    pub quotas: Vec<Quota>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// Asks accounting for jobs that ran, as text for [`report`].
///
/// * `since_s` — how far back, in seconds.
/// * `name` — jobs of this name alone, as far as sacct can tell them.
///
/// # Errors
/// Slurm does not answer, or keeps no accounts.
pub fn ask(
    slurm: Slurm,
    since_s: u64,
    user: Option<&str>,
    name: Option<&str>,
) -> Result<String, SlurmError> {
    let format = format!("--format={}", sacct::COLUMNS);
    let separator = format!("--delimiter={}", sacct::SEPARATOR);
    let since = format!("--starttime=now-{since_s}");
    let user = user.map_or("--allusers".to_owned(), |user| format!("--user={user}"));
    // Duplicates: each start of a job that was started anew held something.
    let mut words =
        vec!["--allocations", "--duplicates", "--parsable2", &format, &separator, &since, &user];
    // sacct takes a comma for the begin of another name.
    let name = name.filter(|name| !name.contains(',')).map(|name| format!("--name={name}"));
    words.extend(name.as_deref());
    slurm.call_in_seconds("sacct", &words)
}

/// Makes the report.
///
/// # Errors
/// The list is none of sacct's.
pub fn report(source: &Source, cards: &Cards<'_>, wish: &Wish<'_>) -> Result<Report, ReadError> {
    let (rows, unclear) = sacct::rows(source)?;
    let of_user = |row: &JobRow| wish.user.is_none_or(|user| row.user == user);
    let rows: Vec<JobRow> =
        rows.into_iter().filter(|row| row.given.has_gpus() && of_user(row)).collect();
    let mut notes = Vec::new();
    if unclear > 0 {
        notes.push(format!("{unclear} line(s) left out: a name holds the separator"));
    }
    let shared = rows.iter().filter(|row| row.given.shards > 0);
    let unknown = shared.filter(|row| cards.shards_of(row).is_none()).count();
    if unknown > 0 {
        let way_out = "name the shards of a card with --shards-per-card";
        notes.push(format!("{unknown} job(s) with shards hold nothing here: {way_out}"));
    }
    let untyped = |row: &&JobRow| row.given.gpus > row.given.typed_gpus.values().sum();
    let has_types = rows.iter().any(|row| !row.given.typed_gpus.is_empty());
    let count = rows.iter().filter(untyped).count();
    if count > 0 && has_types {
        notes.push(format!(
            "{count} job(s) have GPUs whose type is not accounted; they count as whole (add gres/gpu:TYPE to \
             AccountingStorageTRES)"
        ));
    }
    let (lines, total) = lines(&rows, cards, wish);
    Ok(Report {
        format: "hotpot-slurm-report/1",
        by: wish.by,
        lines,
        total,
        sizes: sizes(&rows, cards, &wish.sizing),
        quotas: Vec::new(),
        notes,
    })
}
