//! Bringing what jobs used into their accounting records.
//!
//! slurmctld takes no change of a job that is over (`Job has already finished`, 22.05), so accounting is asked
//! itself. A job's record must have come to its end there first, or slurmctld overwrites what was written. Nodes of
//! one job write the same comment without a lock: each looks again whether its word is still there. Until it is,
//! the word stays in a file of the node, and the next `hotpot slurm tidy` tries again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use formats::Source;
use formats::sacct::{self, JobRow};

use super::UsedOn;
use crate::commands::{Slurm, SlurmError, start_later};
use crate::whole;

/// For how long without any success is tried before the rest is left to `tidy`.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at first; later twice that, and so on.
const STEP: Duration = Duration::from_millis(500);
const STEP_MAX: Duration = Duration::from_secs(5);
/// How often a word must be seen before it counts as kept: another node may just be writing.
const SEEN: u32 = 2;
/// A word that accounting has not taken for so long is let go: it may not know the job, or not us.
const KEPT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Jobs that accounting is asked for at once.
const AT_ONCE: usize = 500;
/// What words of jobs are called.
const SUFFIX: &str = "used";
/// Their rights.
const MODE: u32 = 0o644;
/// Held by who brings a node's words to accounting.
const LOCK: &str = "used-lock";

/// Writes down what a job used, to be brought to accounting. What an earlier start of the job used here is
/// counted with it.
///
/// * `folder` — of the jobs' files of the node.
///
/// # Errors
/// The file cannot be written.
pub fn write(folder: &Path, job: u32, used: &UsedOn) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{job}.{SUFFIX}"));
    let sum = read(&path).map_or_else(|| used.clone(), |earlier| earlier.plus(used));
    whole::write(&path, &sum.word(), MODE)
}

fn read(path: &Path) -> Option<UsedOn> {
    UsedOn::all_of(&fs::read_to_string(path).ok()?).pop()
}

/// Words that wait, by job; old ones are removed.
fn waiting(folder: &Path) -> BTreeMap<u32, (PathBuf, UsedOn)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let paths = paths.filter(|path| path.extension().is_some_and(|it| it == SUFFIX));
    let read = |path: PathBuf| {
        if is_old(&path) {
            remove(&path);
            return None;
        }
        let job = path.file_stem()?.to_str()?.parse().ok()?;
        let used = read(&path)?;
        Some((job, (path, used)))
    };
    paths.filter_map(read).collect()
}

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
/// * `is_patient` — wait for accounting to catch up; else one look, for which a word that is there is kept.
///
/// # Errors
/// Slurm does not answer, or takes no change.
pub fn publish(slurm: Slurm, folder: &Path, is_patient: bool) -> Result<usize, SlurmError> {
    let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
    if waiting(folder).is_empty() {
        return Ok(0);
    }
    let Some(_lock) = lock(folder, is_patient) else { return Ok(waiting(folder).len()) };
    let (mut progress, mut step) = (Instant::now(), STEP);
    loop {
        let words = waiting(folder);
        if words.is_empty() {
            return Ok(0);
        }
        let Some(rows) = look(slurm, words.keys())? else {
            words.values().for_each(|(path, _)| remove(path));
            return Ok(0);
        };
        for (job, (path, used)) in &words {
            let Some(row) = rows.get(job).filter(|row| row.end_s.is_some()) else { continue };
            if !row.admin_comment.contains(&used.word()) {
                seen.remove(job);
                enter(slurm, &row.id, &used.noted_in(&row.admin_comment))?;
                step = STEP;
                continue;
            }
            let times = seen.entry(*job).or_default();
            *times += 1;
            if *times >= SEEN || !is_patient {
                remove(path);
                (progress, step) = (Instant::now(), STEP);
            }
        }
        if !is_patient || progress.elapsed() > PATIENCE {
            return Ok(waiting(folder).len());
        }
        thread::sleep(step);
        step = (step * 2).min(STEP_MAX);
    }
}

fn is_old(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|it| it.modified()).ok();
    written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > KEPT_MAX)
}

/// One word that cannot be removed is written again, which does no harm.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

/// The lock of a folder; whoever has it sees words that come later too, but for the last moment.
fn lock(folder: &Path, is_patient: bool) -> Option<File> {
    let file = File::create(folder.join(LOCK)).ok()?;
    for wait in [Duration::ZERO, STEP * 4] {
        thread::sleep(if is_patient { wait } else { Duration::ZERO });
        if file.try_lock().is_ok() {
            return Some(file);
        }
    }
    None
}

/// What accounting says of jobs, by number; `None` where there is no accounting.
fn look<'a>(
    slurm: Slurm,
    jobs: impl Iterator<Item = &'a u32>,
) -> Result<Option<BTreeMap<u32, JobRow>>, SlurmError> {
    let jobs: Vec<String> = jobs.take(AT_ONCE).map(ToString::to_string).collect();
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
    use super::*;

    #[test]
    fn words_of_several_starts_are_counted_together() {
        let folder = std::env::temp_dir().join(format!("hotpot-usage-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let used = |memory_mib, gpu_s| UsedOn {
            node: "n1".into(),
            memory_mib,
            gpu_s,
            launches: 3,
            refused: 1,
        };
        write(&folder, 7, &used(100, None)).unwrap();
        write(&folder, 7, &used(80, Some(1.5))).unwrap();
        fs::write(folder.join("x.used"), "").unwrap();
        let words = waiting(&folder);
        let expected = UsedOn { launches: 6, refused: 2, ..used(100, Some(1.5)) };
        assert_eq!(
            words.into_iter().map(|(job, (_, used))| (job, used)).collect::<Vec<_>>(),
            [(7, expected)]
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
