//! Bringing what jobs used into their accounting records.
//!
//! slurmctld takes no change of a job that is over (`Job has already finished`, 22.05), so accounting is asked
//! itself. A job's record must have come to its end there first, or slurmctld overwrites what was written. Nodes of
//! one job write the same comment without a lock: each looks again whether its word is still there. Until it is,
//! the word stays in a file of the node, and the next `hotpot slurm tidy` tries again.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use formats::Source;
use formats::sacct::{self, JobRow};
use node::tool::ToolError;

use super::waiting::{self, Turn, Word};
use crate::commands::{Slurm, SlurmError, start_later};

/// For how long without any success is tried before the rest is left to `tidy`.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at first; later twice that, and so on.
const STEP: Duration = Duration::from_millis(500);
const STEP_MAX: Duration = Duration::from_secs(5);
/// How often a word must be seen before it counts as kept: another node may just be writing.
const SEEN: u32 = 2;
/// Jobs that accounting is asked for at once.
const AT_ONCE: usize = 500;
/// After so many changes that accounting refused, the others have to wait for the next look.
const REFUSED_MAX: usize = 8;

/// Starts `hotpot slurm keep-usage`, which outlives the Epilog that starts it.
///
/// # Errors
/// It cannot be started.
pub fn publish_later(node: &str) -> io::Result<()> {
    start_later(&["keep-usage", "--node", node])
}

/// Brings all words that wait in a folder into accounting, unless another process is at it; returns how many
/// are left. Where there is no accounting, they are let go.
///
/// * `is_patient` — wait for accounting to catch up; else one look at some of them, those that have waited for one the
///   longest, for which a word that is there is kept.
///
/// # Errors
/// Slurm does not answer; or it took no change of some job, the others' words being brought all the same.
pub fn publish(slurm: Slurm, folder: &Path, is_patient: bool) -> Result<usize, SlurmError> {
    if waiting::all(folder).is_empty() {
        return Ok(0);
    }
    let Some(turn) = Turn::take(folder, is_patient) else { return Ok(waiting::all(folder).len()) };
    let mut keeper = Keeper { seen_min: if is_patient { SEEN } else { 1 }, ..Keeper::default() };
    let (mut progress, mut step) = (Instant::now(), STEP);
    loop {
        let words = waiting::all(folder);
        let next = turn.next(&words, AT_ONCE);
        let Some((last, _)) = next.last() else { return Ok(0) };
        let Some(rows) = look(slurm, next.iter().map(|(job, _)| *job))? else {
            words.values().for_each(Word::remove);
            return Ok(0);
        };
        let looked = keeper.look(&next, &rows, |job, comment| enter(slurm, job, comment));
        turn.note(looked.stopped_at.unwrap_or(*last));
        if looked.kept {
            progress = Instant::now();
        }
        if looked.kept || looked.entered {
            step = STEP;
        }
        if !is_patient || progress.elapsed() > PATIENCE {
            return keeper.end(waiting::all(folder).len());
        }
        thread::sleep(step);
        step = (step * 2).min(STEP_MAX);
    }
}

/// What one look has come to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Looked {
    /// Whether words were written to accounting.
    entered: bool,
    /// Whether words were seen there often enough.
    kept: bool,
    /// The job at which it was given up.
    stopped_at: Option<u32>,
}

/// What is known from look to look.
#[derive(Debug, Default)]
struct Keeper {
    seen_min: u32,
    /// How often the word of a job was in its record.
    seen: BTreeMap<u32, u32>,
    first_error: Option<SlurmError>,
}

impl Keeper {
    /// * `rows` — what accounting says of the jobs.
    /// * `enter` — writes a comment to a job's record.
    fn look(
        &mut self,
        words: &[(u32, &Word)],
        rows: &BTreeMap<u32, JobRow>,
        mut enter: impl FnMut(&str, &str) -> Result<(), SlurmError>,
    ) -> Looked {
        let (mut looked, mut refused) = (Looked::default(), 0);
        for (job, word) in words {
            let Some(row) = rows.get(job).filter(|row| row.end_s.is_some()) else { continue };
            if row.admin_comment.contains(&word.used.word()) {
                looked.kept |= self.seen(*job, word);
                continue;
            }
            self.seen.remove(job);
            match enter(&row.id, &word.used.noted_in(&row.admin_comment)) {
                Ok(()) => looked.entered = true,
                Err(error) => {
                    // One that says nothing would not answer for the next job either.
                    let is_refusal = matches!(error, SlurmError::Tool(ToolError::Failed { .. }));
                    refused = if is_refusal { refused + 1 } else { REFUSED_MAX };
                    self.first_error.get_or_insert(error);
                }
            }
            if refused >= REFUSED_MAX {
                looked.stopped_at = Some(*job);
                break;
            }
        }
        looked
    }

    /// Whether a word that is in its job's record once more is kept now.
    fn seen(&mut self, job: u32, word: &Word) -> bool {
        let times = self.seen.entry(job).or_default();
        *times += 1;
        let is_kept = *times >= self.seen_min;
        if is_kept {
            word.remove();
        }
        is_kept
    }

    /// What was refused does not count if nothing is left.
    fn end(self, left: usize) -> Result<usize, SlurmError> {
        self.first_error.filter(|_| left > 0).map_or(Ok(left), Err)
    }
}

/// What accounting says of jobs, by number; `None` where there is no accounting.
fn look(
    slurm: Slurm,
    jobs: impl Iterator<Item = u32>,
) -> Result<Option<BTreeMap<u32, JobRow>>, SlurmError> {
    let jobs: Vec<String> = jobs.map(|job| job.to_string()).collect();
    let format = "--format=JobID,JobIDRaw,State,Submit,End,ElapsedRaw,AllocTRES,AdminComment";
    let separator = format!("--delimiter={}", sacct::SEPARATOR);
    let jobs = format!("--jobs={}", jobs.join(","));
    let words = ["--allocations", "--parsable2", format, &separator, &jobs];
    let text = match slurm.call_in_seconds("sacct", &words) {
        Err(error) if is_disabled(&error) => return Ok(None),
        other => other?,
    };
    let rows = Source::from_bytes("sacct", text.into_bytes()).and_then(|it| sacct::rows(&it));
    let rows = rows.map(|(rows, _)| rows).unwrap_or_default();
    Ok(Some(rows.into_iter().filter_map(|row| Some((row.raw_id.parse().ok()?, row))).collect()))
}

/// Whether sacct says that there is no accounting.
pub(crate) fn is_disabled(error: &SlurmError) -> bool {
    error.to_string().contains("storage is disabled")
}

/// * `job` — `7`, or `4_3` of an array: `4` would be all of array 4.
fn enter(slurm: Slurm, job: &str, comment: &str) -> Result<(), SlurmError> {
    // It reads quotes as its own.
    let comment: String = comment.chars().filter(|letter| !"\"'".contains(*letter)).collect();
    let (of, set) = (format!("jobid={job}"), format!("admincomment={comment}"));
    slurm.call("sacctmgr", &["--immediate", "modify", "job", "where", &of, "set", &set])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::waiting::tests::{Folder, used};
    use super::*;

    /// What accounting says of jobs that are over.
    fn rows(comments: &[(u32, &str)]) -> BTreeMap<u32, JobRow> {
        let mut text =
            String::from("JobID|JobIDRaw|State|Submit|End|ElapsedRaw|AllocTRES|AdminComment\n");
        for (job, comment) in comments {
            text += &format!("{job}|{job}|COMPLETED|1|2|1|node=1|{comment}\n");
        }
        let source = Source::from_bytes("sacct", text.into_bytes()).unwrap();
        let (rows, _) = sacct::rows(&source).unwrap();
        rows.into_iter().map(|row| (row.raw_id.parse().unwrap(), row)).collect()
    }

    fn refused() -> Result<(), SlurmError> {
        let (call, status) = ("sacctmgr modify".to_owned(), "exit status: 1".to_owned());
        Err(ToolError::Failed { call, status, said: "Access/permission denied".into() }.into())
    }

    #[test]
    fn a_job_that_accounting_takes_no_change_of_is_in_nobodys_way() {
        let folder = Folder::new("usage-refused");
        (1..=3).for_each(|job| waiting::write(&folder.0, job, &used(1, None)).unwrap());
        let words = waiting::all(&folder.0);
        let words: Vec<_> = words.iter().map(|(job, word)| (*job, word)).collect();
        let mut keeper = Keeper { seen_min: 1, ..Keeper::default() };
        let mut entered = Vec::new();
        let mut enter = |job: &str, _: &str| match job {
            "1" => refused(),
            job => {
                entered.push(job.to_owned());
                Ok(())
            }
        };
        let seen = used(1, None).word();
        let told = rows(&[(1, ""), (2, "x"), (3, &seen)]);
        let looked = keeper.look(&words, &told, &mut enter);
        assert_eq!(looked, Looked { entered: true, kept: true, stopped_at: None });
        assert_eq!(entered, ["2"]);
        let left: Vec<u32> = waiting::all(&folder.0).into_keys().collect();
        assert_eq!(left, [1, 2], "what was entered stays until it is seen");
        assert!(keeper.end(left.len()).unwrap_err().to_string().contains("sacctmgr"));
    }

    #[test]
    fn what_fails_for_all_is_not_tried_for_all() {
        let folder = Folder::new("usage-all-refused");
        (1..=20).for_each(|job| waiting::write(&folder.0, job, &used(1, None)).unwrap());
        let words = waiting::all(&folder.0);
        let words: Vec<_> = words.iter().map(|(job, word)| (*job, word)).collect();
        let comments: Vec<(u32, &str)> = (1..=20).map(|job| (job, "")).collect();
        let (mut keeper, mut tried) = (Keeper::default(), 0);
        let looked = keeper.look(&words, &rows(&comments), |_, _| {
            tried += 1;
            refused()
        });
        assert_eq!((tried, looked.stopped_at), (REFUSED_MAX, Some(8)));
        assert_eq!(keeper.end(0).unwrap(), 0, "nothing is left");
    }
}
