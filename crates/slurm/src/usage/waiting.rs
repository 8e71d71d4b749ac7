//! Words that wait on a node until accounting has them: a file for each job, in the folder of the jobs' files.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::UsedOn;
use crate::whole;

/// A word that accounting has not taken for so long is let go: it may not know the job, or not us.
const KEPT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// What words of jobs are called.
const SUFFIX: &str = "used";
/// Their rights.
const MODE: u32 = 0o644;
/// Held by who brings a node's words to accounting; in it stands the job that was looked at last.
const LOCK: &str = "used-lock";
/// For how long a patient one waits for it.
const LOCK_WAIT: Duration = Duration::from_secs(2);

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

/// What a job used, in its file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word {
    path: PathBuf,
    pub(super) used: UsedOn,
}

impl Word {
    /// Takes the file away, if it still says the same: Epilog may have written it anew. One that cannot be removed is
    /// brought to accounting again, which does no harm.
    pub(super) fn remove(&self) {
        if read(&self.path).as_ref() == Some(&self.used) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Words that wait, by job; old ones are removed.
pub(super) fn all(folder: &Path) -> BTreeMap<u32, Word> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let paths = paths.filter(|path| path.extension().is_some_and(|it| it == SUFFIX));
    let read = |path: PathBuf| {
        if is_old(&path) {
            let _ = fs::remove_file(&path);
            return None;
        }
        let job = path.file_stem()?.to_str()?.parse().ok()?;
        let used = read(&path)?;
        Some((job, Word { path, used }))
    };
    paths.filter_map(read).collect()
}

fn is_old(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|it| it.modified()).ok();
    written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > KEPT_MAX)
}

/// Whoever has it brings a folder's words to accounting; words that come later too, but for the last moment.
#[derive(Debug)]
pub(super) struct Turn(File);

impl Turn {
    /// `None` while another process has it.
    pub(super) fn take(folder: &Path, is_patient: bool) -> Option<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false);
        let file = file.open(folder.join(LOCK)).ok()?;
        for wait in [Duration::ZERO, LOCK_WAIT] {
            thread::sleep(if is_patient { wait } else { Duration::ZERO });
            if file.try_lock().is_ok() {
                return Some(Self(file));
            }
        }
        None
    }

    /// So many words at most, those behind the one that was looked at last first: none keeps others from being looked at.
    pub(super) fn next<'a>(
        &self,
        words: &'a BTreeMap<u32, Word>,
        most: usize,
    ) -> Vec<(u32, &'a Word)> {
        let last = self.last();
        let behind = words.iter().filter(|(job, _)| **job > last);
        let before = words.iter().filter(|(job, _)| **job <= last);
        behind.chain(before).take(most).map(|(job, word)| (*job, word)).collect()
    }

    fn last(&self) -> u32 {
        let mut number = [0; 4];
        self.0.read_exact_at(&mut number, 0).map_or(0, |()| u32::from_le_bytes(number))
    }

    /// Notes which was looked at last. Where that cannot be written, the same are looked at again.
    pub(super) fn note(&self, job: u32) {
        let _ = self.0.write_all_at(&job.to_le_bytes(), 0);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn used(memory_mib: u64, gpu_s: Option<f64>) -> UsedOn {
        UsedOn { node: "n1".into(), memory_mib, gpu_s, launches: 3, refused: 1 }
    }

    /// A folder of its own; gone at the end.
    pub(in super::super) struct Folder(pub(in super::super) PathBuf);

    impl Folder {
        pub(in super::super) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hotpot-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn words_of_several_starts_are_counted_together() {
        let folder = Folder::new("usage");
        write(&folder.0, 7, &used(100, None)).unwrap();
        write(&folder.0, 7, &used(80, Some(1.5))).unwrap();
        fs::write(folder.0.join("x.used"), "").unwrap();
        let expected = UsedOn { launches: 6, refused: 2, ..used(100, Some(1.5)) };
        let words: Vec<_> = all(&folder.0).into_iter().map(|(job, it)| (job, it.used)).collect();
        assert_eq!(words, [(7, expected)]);
    }

    #[test]
    fn a_word_that_was_written_anew_stays() {
        let folder = Folder::new("usage-anew");
        write(&folder.0, 7, &used(100, None)).unwrap();
        let seen = all(&folder.0);
        write(&folder.0, 7, &used(100, None)).unwrap();
        seen[&7].remove();
        let now = all(&folder.0);
        assert_eq!(now[&7].used.launches, 6);
        now[&7].remove();
        assert!(all(&folder.0).is_empty());
    }

    #[test]
    fn everyone_has_a_turn_whoever_asks() {
        let folder = Folder::new("usage-turns");
        (1..=5).for_each(|job| write(&folder.0, job, &used(1, None)).unwrap());
        let words = all(&folder.0);
        let next = || {
            let turn = Turn::take(&folder.0, false).unwrap();
            assert!(Turn::take(&folder.0, false).is_none(), "one at a time");
            let jobs: Vec<u32> = turn.next(&words, 2).into_iter().map(|(job, _)| job).collect();
            turn.note(*jobs.last().unwrap());
            jobs
        };
        assert_eq!([next(), next(), next()], [[1, 2], [3, 4], [5, 1]]);
    }
}
