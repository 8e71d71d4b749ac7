//! Waiting for the end of an array: until no task is left, or no pilot that could do one.

use std::thread;
use std::time::{Duration, Instant};

use local::clock::Clock;
use slurm::array::figures::Figures;
use slurm::array::folder::Folder;
use slurm::array::ledger::Ledger;
use slurm::array::{queue, submission};

use super::{refused, tasks};
use crate::failure::{Answer, Failure};
use crate::screen;

/// How often the journal is looked at.
const STEP: Duration = Duration::from_millis(500);
/// How often Slurm is asked for pilots.
const ASKING: Duration = Duration::from_secs(15);

pub(super) fn wait(folder: &Folder) -> Result<Answer, Failure> {
    let mut journal = folder.look().map_err(refused)?;
    let mut asked = Instant::now();
    while !journal.ledger().is_over() {
        thread::sleep(STEP);
        // What cannot be read now may be later.
        let _ = journal.catch_up();
        if asked.elapsed() > ASKING {
            asked = Instant::now();
            // Slurm may be down for a while; the pilots go on.
            if has_pilots(folder, journal.ledger()) == Some(false) {
                let _ = journal.catch_up();
                break;
            }
        }
    }
    let figures = Figures::of(journal.ledger(), Clock::calendar_ms());
    screen::note(&figures.line());
    if !journal.ledger().is_over() {
        screen::note(&none_is_left(folder));
        return Ok(Answer::No);
    }
    tasks::answer(journal.ledger())
}

/// What to do if tasks wait and no pilot is there.
pub(super) fn none_is_left(folder: &Folder) -> String {
    let folder = folder.path().display();
    format!("no pilot is left; continue with `hotpot slurm run --resume {folder}`")
}

/// `None` if Slurm does not answer.
pub(super) fn has_pilots(folder: &Folder, ledger: &Ledger) -> Option<bool> {
    for array in submission::submissions(folder, ledger) {
        if !queue::elements(array).ok()?.is_empty() {
            return Some(true);
        }
    }
    Some(false)
}
