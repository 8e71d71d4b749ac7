//! Who holds which share of a GPU.

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
}

impl Journal {
    /// Notes that a share is granted and gives the hold's number. Not forced to disk: a hold need
    /// not outlive the machine, as no tenant does.
    ///
    /// * `start` — first memory slice, for a MIG instance.
    ///
    /// # Errors
    /// [`JournalError`]; also if the instance is held already.
    pub fn hold(
        &self,
        gpu: &str,
        start: Option<u8>,
        device: &str,
        who: &str,
    ) -> Result<i64, JournalError> {
        let sql = "INSERT INTO hold (gpu, start, device, who) VALUES (?1, ?2, ?3, ?4)";
        self.lightly(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            statement.insert(params![gpu, start, device, who])
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
        let sql = "SELECT id, gpu, start, device, who FROM hold ORDER BY id";
        self.rows(sql, [], |row| {
            Ok(Hold {
                id: row.get(0)?,
                gpu: row.get(1)?,
                start: row.get(2)?,
                device: row.get(3)?,
                who: row.get(4)?,
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
