//! What the commands of a script ask: variables that go round by word of mouth, and options of the steps that they start.

use std::ops::Range;

use formats::placed::{self, Placed};

use super::{ask, whole};
use crate::finding::Finding;
use crate::finding::Severity::NotWhatYouThink;

/// Set as a variable of the shell or of the job's environment.
const VARIABLE: &str = "GPUSHARED=";
/// Words that stand before variables.
const BEFORE: [&str; 5] = ["export", "declare", "typeset", "env", "-x"];

/// The options of each step, or other job, that the commands start.
///
/// * `commands` — their bytes.
pub(super) fn of_steps(text: &str, commands: &[Range<usize>]) -> Vec<Vec<Placed>> {
    let steps = commands.iter().map(|command| placed::launch_options(text, command));
    steps.filter(|options| !options.is_empty()).collect()
}

pub(super) fn check(text: &str, commands: &[Range<usize>], steps: &[Vec<Placed>]) -> Vec<Finding> {
    let variables = commands
        .iter()
        .filter_map(|command| Some(unread(command.start + variable(text.get(command.clone())?)?)));
    variables.chain(steps.iter().flat_map(|options| of_step(options))).collect()
}

/// `--export=ALL,GPUSHARED=1`.
pub(super) fn exported(options: &[Placed]) -> Option<Finding> {
    let is_set = |word: &str| word.starts_with(VARIABLE);
    let option =
        options.iter().find(|it| it.name == "export" && it.value.split(',').any(is_set))?;
    let value = option.value_span.clone().unwrap_or_else(|| option.span.clone());
    Some(unread_at(value))
}

/// Where a line sets the variable.
fn variable(line: &str) -> Option<usize> {
    let mut at = 0;
    for word in line.split_inclusive([' ', '\t']) {
        let bare = word.trim();
        if bare.starts_with(VARIABLE) {
            return Some(at);
        }
        if !(bare.is_empty() || bare.contains('=') || BEFORE.contains(&bare)) {
            return None;
        }
        at += word.len();
    }
    None
}

fn unread(at: usize) -> Finding {
    unread_at(at..at + VARIABLE.len() - 1)
}

fn unread_at(span: Range<usize>) -> Finding {
    Finding::new(
        ("gpushared", NotWhatYouThink),
        span,
        "no version of Slurm reads GPUSHARED: the job has what its options ask for, as if it were not there",
        "leave it out; a part of a GPU is asked for by #SBATCH --gres=shard:N where the cluster has shards, or by hotpot's --gpu-mem=8G",
    )
}

/// What the options of a step ask. None of it is mended: what a step may have depends on what its job has.
fn of_step(options: &[Placed]) -> Vec<Finding> {
    let mut asks = ask::all(options);
    asks.retain(|ask| !ask.is_of_shell());
    let mut found = whole::check(&asks, (options, &[]), None);
    found.iter_mut().for_each(|finding| finding.edits.clear());
    found
}
