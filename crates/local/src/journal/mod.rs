//! What a run has done so far, in SQLite: written before acting, read to continue.
//!
//! The file is the node's state file, in its write-ahead mode: a killed process loses nothing; a power
//! cut may lose the last second, and then tasks that ended in it run again.

mod recall;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::error::RunError;
use crate::held::Held;
use crate::task::Ending;

pub use recall::{Recalled, RunRow, TaskRow, newest, recall};

const TABLES: &str = "
create table if not exists runs (
    run integer primary key autoincrement,
    pid integer not null,
    start_ticks integer not null,
    cgroup text,
    options text not null,
    first_number integer not null,
    tasks integer not null,
    begun_ms integer not null,
    ended_ms integer
) strict;
create table if not exists files (
    run integer not null references runs,
    name text not null,
    text text not null
) strict;
create table if not exists tasks (
    run integer not null,
    task integer not null,
    number integer not null,
    attempts integer not null,
    device text not null,
    pid integer,
    start_ticks integer,
    begun_ms integer not null,
    ended_ms integer,
    ending text,
    held text,
    primary key (run, task)
) strict, without rowid;
";

/// Runs that have ended and can still be looked up.
const RUNS_KEPT: i64 = 100;
/// Number of the first job on a machine.
const FIRST_NUMBER: u64 = 1;

/// A change of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It is about to be started.
    Starting {
        /// The task.
        task: usize,
        /// Its number.
        number: u64,
        /// Which start this is.
        attempt: u32,
        /// What it is given.
        device: String,
        /// When, in ms since 1970.
        at_ms: u64,
    },
    /// It has a process.
    Started {
        /// The task.
        task: usize,
        /// The process.
        pid: u32,
        /// When the process started, in clock ticks since boot.
        start_ticks: u64,
    },
    /// What it holds of GPUs; once it is over, with its accounts.
    Held {
        /// The task.
        task: usize,
        /// By GPU.
        held: Vec<Held>,
    },
    /// It is over; `None` says that it will be started again.
    Ended {
        /// The task.
        task: usize,
        /// How.
        ending: Option<Ending>,
        /// When, in ms since 1970.
        at_ms: u64,
    },
}

/// The journal of one run.
#[derive(Debug)]
pub struct Journal {
    connection: Connection,
    path: PathBuf,
    run: i64,
    late: Vec<Entry>,
}

/// A new run.
#[derive(Clone, Debug)]
pub struct NewRun<'a> {
    /// Its options, for a continuation.
    pub options: &'a str,
    /// Name and text of each file.
    pub files: &'a [(String, String)],
    /// Tasks in all.
    pub tasks: u64,
    /// This process.
    pub pid: u32,
    /// When this process started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Now, in ms since 1970.
    pub at_ms: u64,
}

impl Journal {
    /// Enters a new run and numbers its tasks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(path: &Path, new: &NewRun<'_>) -> Result<(Self, u64), RunError> {
        let mut connection = open(path)?;
        let enter = |connection: &mut Connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let next = "select max(first_number + tasks) from runs";
            let next: Option<i64> = change.query_row(next, [], |row| row.get(0))?;
            let first_number = next.map_or(FIRST_NUMBER, |next| next.max(1) as u64);
            change.execute(
                "insert into runs (pid, start_ticks, options, first_number, tasks, begun_ms)
                 values (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    new.pid,
                    new.start_ticks as i64,
                    new.options,
                    first_number as i64,
                    new.tasks as i64,
                    new.at_ms as i64
                ],
            )?;
            let run = change.last_insert_rowid();
            for (name, text) in new.files {
                let insert = "insert into files (run, name, text) values (?1, ?2, ?3)";
                change.execute(insert, params![run, name, text])?;
            }
            forget_the_oldest(&change, run)?;
            change.commit()?;
            Ok((run, first_number))
        };
        let (run, first_number) = enter(&mut connection).map_err(|error| failure(path, &error))?;
        Ok((Self { connection, path: path.to_path_buf(), run, late: Vec::new() }, first_number))
    }

    /// Takes over a run that was interrupted: it now belongs to this process.
    ///
    /// # Errors
    /// The file cannot be read or written, or another process was faster.
    pub fn take_over(
        path: &Path,
        row: &RunRow,
        (pid, start_ticks): (u32, u64),
    ) -> Result<Self, RunError> {
        let connection = open(path)?;
        let update = "update runs set pid = ?2, start_ticks = ?3, ended_ms = null
                      where run = ?1 and pid = ?4 and start_ticks = ?5";
        let (ticks, before) = (start_ticks as i64, row.start_ticks as i64);
        let done = connection.execute(update, params![row.run, pid, ticks, row.pid, before]);
        if done.map_err(|error| failure(path, &error))? != 1 {
            let text = format!("run {} has just been continued by another process", row.run);
            return Err(RunError::Resume(text));
        }
        Ok(Self { connection, path: path.to_path_buf(), run: row.run, late: Vec::new() })
    }

    /// Notes the run's cgroup, for whoever has to clean up after it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn held_in(&self, cgroup: Option<&Path>) -> Result<(), RunError> {
        let cgroup = cgroup.map(|cgroup| cgroup.display().to_string());
        let update = "update runs set cgroup = ?2 where run = ?1";
        let done = self.connection.execute(update, params![self.run, cgroup]);
        done.map(|_| ()).map_err(|error| failure(&self.path, &error))
    }

    /// The run's number.
    pub fn run(&self) -> i64 {
        self.run
    }

    /// Notes a change; it is written with the next [`Journal::write`].
    pub fn note(&mut self, entry: Entry) {
        self.late.push(entry);
    }

    /// Writes what has been noted, all or nothing. After an error it is kept for the next try.
    ///
    /// # Errors
    /// The file cannot be written, such as on a full disk.
    pub fn write(&mut self) -> Result<(), RunError> {
        if self.late.is_empty() {
            return Ok(());
        }
        let (run, late) = (self.run, &self.late);
        let write = |connection: &mut Connection| {
            let change = connection.transaction()?;
            for entry in late {
                write_entry(&change, run, entry)?;
            }
            change.commit()
        };
        write(&mut self.connection).map_err(|error| failure(&self.path, &error))?;
        self.late.clear();
        Ok(())
    }

    /// Notes that the run has come to its end.
    ///
    /// # Errors
    /// As [`Journal::write`].
    pub fn finish(&mut self, at_ms: u64) -> Result<(), RunError> {
        self.write()?;
        let update = "update runs set ended_ms = ?2 where run = ?1";
        let done = self.connection.execute(update, params![self.run, at_ms as i64]);
        done.map(|_| ()).map_err(|error| failure(&self.path, &error))
    }
}

fn write_entry(change: &Connection, run: i64, entry: &Entry) -> rusqlite::Result<()> {
    match entry {
        Entry::Starting { task, number, attempt, device, at_ms } => {
            let mut insert = change.prepare_cached(
                "insert or replace into tasks (run, task, number, attempts, device, begun_ms)
                 values (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
            let task = *task as i64;
            insert.execute(params![run, task, *number as i64, attempt, device, *at_ms as i64])?;
        }
        Entry::Started { task, pid, start_ticks } => {
            let mut update = change.prepare_cached(
                "update tasks set pid = ?3, start_ticks = ?4 where run = ?1 and task = ?2",
            )?;
            update.execute(params![run, *task as i64, pid, *start_ticks as i64])?;
        }
        Entry::Held { task, held } => {
            let held = serde_json::to_string(held).unwrap_or_default();
            let mut update =
                change.prepare_cached("update tasks set held = ?3 where run = ?1 and task = ?2")?;
            update.execute(params![run, *task as i64, held])?;
        }
        Entry::Ended { task, ending, at_ms } => {
            let ending = ending.as_ref().map(|ending| {
                serde_json::to_string(ending).unwrap_or_else(|_| String::from("\"cancelled\""))
            });
            let mut update = change.prepare_cached(
                "update tasks set ended_ms = ?3, ending = ?4 where run = ?1 and task = ?2",
            )?;
            update.execute(params![run, *task as i64, *at_ms as i64, ending])?;
        }
    }
    Ok(())
}

/// Takes out runs that ended long ago. Numbers stay used up.
fn forget_the_oldest(change: &Connection, run: i64) -> rusqlite::Result<()> {
    for table in ["files", "tasks"] {
        let delete = format!(
            "delete from {table} where run <= ?1 - ?2 and run in
             (select run from runs where ended_ms is not null)"
        );
        change.execute(&delete, params![run, RUNS_KEPT])?;
    }
    Ok(())
}

/// Version of the tables above (SQLite's `user_version`).
const VERSION: i64 = 2;

/// From version 1 to 2.
const UPGRADE: &str = "alter table tasks add column held text; pragma user_version = 2;";

fn open(path: &Path) -> Result<Connection, RunError> {
    let connection = node::journal::open(path);
    let connection = connection.map_err(|error| RunError::Journal(error.to_string()))?;
    let prepare = || -> rusqlite::Result<Option<i64>> {
        if found(&connection)? == Some(1) {
            // Another process may do the same.
            let upgrade = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
            if found(&upgrade)? == Some(1) {
                upgrade.execute_batch(UPGRADE)?;
            }
            upgrade.commit()?;
        }
        if let Some(version) = found(&connection)?.filter(|version| *version != VERSION) {
            return Ok(Some(version));
        }
        connection.execute_batch(TABLES)?;
        connection.pragma_update(None, "user_version", VERSION)?;
        // Tasks come by the thousand: a commit need not wait for the disk, see above.
        connection.pragma_update(None, "synchronous", "normal")?;
        Ok(None)
    };
    match prepare().map_err(|error| failure(path, &error))? {
        None => Ok(connection),
        Some(version) => {
            let what =
                format!("was written by another release (version {version}, here {VERSION})");
            let way_out = "use that one to go on with its runs, or move the file away";
            Err(RunError::Journal(format!("{}: the journal {what}; {way_out}", path.display())))
        }
    }
}

/// The version of the tables that are there, if they are.
fn found(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let table = "select count(*) from sqlite_schema where name = 'runs'";
    let tables: i64 = connection.query_row(table, [], |row| row.get(0))?;
    Ok((tables > 0).then_some(version))
}

fn failure(path: &Path, error: &rusqlite::Error) -> RunError {
    let way_out = match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => "free some space on its disk",
        Some(rusqlite::ErrorCode::ReadOnly | rusqlite::ErrorCode::PermissionDenied) => {
            "make it writable, or set HOTPOT_STATE_DIR to a folder that is"
        }
        Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => {
            "move the damaged file away; a new one is made"
        }
        _ => "see whether its disk and folder are in order",
    };
    let path = path.display();
    RunError::Journal(format!("{path}: the journal cannot be read or written: {error}; {way_out}"))
}
