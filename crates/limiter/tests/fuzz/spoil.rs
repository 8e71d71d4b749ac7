//! Writes nonsense into what the clients share, while they use it. Files are not shortened: who has mapped a
//! file that gets shorter dies, and nothing can be done about that from inside.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use model::SplitMix;

use crate::run::boards;
use crate::support::Stage;

/// Bytes before a page in its file.
const HEAD: u64 = 64;
/// Writes in a run: then the clients are to come to an end.
const WRITES: u32 = 400;

/// Ends the writing when it is dropped.
pub(crate) struct Spoiling {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Spoiling {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Begins to spoil the files of a stage.
pub(crate) fn start(stage: &Stage, seed: u64) -> Spoiling {
    let ledgers = stage.machine.read().gpus.iter().map(|gpu| stage.ledger(&gpu.uuid)).collect();
    let (boards, caps) = (boards(stage), stage.folder.join("caps"));
    let ended = Arc::new(AtomicBool::new(false));
    let mut spoiler = Spoiler { numbers: SplitMix::new(seed), ledgers, boards, caps };
    let until = Arc::clone(&ended);
    let thread = std::thread::spawn(move || {
        for _ in 0..WRITES {
            if until.load(Ordering::SeqCst) {
                return;
            }
            spoiler.spoil();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    Spoiling { ended, thread: Some(thread) }
}

struct Spoiler {
    numbers: SplitMix,
    ledgers: Vec<PathBuf>,
    boards: Vec<PathBuf>,
    caps: PathBuf,
}

impl Spoiler {
    fn spoil(&mut self) {
        match self.numbers.below(20) {
            0..8 => self.words(true),
            8..18 => self.words(false),
            _ => self.caps(),
        }
    }

    /// Overwrites some words of a page, or a stretch of it.
    fn words(&mut self, board: bool) {
        let files = if board { &self.boards } else { &self.ledgers };
        let path = files[self.numbers.position(files.len())].clone();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let words = file.metadata().unwrap().len().saturating_sub(HEAD) / 8;
        let stretch = if self.numbers.below(8) == 0 { 512 } else { 1 };
        // The first words are what all else hangs on.
        let first = if self.numbers.below(3) == 0 { 16 } else { words };
        let at = self.numbers.below(first);
        for word in at..(at + stretch).min(words) {
            self.word(&file, HEAD + word * 8);
        }
    }

    fn word(&mut self, file: &File, at: u64) {
        let random = self.numbers.next_bits();
        let choices = [0, u64::MAX, u64::from(std::process::id()), 1 << 63, random, random >> 40];
        let word = choices[self.numbers.position(choices.len())];
        file.write_all_at(&word.to_ne_bytes(), at).unwrap();
    }

    /// Takes the caps away, or has them say something else.
    fn caps(&mut self) {
        let text: &[u8] = match self.numbers.below(4) {
            0 => {
                let _ = std::fs::remove_file(&self.caps);
                return;
            }
            1 => b"tenant = other\n[GPU-of-others]\nmemory = 1\nledger = /nowhere\n",
            2 => b"\xff\0 = [",
            _ => b"",
        };
        std::fs::write(&self.caps, text).unwrap();
    }
}
