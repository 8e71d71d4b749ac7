//! Where the options of an sbatch script stand, byte by byte, for whoever checks scripts and mends them.

use std::ops::Range;

use crate::directives::{is_apart, spanned_words, split};
use crate::options::{self, Takes};

/// An option of a script with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its long name, without dashes.
    pub name: &'static str,
    /// Its value without quotes; empty without one.
    pub value: String,
    /// The bytes of the option and its value.
    pub span: Range<usize>,
    /// The bytes of the value, if they are the value as it stands.
    pub value_span: Option<Range<usize>>,
}

/// The directives of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// The options that sbatch knows, in the order of the file.
    pub options: Vec<Placed>,
    /// The bytes of lines that look like directives and are not read, as commands stand before them.
    pub too_late: Vec<Range<usize>>,
    /// The same of lines that do not begin with `#SBATCH`, by a blank only.
    pub not_at_start: Vec<Range<usize>>,
}

/// Reads the directives of a script. Lines whose quotes are not closed, and options that nobody knows, are passed over.
pub fn directives(text: &str) -> Directives {
    let mut found = Directives::default();
    let (mut from, mut commands) = (0, false);
    for line in text.split_inclusive('\n') {
        let shown = line.trim_end_matches(['\n', '\r']);
        let whole = from..from + shown.len();
        let rest = shown.strip_prefix("#SBATCH").filter(|rest| is_apart(rest));
        match rest {
            Some(_) if commands => found.too_late.push(whole),
            Some(rest) => line_options(text, rest, whole.end - rest.len(), &mut found.options),
            None if shown.trim_start().starts_with("#SBATCH --")
                || shown.starts_with("# SBATCH --") =>
            {
                found.not_at_start.push(whole);
            }
            None => commands |= !shown.trim().is_empty() && !shown.trim_start().starts_with('#'),
        }
        from += line.len();
    }
    found
}

/// * `from` — where the rest of the line begins in the text.
fn line_options(text: &str, rest: &str, from: usize, found: &mut Vec<Placed>) {
    let Ok(words) = spanned_words(rest) else { return };
    let mut words =
        words.into_iter().map(|(word, span)| (word, span.start + from..span.end + from));
    while let Some((word, mut span)) = words.next() {
        let (name, value) = split(&word);
        let known = options::find(name).filter(|_| word.starts_with('-') && !name.is_empty());
        let Some(&(name, _, takes, _)) = known else { continue };
        let mut value_span =
            value.as_ref().map(|value| span.end.saturating_sub(value.len())..span.end);
        let mut value = value.unwrap_or_default();
        if takes == Takes::Value && value_span.is_none() {
            let Some((next, at)) = words.next() else { continue };
            span.end = at.end;
            (value, value_span) = (next, Some(at));
        }
        let value_span = value_span.filter(|at| text.get(at.clone()) == Some(value.as_str()));
        found.push(Placed { name, value, span, value_span });
    }
}
