//! The database that all of hotpot's state on a machine lies in, and what can go wrong with it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

/// How long a writer waits for another one.
const BUSY_LIMIT: Duration = Duration::from_secs(10);
const BUSY_STEP: Duration = Duration::from_millis(10);

/// The journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// No space.
    #[error(
        "journal `{path}`: it cannot be written: the disk is full or fails. Free some space and run again"
    )]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// No right to write.
    #[error(
        "journal `{path}`: it cannot be written; make it writable, or set HOTPOT_STATE_DIR to a folder that is"
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Not a database, or a damaged one.
    #[error(
        "journal `{path}` is damaged: {why}. Move it away and run again: hotpot then takes the GPUs as they are"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another process keeps it.
    #[error("journal `{path}`: another hotpot has kept it for {} s; wait for it, or end it", BUSY_LIMIT.as_secs())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Anything else that SQLite says.
    #[error("journal `{path}`: {why}")]
    Other {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        why: String,
    },
}

/// Opens a database with the settings that all of hotpot's state has: write-ahead log, each commit on
/// disk before it returns, readable by its owner alone.
///
/// # Errors
/// [`JournalError`], which says what to do.
pub fn open(path: &Path) -> Result<Connection, JournalError> {
    let told = |error| told(path, error);
    // Whether it can be made shows when it is opened, with better words.
    let _ = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    let connection = Connection::open(path).map_err(told)?;
    connection.busy_timeout(BUSY_LIMIT).map_err(told)?;
    write_ahead(&connection).map_err(told)?;
    connection
        .execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")
        .map_err(told)?;
    Ok(connection)
}

/// Writes go into a log beside the file. Where several processes make a journal at once, SQLite turns some of them
/// away here without the wait that it keeps elsewhere.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let begun = Instant::now();
    loop {
        let mode =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match mode {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begun.elapsed() < BUSY_LIMIT =>
            {
                thread::sleep(BUSY_STEP);
            }
            other => return other.map(drop),
        }
    }
}

/// What SQLite says, in our words.
pub fn told(path: &Path, error: rusqlite::Error) -> JournalError {
    let path = path.to_owned();
    let why = error.to_string();
    let Some(code) = error.sqlite_error_code() else { return JournalError::Other { path, why } };
    let system_write_failed = matches!(
        error.sqlite_error().map(|found| found.extended_code),
        Some(rusqlite::ffi::SQLITE_IOERR_WRITE | rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
    );
    if code == ErrorCode::DiskFull || system_write_failed {
        JournalError::Full { path }
    } else if code == ErrorCode::ReadOnly || code == ErrorCode::CannotOpen {
        JournalError::ReadOnly { path }
    } else if code == ErrorCode::DatabaseCorrupt || code == ErrorCode::NotADatabase {
        JournalError::Corrupt { path, why }
    } else if code == ErrorCode::DatabaseBusy || code == ErrorCode::DatabaseLocked {
        JournalError::Busy { path }
    } else {
        JournalError::Other { path, why }
    }
}
