//! The journal: what hotpot is about to change on this machine's GPUs, what it found there before, and
//! who holds which instance. Written before acting, so that a start after a crash can go on.
//!
//! One SQLite file, `state.db`; an operator can open it. Writers on one machine take turns.

mod database;
mod holds;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

pub use database::{JournalError, open, told};
pub use holds::Hold;

/// The file's name in the state folder.
pub const FILE: &str = "state.db";
/// Closed changes that are kept for whoever wants to look.
const CHANGES_KEPT: i64 = 1000;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS change (
    id INTEGER PRIMARY KEY, gpu TEXT NOT NULL, what TEXT NOT NULL,
    begun_ms INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0, outcome TEXT);
CREATE INDEX IF NOT EXISTS change_open ON change (id) WHERE done = 0;
CREATE TABLE IF NOT EXISTS before (
    gpu TEXT NOT NULL, aspect TEXT NOT NULL, was TEXT NOT NULL, PRIMARY KEY (gpu, aspect));
CREATE TABLE IF NOT EXISTS ours (
    gpu TEXT NOT NULL, aspect TEXT NOT NULL, what TEXT NOT NULL, PRIMARY KEY (gpu, aspect));
CREATE TABLE IF NOT EXISTS hold (
    id INTEGER PRIMARY KEY, gpu TEXT NOT NULL, start INTEGER, device TEXT NOT NULL,
    who TEXT NOT NULL, share TEXT);
CREATE UNIQUE INDEX IF NOT EXISTS hold_instance ON hold (gpu, start) WHERE start IS NOT NULL;
CREATE TABLE IF NOT EXISTS boot (id TEXT NOT NULL);
";

const OURS: &str = "INSERT OR REPLACE INTO ours (gpu, aspect, what) VALUES (?1, ?2, ?3)";
/// After a start of the machine only MIG mode is as it was left (NVIDIA MIG guide, "Enable MIG Mode"; NVML
/// header, `nvmlDeviceSetComputeMode`), and no tenant is left.
const FORGET_EARLIER_BOOT: &str = "
DELETE FROM hold;
DELETE FROM before WHERE aspect <> 'mig-mode';
DELETE FROM ours WHERE aspect <> 'mig-mode';
UPDATE change SET done = 1, outcome = 'the machine was started anew'
    WHERE done = 0 AND json_extract(what, '$.change') <> 'mig-mode';
DELETE FROM boot";

/// A change of one GPU that was written down before it was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum Change {
    /// MIG instances: these and no others, by profile name and first memory slice.
    Layout {
        /// The instances.
        instances: Vec<(String, u8)>,
    },
    /// MIG mode.
    MigMode {
        /// On or off.
        on: bool,
    },
    /// Compute mode, by its name.
    ComputeMode {
        /// Such as `exclusive-process`.
        mode: String,
    },
    /// Length of turns, by its name.
    Turn {
        /// Such as `short`.
        length: String,
    },
    /// The control daemon of MPS.
    MpsDaemon {
        /// Running or not.
        on: bool,
    },
}

impl Change {
    /// Which property of the GPU it changes.
    pub fn aspect(&self) -> &'static str {
        match self {
            Self::Layout { .. } => "layout",
            Self::MigMode { .. } => "mig-mode",
            Self::ComputeMode { .. } => "compute-mode",
            Self::Turn { .. } => "turn",
            Self::MpsDaemon { .. } => "mps-daemon",
        }
    }
}

/// A change that was begun and, as far as the journal knows, not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenChange {
    /// Its number in the journal.
    pub id: i64,
    /// UUID of the GPU.
    pub gpu: String,
    /// The change.
    pub what: Change,
}

/// The journal of one machine.
#[derive(Debug)]
pub struct Journal {
    connection: Connection,
    path: PathBuf,
}

impl Journal {
    /// Opens or makes the journal in a state folder.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join(FILE);
        let connection = open(&path)?;
        tables(&connection).map_err(|error| told(&path, error))?;
        let journal = Self { connection, path };
        journal.forget_earlier_boot()?;
        Ok(journal)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn told<T>(&self, result: rusqlite::Result<T>) -> Result<T, JournalError> {
        result.map_err(|error| told(&self.path, error))
    }

    fn unreadable(&self, why: impl ToString) -> JournalError {
        JournalError::Corrupt { path: self.path.clone(), why: why.to_string() }
    }

    /// Writes down a change before it is made, with what was there before, unless an earlier change
    /// has noted that already.
    ///
    /// # Errors
    /// [`JournalError`]; the change must then not be made.
    pub fn begin(&self, gpu: &str, what: &Change, was: &Change) -> Result<i64, JournalError> {
        let (what_text, was_text) = (self.text(what)?, self.text(was)?);
        self.told(self.connection.unchecked_transaction().and_then(|transaction| {
            transaction.execute(
                "INSERT OR IGNORE INTO before (gpu, aspect, was) VALUES (?1, ?2, ?3)",
                params![gpu, what.aspect(), was_text],
            )?;
            transaction.execute(OURS, params![gpu, what.aspect(), what_text])?;
            transaction.execute(
                "INSERT INTO change (gpu, what, begun_ms) VALUES (?1, ?2, ?3)",
                params![gpu, what_text, now_ms()],
            )?;
            let id = transaction.last_insert_rowid();
            transaction.commit()?;
            Ok(id)
        }))
    }

    /// Notes what is there, and will be lost by a change of something else, unless it has been noted.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn note(&self, gpu: &str, was: &Change) -> Result<(), JournalError> {
        let sql = "INSERT OR IGNORE INTO before (gpu, aspect, was) VALUES (?1, ?2, ?3)";
        let text = self.text(was)?;
        self.told(self.connection.execute(sql, params![gpu, was.aspect(), text])).map(|_| ())
    }

    /// Notes what a change has left that did not come to its end.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn left(&self, gpu: &str, stands: &Change) -> Result<(), JournalError> {
        let text = self.text(stands)?;
        self.told(self.connection.execute(OURS, params![gpu, stands.aspect(), text])).map(|_| ())
    }

    /// What hotpot last made of an aspect of a GPU: if something else stands, somebody else made it.
    ///
    /// * `aspect` — see [`Change::aspect`].
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn ours(&self, gpu: &str, aspect: &str) -> Result<Option<Change>, JournalError> {
        let sql = "SELECT what FROM ours WHERE gpu = ?1 AND aspect = ?2";
        let mut rows = self.rows(sql, params![gpu, aspect], |row| row.get::<_, String>(0))?;
        let what = rows.pop().map(|what| serde_json::from_str(&what));
        what.transpose().map_err(|error| self.unreadable(error))
    }

    fn text(&self, change: &Change) -> Result<String, JournalError> {
        serde_json::to_string(change).map_err(|error| self.unreadable(error))
    }

    /// Closes a change: made, or given up for the reason in `outcome`.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn end(&self, id: i64, outcome: Option<&str>) -> Result<(), JournalError> {
        let sql = "UPDATE change SET done = 1, outcome = ?2 WHERE id = ?1";
        self.told(self.connection.execute(sql, params![id, outcome]))?;
        let sql = "DELETE FROM change WHERE done = 1 AND id <= ?1";
        self.told(self.connection.execute(sql, params![id - CHANGES_KEPT])).map(|_| ())
    }

    /// Changes that were begun and not closed, oldest first.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open_changes(&self) -> Result<Vec<OpenChange>, JournalError> {
        let sql = "SELECT id, gpu, what FROM change WHERE done = 0 ORDER BY id";
        let rows = self.rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.into_iter().map(|(id, gpu, what)| self.parsed(id, gpu, what)).collect()
    }

    fn parsed(&self, id: i64, gpu: String, what: String) -> Result<OpenChange, JournalError> {
        let what = serde_json::from_str(&what);
        Ok(OpenChange { id, gpu, what: what.map_err(|error| self.unreadable(error))? })
    }

    /// What was there before hotpot first changed it: one entry for each GPU and aspect.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn before(&self) -> Result<Vec<(String, Change)>, JournalError> {
        let sql = "SELECT gpu, was FROM before ORDER BY gpu, aspect";
        let rows = self.rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let parsed = rows.into_iter().map(|(gpu, was): (String, String)| {
            self.parsed(0, gpu, was).map(|open| (open.gpu, open.what))
        });
        parsed.collect()
    }

    /// Forgets what was there before, once it is there again.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn restored(&self, gpu: &str, was: &Change) -> Result<(), JournalError> {
        for table in ["before", "ours"] {
            let sql = format!("DELETE FROM {table} WHERE gpu = ?1 AND aspect = ?2");
            self.told(self.connection.execute(&sql, params![gpu, was.aspect()]))?;
        }
        Ok(())
    }

    /// Forgets what did not outlive a start of the machine since it was written.
    fn forget_earlier_boot(&self) -> Result<(), JournalError> {
        // Without /proc nothing can be said of the boot, and the holds stay.
        let Ok(now) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") else {
            return Ok(());
        };
        let now = now.trim();
        self.told(self.is_of_boot(now).and_then(|is| if is { Ok(()) } else { self.forget(now) }))
    }

    fn is_of_boot(&self, now: &str) -> rusqlite::Result<bool> {
        let known = self.connection.query_row("SELECT id FROM boot", [], |row| row.get(0));
        Ok(known.optional()?.is_some_and(|known: String| known == now))
    }

    /// Once: another process may have done it in between, and hold something since.
    fn forget(&self, now: &str) -> rusqlite::Result<()> {
        let alone = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        if self.is_of_boot(now)? {
            return Ok(());
        }
        alone.execute_batch(FORGET_EARLIER_BOOT)?;
        alone.execute("INSERT INTO boot (id) VALUES (?1)", params![now])?;
        alone.commit()
    }

    fn rows<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, JournalError> {
        let mut statement = self.told(self.connection.prepare_cached(sql))?;
        let rows = self.told(statement.query_map(parameters, read))?;
        self.told(rows.collect())
    }
}

/// Makes the tables, or gives those of an earlier release what they lack: one process at a time.
fn tables(connection: &Connection) -> rusqlite::Result<()> {
    if holds::have_shares(connection)? {
        return Ok(());
    }
    let alone = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    alone.execute_batch(TABLES)?;
    if !holds::have_shares(&alone)? {
        holds::add_shares(&alone)?;
    }
    alone.commit()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
