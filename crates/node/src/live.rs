//! Runs that are going on, as their runners publish them: one small file a run, so that a process
//! can be traced to its task without trusting the process.
//!
//! The file is `<state folder>/live/<run>.json`, replaced as a whole at each change.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use model::{Share, SharingKind};
use serde::{Deserialize, Serialize};

use crate::account::Counts;
use crate::grant::Grant;

/// Files read at once; older ones beyond that are left out.
const RUNS_MAX: usize = 1_000;

/// Size of one file: some 8,000 tasks at once, with a share each.
const BYTES_MAX: u64 = 4 << 20;

/// One run and the tasks that it has running now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRun {
    /// Name of the run; the file is called after it.
    pub run: String,
    /// The runner.
    pub pid: u32,
    /// When the runner started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Tasks that are running.
    pub tasks: Vec<LiveTask>,
    /// What tasks that have ended had booked, summed, by the UUID of the GPU.
    #[serde(default)]
    pub ended: BTreeMap<String, Counts>,
}

/// A running task: the process that everything in the task descends from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveTask {
    /// Name of the task within the run.
    pub task: String,
    /// Its first process.
    pub pid: u32,
    /// When that started, in clock ticks since boot.
    pub start_ticks: u64,
    /// What it holds of GPUs.
    #[serde(default)]
    pub shares: Vec<LiveShare>,
}

/// What a running task holds of one GPU, for whoever shows it; nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveShare {
    /// UUID of the physical GPU.
    pub gpu: String,
    /// Name of the way in which it is shared ([`SharingKind::as_str`]).
    pub kind: String,
    /// Device memory that it was given; 0 for a whole GPU, or no cap. An instance has its own.
    pub memory_mib: u64,
    /// First memory slice, of an instance.
    pub start: Option<u8>,
    /// How hard the memory cap holds: `hard`, `cooperative` or `absent`.
    pub enforcement: String,
    /// Part of the GPU's time that it was given, in thousandths; 0 for no cap.
    #[serde(default)]
    pub compute_milli: u32,
    /// How hard that holds, in the same words; empty if nobody says.
    #[serde(default)]
    pub compute_enforcement: String,
    /// Where the limiter keeps its account, if it does.
    #[serde(default)]
    pub ledger: Option<PathBuf>,
}

impl LiveShare {
    /// What a grant gives.
    pub fn of(grant: &Grant) -> Self {
        let (memory_mib, compute_milli, start) = match grant.share {
            Share::Exclusive => (0, 0, None),
            Share::TimeSlice { memory_mib } => (memory_mib, 0, None),
            Share::Mps { memory_mib, compute_milli }
            | Share::MemoryCapped { memory_mib, compute_milli } => {
                (memory_mib, compute_milli, None)
            }
            Share::Mig { start, .. } => (0, 0, Some(start)),
        };
        Self {
            gpu: grant.gpu.clone(),
            kind: grant.kind().as_str().to_owned(),
            memory_mib,
            start,
            enforcement: grant.memory.as_str().to_owned(),
            compute_milli,
            compute_enforcement: grant.compute.as_str().to_owned(),
            ledger: grant.ledger.clone(),
        }
    }

    /// The way in which it is shared; `None` for a name that is none.
    pub fn sharing(&self) -> Option<SharingKind> {
        SharingKind::parse(&self.kind)
    }
}

/// A published run and the user who vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Owner of the file.
    pub user: u32,
    /// What it says.
    pub run: LiveRun,
}

/// Where the files lie in a state folder.
pub fn folder(state: &Path) -> PathBuf {
    state.join("live")
}

impl LiveRun {
    /// Writes the run's file, in place of an older one, in a folder made by [`folder`]. Of more tasks
    /// than readers take in, the last are left out: processes of those are known by their cgroup or
    /// count as their user's.
    ///
    /// # Errors
    ///
    /// The file system's, and `InvalidInput` for a name that cannot be a file's.
    pub fn publish(&self, folder: &Path) -> io::Result<()> {
        let path = path(folder, &self.run)?;
        let fresh = folder.join(format!(".{}.new", self.run));
        fs::create_dir_all(folder)?;
        fs::write(&fresh, self.bytes(BYTES_MAX)?)?;
        fs::rename(&fresh, &path)
    }

    /// The file's text, with as many of the tasks as `most` bytes have room for.
    fn bytes(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        let mut run = self.clone();
        while bytes.len() as u64 > most && !run.tasks.is_empty() {
            run.tasks.truncate(run.tasks.len() / 2);
            bytes = serde_json::to_vec(&run)?;
        }
        Ok(bytes)
    }
}

/// Takes a run's file away; that it is not there is fine.
///
/// # Errors
///
/// The file system's, and `InvalidInput` for a name that cannot be a file's.
pub fn withdraw(folder: &Path, run: &str) -> io::Result<()> {
    match fs::remove_file(path(folder, run)?) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Every run published in a folder. Files that cannot be read or make no sense are left out: they
/// are other people's, and measuring goes on without them.
pub fn published(folder: &Path) -> Vec<Published> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().rev().take(RUNS_MAX).filter_map(|path| read(path)).collect()
}

/// One file; links are not followed, and the name must be the run's.
fn read(path: &Path) -> Option<Published> {
    let no_link = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(no_link.bits()).open(path).ok()?;
    let facts = file.metadata().ok()?;
    if !facts.is_file() || facts.len() > BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let run: LiveRun = serde_json::from_slice(&bytes).ok()?;
    (path.file_stem()? == run.run.as_str()).then_some(Published { user: facts.uid(), run })
}

fn path(folder: &Path, run: &str) -> io::Result<PathBuf> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if run.is_empty() || run.len() > 128 || run.starts_with('.') || !run.bytes().all(fine) {
        let text = format!("`{run}` cannot name a run: letters, digits, - _ and . (not first)");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(folder.join(format!("{run}.json")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(format!("live-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        folder(&place)
    }

    fn run(name: &str) -> LiveRun {
        let task = LiveTask { task: "1".into(), pid: 12, start_ticks: 34, shares: Vec::new() };
        LiveRun {
            run: name.into(),
            pid: 10,
            start_ticks: 30,
            tasks: vec![task],
            ..LiveRun::default()
        }
    }

    #[test]
    fn what_is_published_is_read_until_it_is_withdrawn() {
        let folder = place("round");
        run("r1").publish(&folder).unwrap();
        run("r2").publish(&folder).unwrap();
        run("r2").publish(&folder).unwrap();
        let names = |folder: &Path| -> Vec<String> {
            published(folder).into_iter().map(|published| published.run.run).collect()
        };
        assert_eq!(names(&folder), ["r2", "r1"]);
        assert_eq!(published(&folder)[1].run, run("r1"));
        assert_eq!(published(&folder)[0].user, nix::unistd::getuid().as_raw());
        withdraw(&folder, "r2").unwrap();
        withdraw(&folder, "r2").unwrap();
        assert_eq!(names(&folder), ["r1"]);
    }

    #[test]
    fn more_tasks_than_readers_take_in_are_left_out() {
        let mut many = run("many");
        many.tasks = (0..1000).map(|_| many.tasks[0].clone()).collect();
        let whole = many.bytes(1 << 20).unwrap();
        assert_eq!(serde_json::from_slice::<LiveRun>(&whole).unwrap(), many);
        let cut = many.bytes(whole.len() as u64 - 1).unwrap();
        assert_eq!(serde_json::from_slice::<LiveRun>(&cut).unwrap().tasks.len(), 500);
    }

    #[test]
    fn broken_linked_and_misnamed_files_are_left_out() {
        let folder = place("broken");
        run("good").publish(&folder).unwrap();
        fs::write(folder.join("half.json"), "{\"run\":\"half\",").unwrap();
        fs::write(folder.join("other.json"), serde_json::to_vec(&run("good")).unwrap()).unwrap();
        std::os::unix::fs::symlink("good.json", folder.join("link.json")).unwrap();
        nix::unistd::mkfifo(&folder.join("pipe.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(published(&folder).len(), 1);
    }

    #[test]
    fn a_name_cannot_leave_the_folder() {
        for name in ["", "../x", "a/b", ".hidden", "a b"] {
            assert!(run(name).publish(&place("name")).is_err(), "{name}");
            assert!(withdraw(&place("name"), name).is_err(), "{name}");
        }
    }
}
