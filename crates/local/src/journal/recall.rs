//! Reading a run back, to continue it.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};

use super::{failure, open};
use crate::error::RunError;
use crate::held::Held;
use crate::task::Ending;

/// A run as it stands in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Its number.
    pub run: i64,
    /// The process that carried it out, and when that process started, in clock ticks since boot.
    pub pid: u32,
    /// See `pid`.
    pub start_ticks: u64,
    /// Its cgroup, if it has one.
    pub cgroup: Option<PathBuf>,
    /// Its options, as the program wrote them.
    pub options: String,
    /// Number of its first task.
    pub first_number: u64,
    /// Whether it has come to its end.
    pub ended: bool,
}

/// A task as it stands in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// Its position in the run.
    pub task: usize,
    /// How often it was started.
    pub attempts: u32,
    /// Its last process, and when that started.
    pub process: Option<(u32, u64)>,
    /// What it was given when it was last started, in words.
    pub device: String,
    /// When it was last started, in ms since 1970.
    pub begun_ms: u64,
    /// When it ended, if it did.
    pub ended_ms: Option<u64>,
    /// How it ended, if it did.
    pub ending: Option<Ending>,
    /// What it held of GPUs when it was last started.
    pub held: Vec<Held>,
}

/// A run as it stands in the journal: itself, name and text of its files, and its tasks.
pub type Recalled = (RunRow, Vec<(String, String)>, Vec<TaskRow>);

/// Reads the newest run that has not ended, else the newest, or the one with a number.
///
/// # Errors
/// There is no such run, or the file cannot be read.
pub fn recall(path: &Path, run: Option<i64>) -> Result<Recalled, RunError> {
    read_run(path, run, "ended_ms is not null, run desc")
}

/// Reads the newest run.
///
/// # Errors
/// As [`recall`].
pub fn newest(path: &Path) -> Result<Recalled, RunError> {
    read_run(path, None, "run desc")
}

fn read_run(path: &Path, run: Option<i64>, order: &str) -> Result<Recalled, RunError> {
    let connection = open(path)?;
    let read = || -> rusqlite::Result<_> {
        let row = run_row(&connection, run, order)?;
        let Some(row) = row else { return Ok(None) };
        let mut files =
            connection.prepare("select name, text from files where run = ?1 order by rowid")?;
        let files = files.query_map([row.run], |file| Ok((file.get(0)?, file.get(1)?)))?;
        let files = files.collect::<rusqlite::Result<Vec<_>>>()?;
        let tasks =
            "select task, attempts, pid, start_ticks, ending, device, begun_ms, ended_ms, held
                     from tasks where run = ?1";
        let mut tasks = connection.prepare(tasks)?;
        let tasks = tasks.query_map([row.run], task_row)?.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(Some((row, files, tasks)))
    };
    let found = read().map_err(|error| failure(path, &error))?;
    found.ok_or_else(|| {
        let wanted = run.map_or(String::from("no run"), |run| format!("no run {run}"));
        RunError::Resume(format!(
            "{}: knows {wanted}; `hotpot run FILE` begins one",
            path.display()
        ))
    })
}

/// * `order` — which comes first.
fn run_row(
    connection: &Connection,
    run: Option<i64>,
    order: &str,
) -> rusqlite::Result<Option<RunRow>> {
    let select = format!(
        "select run, pid, start_ticks, cgroup, options, first_number, ended_ms is not null
         from runs where ?1 is null or run = ?1 order by {order} limit 1"
    );
    let row = |row: &rusqlite::Row<'_>| {
        Ok(RunRow {
            run: row.get(0)?,
            pid: row.get(1)?,
            start_ticks: row.get::<_, i64>(2)? as u64,
            cgroup: row.get::<_, Option<String>>(3)?.map(PathBuf::from),
            options: row.get(4)?,
            first_number: row.get::<_, i64>(5)? as u64,
            ended: row.get(6)?,
        })
    };
    connection.query_row(&select, [run], row).optional()
}

fn task_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<TaskRow> {
    let pid: Option<u32> = row.get(2)?;
    let ticks: Option<i64> = row.get(3)?;
    let ending: Option<String> = row.get(4)?;
    let ended_ms: Option<i64> = row.get(7)?;
    let held: Option<String> = row.get(8)?;
    Ok(TaskRow {
        task: row.get::<_, i64>(0)? as usize,
        attempts: row.get(1)?,
        process: pid.zip(ticks.map(|ticks| ticks as u64)),
        device: row.get::<_, String>(5)?.trim().to_owned(),
        begun_ms: row.get::<_, i64>(6)? as u64,
        ended_ms: ended_ms.map(|at_ms| at_ms as u64),
        ending: ending.and_then(|text| serde_json::from_str(&text).ok()),
        held: held.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::journal::Entry;
    use crate::journal::{Journal, NewRun};

    /// A journal as release 0.1 wrote it, with a run that was interrupted.
    const EARLIER: &str = "
        create table runs (run integer primary key autoincrement, pid integer not null,
            start_ticks integer not null, cgroup text, options text not null,
            first_number integer not null, tasks integer not null, begun_ms integer not null,
            ended_ms integer) strict;
        create table files (run integer not null references runs, name text not null,
            text text not null) strict;
        create table tasks (run integer not null, task integer not null, number integer not null,
            attempts integer not null, device text not null, pid integer, start_ticks integer,
            begun_ms integer not null, ended_ms integer, ending text, primary key (run, task))
            strict, without rowid;
        insert into runs values (1, 5, 6, null, '{}', 1, 1, 7, null);
        insert into tasks values (1, 0, 1, 1, 'gpu0 mps ', 8, 9, 10, null, null);
        pragma user_version = 1;";

    #[test]
    fn a_journal_of_an_earlier_release_is_taken_up() {
        let path = std::env::temp_dir().join(format!("recall-{}.db", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Connection::open(&path).unwrap().execute_batch(EARLIER).unwrap();
        let (run, _, tasks) = recall(&path, None).unwrap();
        assert_eq!((run.run, tasks[0].device.as_str(), tasks[0].held.len()), (1, "gpu0 mps", 0));
        let (pid, start_ticks) = (11, 12);
        let mut journal = Journal::take_over(&path, &run, (pid, start_ticks)).unwrap();
        journal.note(Entry::Held { task: 0, held: Vec::new() });
        journal.write().unwrap();
        let new = NewRun { options: "{}", files: &[], tasks: 1, pid, start_ticks, at_ms: 1 };
        assert_eq!(Journal::begin(&path, &new).unwrap().1, 2, "numbers go on");
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 9).unwrap();
        assert!(recall(&path, None).unwrap_err().to_string().contains("another release"));
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
        }
    }
}
