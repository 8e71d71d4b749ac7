//! What the limiter is told of each tenant, and where it keeps account: files below the state folder.
//!
//! `caps/RUN/TASK/caps` says what a tenant has been given of each GPU, `caps/RUN/TASK/GPU.ledger` is
//! where its processes book what they hold, `boards/GPU` where the tenants of a GPU arrange turns. A
//! tenant's files are there before its first process, and go with its last grant.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use caps::turns::Board;
use caps::{Caps, ComputeCap, GpuCaps, Ledger, Mapped, Which};

use crate::grant::User;

/// Rights of a tenant's caps: nobody writes to them.
const CAPS_MODE: u32 = 0o444;
/// Rights of the books: the tenant's processes write to them, and are its user's.
const BOOKS_MODE: u32 = 0o600;
/// Rights of the board where tenants are of several users: all of them write to it.
const BOARD_OF_USERS_MODE: u32 = 0o666;
/// Rights of folders on the way to the files: of our own user's tenants, and of other users'.
const FOLDER_MODES: [u32; 2] = [0o700, 0o711];

/// A board that nobody names yet may be another process's that is about to.
const BOARD_IS_NEW: Duration = Duration::from_secs(60);

/// What cannot be written down.
#[derive(Debug, thiserror::Error)]
pub enum BooksError {
    /// A file or folder.
    #[error("{}: {source}; the caps of a task cannot be written there: free some space, or set HOTPOT_STATE_DIR to a folder that can be written", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A caps file cannot name the state folder.
    #[error("{}: a caps file cannot name it; set HOTPOT_STATE_DIR to a folder without braces, control characters and blanks at the ends", .0.display())]
    Name(PathBuf),
}

/// What one tenant has been given of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose it is.
    pub who: String,
    /// The user of its processes, if that is not ours.
    pub user: Option<User>,
    /// UUID of the physical GPU.
    pub gpu: String,
    /// UUID of the GPU or of the MIG device.
    pub device: String,
    /// Most memory, in bytes; `None` for no cap by the limiter.
    pub memory_bytes: Option<u64>,
    /// Its part of the GPU's time; `None` for no cap.
    pub compute: Option<ComputeCap>,
    /// What a context takes on this GPU, in bytes, where the limiter cannot measure it; `None` if that is
    /// not known.
    pub context_bytes: Option<u64>,
    /// Whether the limiter holds it. A tenant of whom it holds nothing has no files.
    pub limited: bool,
}

/// The files of all tenants that this process has given shares to, by the number of their hold.
#[derive(Debug)]
pub struct Books {
    state: PathBuf,
    entries: BTreeMap<i64, Entry>,
}

impl Books {
    /// Nobody's yet.
    ///
    /// * `state` — the state folder.
    pub fn new(state: &Path) -> Self {
        let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
        Self { state, entries: BTreeMap::new() }
    }

    /// Enters a share, and writes its tenant's files if the limiter holds this share or another of the
    /// tenant.
    ///
    /// * `alone` — whether nobody else holds a share of the GPU.
    ///
    /// # Errors
    /// A file cannot be written; the share is not entered then.
    pub fn enter(&mut self, hold: i64, entry: Entry, alone: bool) -> Result<(), BooksError> {
        let board = if entry.limited { self.make_board(&entry, alone) } else { Ok(()) };
        let who = entry.who.clone();
        self.entries.insert(hold, entry);
        let written = board.and_then(|()| self.write(&who));
        if written.is_err() {
            // The error tells more than one of taking back would.
            let _best_effort = self.strike(hold, alone);
        }
        written
    }

    /// Strikes a share out; the tenant's files go with its last one.
    ///
    /// * `alone` — whether nobody else holds a share of the GPU.
    ///
    /// # Errors
    /// A file cannot be written or removed; the share is struck out all the same.
    pub fn strike(&mut self, hold: i64, alone: bool) -> Result<(), BooksError> {
        let Some(entry) = self.entries.remove(&hold) else { return Ok(()) };
        if !entry.limited && !self.is_limited(&entry.who) {
            return Ok(());
        }
        if alone {
            remove_file(&self.board(&entry.gpu))?;
        }
        if self.is_limited(&entry.who) {
            remove_file(&self.ledger(&entry.who, &entry.device))?;
            return self.write(&entry.who);
        }
        forget(&self.state, &entry.who)
    }

    /// A tenant's caps.
    pub fn caps_file(&self, who: &str) -> PathBuf {
        folder(&self.state, who).join("caps")
    }

    /// The account of a tenant on a device.
    pub fn ledger(&self, who: &str, device: &str) -> PathBuf {
        folder(&self.state, who).join(format!("{}.ledger", word(device)))
    }

    fn board(&self, gpu: &str) -> PathBuf {
        self.state.join("boards").join(word(gpu))
    }

    fn is_limited(&self, who: &str) -> bool {
        self.of(who).any(|entry| entry.limited)
    }

    fn of<'a>(&'a self, who: &str) -> impl Iterator<Item = &'a Entry> {
        self.entries.values().filter(move |entry| entry.who == who)
    }

    /// Ledgers first: whoever reads the caps finds them there.
    fn write(&self, who: &str) -> Result<(), BooksError> {
        if !self.is_limited(who) {
            return Ok(());
        }
        let folder = folder(&self.state, who);
        self.can_be_named()?;
        let others = self.of(who).any(|entry| entry.user.is_some());
        make_folder(&self.state, &folder, others)?;
        for entry in self.of(who) {
            let path = self.ledger(who, &entry.device);
            let made = Ledger::make(&path, BOOKS_MODE).and_then(|_| give(&path, entry.user));
            made.map_err(|source| BooksError::File { path, source })?;
        }
        let gpus = self.of(who).map(|entry| self.given(entry)).collect();
        let caps = Caps { tenant: who.to_owned(), gpus, closed: true };
        replace(&folder.join("caps"), &caps.render())
    }

    fn given(&self, entry: &Entry) -> GpuCaps {
        GpuCaps {
            gpu: Which::Uuid(entry.device.clone()),
            memory_bytes: entry.memory_bytes,
            context_bytes: entry.context_bytes,
            compute: entry.compute,
            ledger: self.ledger(&entry.who, &entry.device),
            board: entry.limited.then(|| self.board(&entry.gpu)),
        }
    }

    /// The board of a GPU. One that was left behind by a run that was killed is made anew, as a later
    /// release may have another layout.
    fn make_board(&self, entry: &Entry, alone: bool) -> Result<(), BooksError> {
        let path = self.board(&entry.gpu);
        make_folder(&self.state, &self.state.join("boards"), entry.user.is_some())?;
        if alone {
            remove_file(&path)?;
        }
        let mode = if entry.user.is_some() { BOARD_OF_USERS_MODE } else { BOOKS_MODE };
        board(&path, mode).map_err(|source| BooksError::File { path, source })
    }

    /// A caps file is made of lines, without blanks at their ends, in which `{gpu}` has a meaning.
    fn can_be_named(&self) -> Result<(), BooksError> {
        let plain = |text: &str| {
            !text.contains(char::is_control) && !text.contains("{gpu}") && text.trim() == text
        };
        if self.state.to_str().is_some_and(plain) {
            return Ok(());
        }
        Err(BooksError::Name(self.state.clone()))
    }
}

/// Removes the files of a tenant; that there are none is fine.
///
/// # Errors
/// A file cannot be removed.
pub(crate) fn forget(state: &Path, who: &str) -> Result<(), BooksError> {
    let folder = folder(state, who);
    match fs::remove_dir_all(&folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(BooksError::File { path: folder, source });
        }
        _ => {}
    }
    // The run's folder goes with its last task; in it, or below it, others may still be.
    if let Some(run) = folder.parent().filter(|_| who.contains('/')) {
        let _others_are_there = fs::remove_dir(run);
    }
    Ok(())
}

/// Removes the files of tenants that nobody knows any more, and the boards at which nobody sits: their runs
/// ended before a start of the machine, or were killed in between.
///
/// * `holders` — names those who hold something now; asked after the files were listed, as a holder is
///   known before it has files.
pub(crate) fn sweep<E>(
    state: &Path,
    holders: impl FnOnce() -> Result<Vec<String>, E>,
) -> Result<(), E> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let runs = below(&state.join("caps"));
    let boards = fs::read_dir(state.join("boards")).into_iter().flatten().flatten();
    let boards: Vec<PathBuf> =
        boards.map(|entry| entry.path()).filter(|path| is_old(path)).collect();
    if runs.is_empty() && boards.is_empty() {
        return Ok(());
    }
    let tenants = runs.iter().flat_map(|run| {
        let tasks = below(run);
        if tasks.is_empty() { vec![run.clone()] } else { tasks }
    });
    let tenants: Vec<PathBuf> = tenants.collect();
    let known: BTreeSet<PathBuf> = holders()?.iter().map(|who| folder(state, who)).collect();
    for tenant in tenants.into_iter().filter(|tenant| !known.contains(tenant)) {
        // What cannot be removed now is tried again by whoever comes next.
        let _ = fs::remove_dir_all(&tenant);
    }
    for run in runs {
        let _others_are_there = fs::remove_dir(run);
    }
    // A board serves the tenants of a GPU, whose caps name it.
    let named: BTreeSet<PathBuf> = known.iter().flat_map(|folder| boards_of(folder)).collect();
    for board in boards.into_iter().filter(|board| !named.contains(board)) {
        let _ = fs::remove_file(board);
    }
    Ok(())
}

/// A board is there some ms before the caps that name it: a new one may be another process's.
fn is_old(board: &Path) -> bool {
    let made = fs::metadata(board).and_then(|about| about.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > BOARD_IS_NEW))
}

/// The boards that a tenant's caps name.
fn boards_of(folder: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(folder.join("caps")).unwrap_or_default();
    let gpus = Caps::parse(&text).map(|caps| caps.gpus).unwrap_or_default();
    gpus.into_iter().filter_map(|given| given.board).collect()
}

/// Whether a ledger is the user's who has told of it: nobody shows another one's account as his own.
pub fn ledger_of_user(path: &Path, user: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_file() && about.uid() == user)
}

/// A tenant's folder: one below that of the run, for `RUN/TASK`.
fn folder(state: &Path, who: &str) -> PathBuf {
    let caps = state.join("caps");
    match who.rsplit_once('/') {
        Some((run, task)) => caps.join(word(run)).join(word(task)),
        None => caps.join(word(who)),
    }
}

/// A part of a holder's name as a folder may be called.
pub(crate) fn word(part: &str) -> String {
    let fine = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let word: String = part.chars().map(|c| if fine(c) { c } else { '-' }).collect();
    if word.trim_matches('.').is_empty() { "-".repeat(word.len().max(1)) } else { word }
}

/// Makes a folder and those on the way to it, below the state folder.
///
/// * `others` — whether other users' processes must find their files there, though they may not list it.
fn make_folder(state: &Path, path: &Path, others: bool) -> Result<(), BooksError> {
    let made = fs::DirBuilder::new().recursive(true).mode(FOLDER_MODES[0]).create(path);
    let opened = made.and_then(|()| if others { open_up(state, path) } else { Ok(()) });
    opened.map_err(|source| BooksError::File { path: path.to_owned(), source })
}

fn open_up(state: &Path, path: &Path) -> io::Result<()> {
    for folder in path.ancestors().take_while(|folder| folder.starts_with(state)) {
        let mode = fs::metadata(folder)?.permissions().mode();
        if mode & 0o011 != 0o011 {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode | FOLDER_MODES[1]))?;
        }
    }
    Ok(())
}

fn give(path: &Path, user: Option<User>) -> io::Result<()> {
    user.map_or(Ok(()), |user| std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)))
}

/// Makes the page on which the tenants of a GPU arrange turns. What was there already is made to be
/// reached by those who come now.
fn board(path: &Path, mode: u32) -> io::Result<()> {
    Mapped::<Board>::make(path, mode)?;
    let now = fs::metadata(path)?.permissions().mode();
    if now & mode == mode {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(now | mode))
}

fn remove_file(path: &Path) -> Result<(), BooksError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(BooksError::File { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Writes a file that nobody sees half written, and that nobody writes to afterwards.
fn replace(path: &Path, text: &str) -> Result<(), BooksError> {
    let fresh = path.with_extension("new");
    let write = || -> io::Result<()> {
        // Left over by a process that was killed.
        let _ = fs::remove_file(&fresh);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(CAPS_MODE).open(&fresh)?;
        file.set_permissions(fs::Permissions::from_mode(CAPS_MODE))?;
        file.write_all(text.as_bytes())?;
        fs::rename(&fresh, path)
    };
    write().map_err(|source| BooksError::File { path: path.to_owned(), source })
}
