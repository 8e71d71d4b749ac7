//! Who holds which share of a GPU.

use model::Share;
use rusqlite::{Connection, params};

use super::{Journal, JournalError};

/// A share that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Its number in the journal.
    pub id: i64,
    /// UUID of the GPU.
    pub gpu: String,
    /// First memory slice, if it is a MIG instance.
    pub start: Option<u8>,
    /// UUID of the GPU or of the MIG device.
    pub device: String,
    /// To whom.
    pub who: String,
    /// What was granted; `None` in what an earlier release wrote.
    pub share: Option<Share>,
}

/// Whether the table is there and has the column that came last.
pub(super) fn have_shares(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM pragma_table_info('hold') WHERE name = 'share'";
    connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(|count| count > 0)
}

/// Gives a table of an earlier release that column.
pub(super) fn add_shares(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("ALTER TABLE hold ADD COLUMN share TEXT")
}

impl Journal {
    /// Notes that a share is granted and gives the hold's number. Not forced to disk: a hold need
    /// not outlive the machine, as no tenant does.
    ///
    /// # Errors
    /// [`JournalError`]; also if it is an instance that is held already.
    pub fn hold(
        &self,
        gpu: &str,
        share: Share,
        device: &str,
        who: &str,
    ) -> Result<i64, JournalError> {
        let sql = "INSERT INTO hold (gpu, start, device, who, share) VALUES (?1, ?2, ?3, ?4, ?5)";
        let start = match share {
            Share::Mig { start, .. } => Some(start),
            Share::Exclusive
            | Share::TimeSlice { .. }
            | Share::Mps { .. }
            | Share::MemoryCapped { .. } => None,
        };
        let share = serde_json::to_string(&share).map_err(|error| self.unreadable(error))?;
        self.lightly(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            statement.insert(params![gpu, start, device, who, share])
        })
    }

    /// Forgets a hold; that it is gone already is fine.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn release(&self, hold: i64) -> Result<(), JournalError> {
        self.lightly(|connection| {
            let mut statement = connection.prepare_cached("DELETE FROM hold WHERE id = ?1")?;
            statement.execute(params![hold])
        })
        .map(|_| ())
    }

    /// Forgets all holds of one holder and says how many there were.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn release_all(&self, who: &str) -> Result<usize, JournalError> {
        let sql = "DELETE FROM hold WHERE who = ?1";
        self.lightly(|connection| connection.execute(sql, params![who]))
    }

    /// Every hold, in the order in which they were granted.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn holds(&self) -> Result<Vec<Hold>, JournalError> {
        let sql = "SELECT id, gpu, start, device, who, share FROM hold ORDER BY id";
        self.rows(sql, [], |row| {
            Ok(Hold {
                id: row.get(0)?,
                gpu: row.get(1)?,
                start: row.get(2)?,
                device: row.get(3)?,
                who: row.get(4)?,
                share: row
                    .get::<_, Option<String>>(5)?
                    .and_then(|text| serde_json::from_str(&text).ok()),
            })
        })
    }

    fn lightly<T>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        self.told(self.connection.execute_batch("PRAGMA synchronous = NORMAL"))?;
        let written = write(&self.connection);
        self.told(self.connection.execute_batch("PRAGMA synchronous = FULL"))?;
        self.told(written)
    }
}
