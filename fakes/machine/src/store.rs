//! The file in which a simulated machine lies: read by many, replaced whole by one at a time.
//!
//! An edit holds the lock file, writes a temporary file and renames it. A kill at any moment leaves
//! the old file or the new one, and the kernel drops the lock.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::code::Code;
use crate::spec::GpuSpec;
use crate::state::{Effect, State};

/// The environment variable that tells a fake driver which machine to show.
pub const MACHINE_VARIABLE: &str = "HOTPOT_FAKE_MACHINE";

/// How long a reader trusts its copy before it looks at the file again.
const FRESH: Duration = Duration::from_millis(1);

/// The machine's file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("simulated machine {}: cannot {action}: {reason}; make one with Machine::create", path.display())]
pub struct StoreError {
    /// File or folder.
    pub path: PathBuf,
    /// What was tried.
    pub action: &'static str,
    /// Why it failed.
    pub reason: String,
}

/// An edit has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The edit itself refused.
    #[error(transparent)]
    Refused(#[from] Code),
    /// The file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A simulated machine. Any number of processes may open the same.
#[derive(Debug)]
pub struct Machine {
    folder: PathBuf,
    copy: Mutex<Copy>,
}

#[derive(Debug)]
struct Copy {
    state: Arc<State>,
    stamp: Stamp,
    looked: Instant,
}

/// What tells one version of the file from another. Each is later than the one before it by at least
/// 1 ns, which the editor sees to.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stamp {
    modified: Option<SystemTime>,
    inode: u64,
    size: u64,
}

impl Machine {
    /// Makes a machine, in place of one that may be there.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn create(folder: impl AsRef<Path>, specs: &[GpuSpec]) -> Result<Self, StoreError> {
        let folder = folder.as_ref();
        fs::create_dir_all(folder).map_err(|error| failed(folder, "make the folder", &error))?;
        let lock = lock(folder)?;
        let previous = fs::metadata(folder.join(STATE)).ok().and_then(|file| file.modified().ok());
        write(folder, &State::new(specs, now_ms()), previous)?;
        drop(lock);
        Self::open(folder)
    }

    /// Opens the machine in a folder.
    ///
    /// # Errors
    /// There is none, or its file cannot be read.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, StoreError> {
        let folder = folder.as_ref().to_path_buf();
        let looked = Instant::now();
        let (state, stamp) = load(&folder)?;
        let copy = Copy { state: Arc::new(state), stamp, looked };
        Ok(Self { folder, copy: Mutex::new(copy) })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The state: what this process has edited at once, what others have edited within 1 ms. If the
    /// file has gone, the last state that was seen.
    pub fn read(&self) -> Arc<State> {
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        if copy.looked.elapsed() >= FRESH {
            // What cannot be read now is tried again at the next call.
            let _ = copy.refresh(&self.folder);
        }
        Arc::clone(&copy.state)
    }

    /// Changes the state while no other process does. If `change` refuses, nothing is written.
    ///
    /// # Errors
    /// What `change` returned, or that the file cannot be used.
    pub fn edit<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, Code>,
    ) -> Result<T, EditError> {
        let _lock = lock(&self.folder)?;
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        copy.refresh(&self.folder)?;
        let mut state = State::clone(&copy.state);
        let now_ms = now_ms();
        state.settle(now_ms);
        let value = change(&mut state)?;
        state.settle(now_ms);
        copy.stamp = write(&self.folder, &state, copy.stamp.modified)?;
        copy.state = Arc::new(state);
        copy.looked = Instant::now();
        Ok(value)
    }

    /// Waits until no process reads a state from before the last edit any more.
    pub fn wait_until_seen(&self) {
        std::thread::sleep(FRESH);
    }
}

impl Machine {
    /// Lets a planned fault happen to a call.
    ///
    /// * `kill` — ends the calling process at once.
    ///
    /// # Errors
    /// The code with which the call fails instead of being carried out.
    pub fn happen(&self, effect: Effect, kill: impl FnOnce()) -> Result<(), Code> {
        match effect {
            Effect::Fail(code) => Err(code),
            Effect::SleepMs(ms) => {
                std::thread::sleep(Duration::from_millis(ms));
                Ok(())
            }
            Effect::Arrive { gpu, pid, kind } => {
                let arrived = self.edit(|state| state.arrive(gpu, pid, kind));
                arrived.map_err(|_| Code::Unknown)
            }
            Effect::Kill => {
                kill();
                Err(Code::Unknown)
            }
        }
    }
}

impl Copy {
    fn refresh(&mut self, folder: &Path) -> Result<(), StoreError> {
        // Before the look, so that the copy is never older than it seems.
        let looked = Instant::now();
        let path = folder.join(STATE);
        let file = fs::metadata(&path).map_err(|error| failed(&path, "read it", &error))?;
        if stamp(&file) != self.stamp {
            let (state, stamp) = load(folder)?;
            self.state = Arc::new(state);
            self.stamp = stamp;
        }
        self.looked = looked;
        Ok(())
    }
}

const STATE: &str = "machine.json";

fn lock(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(|error| failed(&path, "open the lock", &error))?;
    file.lock().map_err(|error| failed(&path, "take the lock", &error))?;
    Ok(file)
}

fn load(folder: &Path) -> Result<(State, Stamp), StoreError> {
    let path = folder.join(STATE);
    let mut file = File::open(&path).map_err(|error| failed(&path, "open it", &error))?;
    let about = file.metadata().map_err(|error| failed(&path, "read it", &error))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| failed(&path, "read it", &error))?;
    let state = serde_json::from_str(&text).map_err(|error| failed(&path, "parse it", &error))?;
    Ok((state, stamp(&about)))
}

/// Replaces the file by one that is younger than `previous`.
fn write(folder: &Path, state: &State, previous: Option<SystemTime>) -> Result<Stamp, StoreError> {
    let (path, temporary) = (folder.join(STATE), folder.join("machine.json.new"));
    let file = File::create(&temporary).map_err(|error| failed(&temporary, "write it", &error))?;
    let mut buffer = std::io::BufWriter::new(file);
    serde_json::to_writer(&mut buffer, state)
        .map_err(|error| failed(&temporary, "write it", &error))?;
    let file =
        buffer.into_inner().map_err(|error| failed(&temporary, "write it", error.error()))?;
    let after = previous.map_or(UNIX_EPOCH, |previous| previous + Duration::from_nanos(1));
    file.set_modified(SystemTime::now().max(after))
        .map_err(|error| failed(&temporary, "date it", &error))?;
    let about = file.metadata().map_err(|error| failed(&temporary, "read it", &error))?;
    fs::rename(&temporary, &path).map_err(|error| failed(&path, "replace it", &error))?;
    Ok(stamp(&about))
}

fn stamp(file: &fs::Metadata) -> Stamp {
    Stamp { modified: file.modified().ok(), inode: file.ino(), size: file.size() }
}

fn failed(path: &Path, action: &'static str, reason: &dyn std::fmt::Display) -> StoreError {
    StoreError { path: path.to_path_buf(), action, reason: reason.to_string() }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
