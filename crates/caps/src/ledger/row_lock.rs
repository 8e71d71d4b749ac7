//! A byte of the ledger's file for each row, locked by the row's process: the kernel lets the lock go when
//! the process ends or becomes another program, and shows it in every pid namespace.
//!
//! "Open file description" locks (Linux 3.15, fcntl(2)): they are of the opened file and not of the process,
//! so that others can ask for them by a file that they have opened themselves.
#![allow(unsafe_code, reason = "locks of parts of a file")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use super::page::LedgerPage;
use crate::process::ProcessId;
use crate::shared;

/// Where the locked bytes begin: beyond the page.
const FIRST: i64 = 1 << 32;

/// Numbers of files are taken from here on.
const ASIDE: libc::c_int = 500;
/// The first that is no standard input or output.
const FIRST_FREE: libc::c_int = 3;

/// The opened file.
#[derive(Debug)]
pub(super) struct RowLock {
    /// -1 when it was let go.
    file: AtomicI32,
    path: PathBuf,
    /// Device and number of the file: programs that close all that is open may close ours, and the number
    /// is then another file's.
    id: (u64, u64),
}

impl RowLock {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = shared::options().write(true).open(path)?;
        let about = file.metadata()?;
        let id = (about.dev(), about.ino());
        Ok(Self { file: AtomicI32::new(aside(file)), path: path.to_owned(), id })
    }

    /// Locks a row for this process. If another one has it locked, so be it: the row is ours by the page.
    pub(super) fn hold(&self, row: usize) {
        let _best_effort = control(self.descriptor(), libc::F_OFD_SETLK, libc::F_WRLCK, row);
    }

    /// The number of the file.
    pub(super) fn file(&self) -> u64 {
        self.id.1
    }

    /// Whether another process has a row locked. What cannot be found out counts as held.
    pub(super) fn is_held(&self, row: usize) -> bool {
        let found = control(self.descriptor(), libc::F_OFD_GETLK, libc::F_WRLCK, row);
        found.is_none_or(|kind| kind != libc::F_UNLCK)
    }

    /// The file's number, if it is still that of the file; else the file is opened again.
    fn descriptor(&self) -> RawFd {
        let known = self.file.load(Ordering::Relaxed);
        // SAFETY: all bytes 0 is a valid `stat`.
        let mut about: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a place of ours; a number that is no file's gives an error.
        let seen = unsafe { libc::fstat(known, &raw mut about) } == 0;
        if seen && (about.st_dev, about.st_ino) == self.id {
            return known;
        }
        let again = shared::options().write(true).open(&self.path).ok();
        let again = again.filter(|file| same(file, self.id)).map_or(-1, aside);
        self.file.store(again, Ordering::Relaxed);
        again
    }

    /// In a forked process: closes what is the parent's.
    pub(super) fn forget(&self) {
        let file = self.file.swap(-1, Ordering::Relaxed);
        if file >= 0 {
            // SAFETY: opened by us, and used nowhere else in this process.
            unsafe { libc::close(file) };
        }
    }
}

impl Drop for RowLock {
    fn drop(&mut self) {
        let known = self.file.load(Ordering::Relaxed);
        if known >= 0 && self.descriptor() == known {
            self.forget();
        }
    }
}

/// Moves an opened file to a number that programs do not expect to be free: one that starts with its output
/// closed would print into it. If there is none above, the lowest that is not an output's is taken, and
/// without that there is no lock.
fn aside(file: File) -> RawFd {
    [ASIDE, FIRST_FREE]
        .into_iter()
        .map(|least| duplicate(&file, least))
        .find(|fd| *fd >= 0)
        .unwrap_or(-1)
}

/// The file under a number of at least `least`; -1 if there is none.
fn duplicate(file: &File, least: libc::c_int) -> RawFd {
    // SAFETY: plain numbers.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) }
}

fn same(file: &File, id: (u64, u64)) -> bool {
    file.metadata().is_ok_and(|about| (about.dev(), about.ino()) == id)
}

/// Sets or asks for the lock of a row: what kind of lock there is then. `None` if that fails.
fn control(
    file: RawFd,
    command: libc::c_int,
    kind: libc::c_int,
    row: usize,
) -> Option<libc::c_int> {
    // SAFETY: all bytes 0 is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(kind).ok()?;
    lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).ok()?;
    lock.l_start = FIRST.checked_add(i64::try_from(row).ok()?)?;
    lock.l_len = 1;
    // SAFETY: a place of ours.
    let code = unsafe { libc::fcntl(file, command, &raw mut lock) };
    (code == 0).then_some(libc::c_int::from(lock.l_type))
}

/// Whether the process of a row lives.
///
/// * `file` — the number of the ledger's file.
/// * `is_held` — whether a row's byte is locked by another process.
pub(super) fn lives(
    page: &LedgerPage,
    id: ProcessId,
    file: u64,
    is_held: impl Fn(usize) -> bool,
) -> bool {
    let Some((row, member)) = page.row_of(id) else { return id.is_alive() };
    if is_held(row) {
        return true;
    }
    // Without its lock it is gone, or it has closed all files and goes on: then it still has the page.
    let space = member.space.load(Ordering::Relaxed);
    space != 0 && space == ProcessId::space_here() && id.is_alive() && maps(id.pid(), file)
}

/// Whether a process has a file mapped (proc_pid_maps(5)); if that cannot be seen, it may.
fn maps(pid: u32, file: u64) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/maps")) else { return true };
    let number = file.to_string();
    text.lines().any(|line| line.split_ascii_whitespace().nth(4) == Some(number.as_str()))
}

/// Rows that are locked in a file, for who only looks.
pub(super) fn is_held_in(file: &File, row: usize) -> bool {
    let found = control(file.as_raw_fd(), libc::F_OFD_GETLK, libc::F_RDLCK, row);
    found.is_none_or(|kind| kind != libc::F_UNLCK)
}
