//! `hotpot slurm tasks`: where the tasks of an array stand.

use std::fmt::Write as _;

use local::clock::Clock;
use slurm::array::figures::{Figures, TaskFigures};
use slurm::array::folder::Folder;
use slurm::array::ledger::Ledger;

use super::args::Tasks;
use super::{refused, waiting};
use crate::args::Output;
use crate::failure::{Answer, Failure};
use crate::run::seconds;
use crate::screen;

/// Most tasks that are listed without `--all`.
const LISTED_MAX: usize = 20;

pub(super) fn run(options: &Tasks) -> Result<Answer, Failure> {
    let folder = Folder::find(&options.array).map_err(refused)?;
    let journal = folder.look().map_err(refused)?;
    let figures = Figures::of(journal.ledger(), Clock::calendar_ms());
    let text = match options.output.output {
        Output::Json => crate::words::to_json(&figures),
        Output::Table => table(&folder, &figures, options.all),
    };
    screen::print(&text)?;
    let ledger = journal.ledger();
    if !ledger.is_over() && waiting::has_pilots(&folder, ledger) == Some(false) {
        screen::note(&waiting::none_is_left(&folder));
    }
    answer(journal.ledger())
}

/// No if a task has failed.
pub(super) fn answer(ledger: &Ledger) -> Result<Answer, Failure> {
    let figures = Figures::of(ledger, Clock::calendar_ms());
    Ok(if figures.failed == 0 { Answer::Yes } else { Answer::No })
}

fn table(folder: &Folder, figures: &Figures, all: bool) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}: {}", folder.order.name, figures.line());
    let _ = writeln!(text, "  {:<10} {}", "folder", folder.path().display());
    if let Some(span_ms) = figures.span_ms {
        let _ = writeln!(text, "  {:<10} {}", "span", seconds(span_ms));
    }
    let wanted = |task: &&TaskFigures| all || task.ok == Some(false) || task.state == "running";
    let most = if all { usize::MAX } else { LISTED_MAX };
    let mut rows: Vec<&TaskFigures> = figures.each.iter().filter(wanted).collect();
    // What went wrong first.
    rows.sort_by_key(|task| (!all && task.ok != Some(false), task.index));
    if !rows.is_empty() {
        let _ = writeln!(
            text,
            "\n{:>8}  {:<16} {:<12} {:<14} {:>10}  tries",
            "task", "state", "node", "pilot", "took"
        );
    }
    for task in rows.iter().take(most) {
        let or_none = |value: &Option<String>| value.clone().unwrap_or("-".to_string());
        let (node, pilot) = (or_none(&task.node), or_none(&task.pilot));
        let took = task.took_ms.map_or("-".to_string(), seconds);
        let (index, state, tries) = (task.index, &task.state, task.attempts);
        let _ =
            writeln!(text, "{index:>8}  {state:<16} {node:<12} {pilot:<14} {took:>10}  {tries}");
    }
    if rows.len() > most {
        let _ = writeln!(text, "… and {} more; --all lists each task", rows.len() - most);
    }
    text
}
