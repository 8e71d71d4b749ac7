//! The journal of an array: one file on the user's shared file system that all its pilots append to.
//!
//! Who writes holds an open-file-description lock on it (fcntl(2); NFSv4 has them), has read all that
//! others wrote, and returns when its lines are on the disk. Lines that a writer that died left
//! unfinished are cut away by the next.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::event::Event;
use super::ledger::Ledger;

/// The open journal, and what has been read of it.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    read: u64,
    ledger: Ledger,
}

impl Journal {
    /// Opens the journal, which is made if it is missing, for reading and writing.
    ///
    /// * `indices` — those of the array.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, indices: &[u32]) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        Ok(Self::of(file.open(path)?, path, indices))
    }

    /// Opens it for looking only.
    ///
    /// # Errors
    /// The file is not there or cannot be read.
    pub fn look(path: &Path, indices: &[u32]) -> io::Result<Self> {
        Ok(Self::of(File::open(path)?, path, indices))
    }

    fn of(file: File, path: &Path, indices: &[u32]) -> Self {
        let ledger = Ledger::new(indices);
        Self { file, path: path.to_path_buf(), read: 0, ledger }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What has been read so far.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Reads what others have written, as far as it is whole.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn catch_up(&mut self) -> io::Result<()> {
        let end = self.file.metadata()?.len();
        let mut news = vec![0; usize::try_from(end.saturating_sub(self.read)).unwrap_or(0)];
        let mut filled = 0;
        while filled < news.len() {
            match self.file.read_at(&mut news[filled..], self.read + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        for line in news[..filled].split_inclusive(|byte| *byte == b'\n') {
            let text = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
            let Some(event) = text.and_then(Event::parse) else { break };
            self.ledger.fold(&event);
            self.read += line.len() as u64;
        }
        Ok(())
    }

    /// Under the lock: reads up to the end, lets `decide` say what is to be written, and writes that
    /// for good. What was written is returned, and is in the ledger.
    ///
    /// # Errors
    /// It cannot be locked, read or written. Then nothing of it is written, as far as the system lets
    /// us cut it away; what is left of it is cut away later.
    pub fn change(&mut self, decide: impl FnOnce(&Ledger) -> Vec<Event>) -> io::Result<Vec<Event>> {
        self.lock(libc::F_WRLCK)?;
        let done = self.change_locked(decide);
        let unlocked = self.lock(libc::F_UNLCK);
        let events = done?;
        unlocked.map(|()| events)
    }

    fn change_locked(
        &mut self,
        decide: impl FnOnce(&Ledger) -> Vec<Event>,
    ) -> io::Result<Vec<Event>> {
        self.catch_up()?;
        self.cut_torn_end()?;
        let events = decide(&self.ledger);
        if events.is_empty() {
            return Ok(events);
        }
        let text: String = events.iter().map(Event::line).collect();
        let written =
            self.file.write_all_at(text.as_bytes(), self.read).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            let _ = self.file.set_len(self.read).and_then(|()| self.file.sync_data());
            return Err(error);
        }
        self.read += text.len() as u64;
        for event in &events {
            self.ledger.fold(event);
        }
        Ok(events)
    }

    /// Cuts away what is behind the last whole line. Whole lines behind a broken one are no torn end:
    /// the file is damaged, and what it says of tasks that ended must not be lost.
    fn cut_torn_end(&self) -> io::Result<()> {
        let end = self.file.metadata()?.len();
        if end <= self.read {
            return Ok(());
        }
        let mut rest = vec![0; usize::try_from(end - self.read).unwrap_or(0)];
        let count = self.file.read_at(&mut rest, self.read)?;
        let text = String::from_utf8_lossy(&rest[..count]);
        if text.lines().any(|line| Event::parse(line).is_some()) {
            let what = format!("damaged at byte {}: whole lines follow a broken one", self.read);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.file.set_len(self.read)
    }

    /// Waits for the lock, or gives it back.
    fn lock(&self, kind: libc::c_int) -> io::Result<()> {
        let lock = libc::flock {
            l_type: i16::try_from(kind).unwrap_or_default(),
            l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        loop {
            match fcntl(&self.file, FcntlArg::F_OFD_SETLKW(&lock)) {
                Ok(_) => return Ok(()),
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::array::event::{Ending, PilotId};

    const ME: PilotId = PilotId { array: 1, element: 0, start: 1 };

    fn claim(index: u32) -> Event {
        Event::Claim { index, attempt: 1, by: ME, at_ms: 1 }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("hotpot-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_one_writes_the_other_sees_and_a_torn_end_is_cut_away() {
        let folder = folder("journal");
        let path = folder.join("journal");
        let mut one = Journal::open(&path, &[1, 2, 3]).unwrap();
        let mut other = Journal::open(&path, &[1, 2, 3]).unwrap();
        one.change(|_| vec![claim(1)]).unwrap();
        // A writer that died in the middle of its second line.
        let end = Event::End { index: 1, attempt: 1, by: ME, at_ms: 2, how: Ending::Exit(0) };
        let torn = end.line();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&torn.as_bytes()[..torn.len() - 3]).unwrap();
        other.catch_up().unwrap();
        assert_eq!(other.ledger().next(), Some((2, 1)), "it looks and cuts nothing");
        other
            .change(|ledger| {
                assert_eq!(ledger.open().count(), 1, "what was torn has not happened");
                vec![claim(2)]
            })
            .unwrap();
        one.change(|ledger| {
            assert_eq!(ledger.next(), Some((3, 1)));
            vec![end]
        })
        .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().all(|line| Event::parse(line).is_some()), "{text}");
        assert_eq!(text.lines().count(), 3);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_journal_is_left_as_it_is() {
        let folder = folder("journal-damaged");
        let path = folder.join("journal");
        let text = format!("{}x{}", claim(1).line(), claim(2).line() + &claim(3).line());
        std::fs::write(&path, &text).unwrap();
        let mut journal = Journal::open(&path, &[1, 2, 3, 4]).unwrap();
        let error = journal.change(|_| vec![claim(4)]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn writers_take_turns() {
        let folder = folder("journal-turns");
        let path = folder.join("journal");
        let indices: Vec<u32> = (0..200).collect();
        std::thread::scope(|scope| {
            for element in 0..4 {
                let (path, indices) = (&path, &indices);
                scope.spawn(move || {
                    let mut journal = Journal::open(path, indices).unwrap();
                    let by = PilotId { element, ..ME };
                    let next = |ledger: &Ledger| {
                        let next = ledger.next().into_iter();
                        next.map(|(index, attempt)| Event::Claim { index, attempt, by, at_ms: 0 })
                            .collect()
                    };
                    while !journal.change(next).unwrap().is_empty() {}
                });
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        let mut ledger = Ledger::new(&indices);
        let fits = text.lines().all(|line| ledger.fold(&Event::parse(line).unwrap()));
        assert!(fits && ledger.open().count() == 200, "each was claimed exactly once");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
