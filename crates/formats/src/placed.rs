//! Where the options of an sbatch script stand, byte by byte, for whoever checks scripts and mends them.

use std::ops::Range;

use crate::directives::{is_apart, spanned_words, split};
use crate::here::HereDocuments;
use crate::options::{self, Takes};

/// Programs that take the options of a job, or of a step of it.
const LAUNCHERS: [&str; 3] = ["srun", "sbatch", "salloc"];

/// An option of a script with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its long name, without dashes.
    pub name: &'static str,
    /// Its value without quotes; empty without one.
    pub value: String,
    /// The bytes of the option and its value.
    pub span: Range<usize>,
    /// The bytes of the value without its quotes, if they are the value as it stands.
    pub value_span: Option<Range<usize>>,
}

/// A script as sbatch reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// The options that sbatch knows, in the order of the file: one list, or one for each part of a heterogeneous job.
    pub jobs: Vec<Vec<Placed>>,
    /// Options that sbatch does not know, without dashes, and the bytes of their names. Plugins of a site may know them.
    pub unknown: Vec<(String, Range<usize>)>,
    /// The bytes of lines that look like directives and are not read, as commands stand before them.
    pub too_late: Vec<Range<usize>>,
    /// The same of lines that do not begin with `#SBATCH`, by a blank only.
    pub not_at_start: Vec<Range<usize>>,
    /// The bytes of the commands, each with the lines that continue it; here-documents are none.
    pub commands: Vec<Range<usize>>,
}

/// Reads a script. Lines whose quotes are not closed, and options that nobody knows, are passed over.
pub fn directives(text: &str) -> Directives {
    let mut found = Directives { jobs: vec![Vec::new()], ..Directives::default() };
    let mut here = HereDocuments::of(text);
    let (mut from, mut goes_on) = (0, false);
    for line in text.split_inclusive('\n') {
        let shown = line.trim_end_matches(['\n', '\r']);
        let whole = from..from + shown.len();
        from += line.len();
        if here.takes(shown) {
            continue;
        }
        if !goes_on && (shown.trim().is_empty() || shown.trim_start().starts_with('#')) {
            found.comment(text, shown, whole);
            continue;
        }
        match found.commands.last_mut().filter(|_| goes_on) {
            Some(command) => command.end = whole.end,
            None => found.commands.push(whole),
        }
        here.begin(shown);
        goes_on = shown.ends_with('\\');
    }
    found
}

impl Directives {
    /// A line that is empty or begins with `#`.
    fn comment(&mut self, text: &str, shown: &str, whole: Range<usize>) {
        let rest = shown.strip_prefix("#SBATCH").filter(|rest| is_apart(rest));
        let is_shifted = shown.starts_with("# SBATCH -")
            || (rest.is_none() && shown.trim_start().starts_with("#SBATCH -"));
        match rest {
            Some(_) if !self.commands.is_empty() => self.too_late.push(whole),
            Some(rest) if ["hetjob", "packjob"].contains(&rest.trim()) => {
                self.jobs.push(Vec::new());
            }
            Some(rest) => {
                let found = words(text, rest, whole.end - rest.len());
                self.unknown.extend(found.iter().filter_map(unknown));
                self.jobs.last_mut().into_iter().for_each(|job| options(text, &found, false, job));
            }
            None if is_shifted => self.not_at_start.push(whole),
            None => {}
        }
    }
}

/// The options that a command gives to the program of Slurm that it starts; none if it starts another one.
pub fn launch_options(text: &str, command: &Range<usize>) -> Vec<Placed> {
    let line = text.get(command.clone()).unwrap_or("");
    // Of equal length, so that places stay.
    let line = line.replace("\\\n", "  ").replace("\\\r\n", "   ");
    let words = words(text, &line, command.start);
    let goes_before = |word: &str| word.contains('=') || ["exec", "time", "nohup"].contains(&word);
    let at = words.iter().position(|(word, _)| !goes_before(word)).unwrap_or(words.len());
    let mut found = Vec::new();
    if words.get(at).is_some_and(|(word, _)| LAUNCHERS.contains(&word.as_str())) {
        options(text, &words[at + 1..], true, &mut found);
    }
    found
}

/// A word that is an option and none that sbatch knows, long and not cut short.
fn unknown((word, span): &(String, Range<usize>)) -> Option<(String, Range<usize>)> {
    let name = split(word.strip_prefix("--").map(|_| word.as_str())?).0;
    let span = span.start + 2..(span.start + 2 + name.len()).min(span.end);
    options::find_cut(name).is_none().then(|| (name.to_owned(), span))
}

/// The words of a part of a text with their places in the text.
///
/// * `from` — where the part begins.
fn words(text: &str, part: &str, from: usize) -> Vec<(String, Range<usize>)> {
    let words = spanned_words(part).unwrap_or_default().into_iter();
    let placed = words.map(|(word, span)| (word, span.start + from..span.end + from));
    placed.filter(|(_, span)| span.end <= text.len()).collect()
}

/// * `is_command` — whether the first word that is no option ends them, as the program to be started.
fn options(
    text: &str,
    words: &[(String, Range<usize>)],
    is_command: bool,
    found: &mut Vec<Placed>,
) {
    let mut words = words.iter();
    while let Some((word, span)) = words.next() {
        let (name, value) = split(word);
        if is_command && !word.starts_with('-') {
            return;
        }
        let known = options::find_cut(name).filter(|_| word.starts_with('-') && !name.is_empty());
        let Some(&(name, _, takes, _)) = known else { continue };
        let (mut span, mut of_value) = (span.clone(), span.clone());
        let has_value = value.is_some();
        let mut value = value.unwrap_or_default();
        if takes == Takes::Value && !has_value {
            let Some((next, at)) = words.next() else { continue };
            (span.end, of_value, value) = (at.end, at.clone(), next.clone());
        }
        let value_span = unquoted(text, &of_value, &value).filter(|_| !value.is_empty());
        found.push(Placed { name, value, span, value_span });
    }
}

/// Where a value stands that ends a word, within its quotes if it has some; `None` if it is written otherwise.
fn unquoted(text: &str, word: &Range<usize>, value: &str) -> Option<Range<usize>> {
    let bare = word.end.checked_sub(value.len())?..word.end;
    let is_value =
        |at: &Range<usize>| at.start >= word.start && text.get(at.clone()) == Some(value);
    if is_value(&bare) {
        return Some(bare);
    }
    let within = bare.start.checked_sub(1)?..word.end - 1;
    let before = text.get(within.start.checked_sub(1)?..within.start)?;
    let is_quoted = ["\"", "'"].contains(&before) && text.get(within.end..word.end) == Some(before);
    Some(within).filter(|at| is_quoted && is_value(at))
}
