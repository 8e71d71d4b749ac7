//! The `#SBATCH` lines of a script, as options with values and lines.
//!
//! Read as sbatch reads them (sbatch manual): directives stand before the first command, `#` ends
//! one, quotes hold words together, the last of two equal options counts.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Complaint, ReadError, quote};
use crate::near::nearest;
use crate::options::{self, Takes, Use};
use crate::text::Source;

/// The directives of one script.
pub(crate) struct Directives<'a> {
    source: &'a Source,
    given: BTreeMap<&'static str, Given>,
    /// Options that say nothing about placement, as written, with their line; and whether they say
    /// how a task is started.
    aside: Vec<(String, bool)>,
    /// What the user should know: directives that Slurm or hotpot does not follow.
    pub(crate) warnings: Vec<String>,
}

/// An option's value and line.
struct Given {
    line: usize,
    value: String,
}

impl<'a> Directives<'a> {
    /// Reads the directives.
    pub(crate) fn of(source: &'a Source) -> Result<Self, ReadError> {
        if !source.text().starts_with("#!") {
            let what = "is not a script: the first line does not begin with \"#!\"";
            return Err(source.error(what, "begin with #!/bin/bash").at_line(1));
        }
        let (aside, warnings) = (Vec::new(), Vec::new());
        let mut directives = Self { source, given: BTreeMap::new(), aside, warnings };
        if source.text().contains("\r\n") {
            directives
                .warnings
                .push("DOS line ends: sbatch refuses them; use dos2unix".to_string());
        }
        let mut commands = false;
        for (at, text) in source.text().lines().enumerate() {
            let directive = text.strip_prefix("#SBATCH").filter(|rest| is_apart(rest));
            match directive {
                Some(_) if commands => directives.warn(at + 1, text, "after the first command"),
                Some(rest) => directives.line(at + 1, rest)?,
                None if text.trim_start().starts_with("#SBATCH")
                    || text.starts_with("# SBATCH") =>
                {
                    directives.warn(at + 1, text, "not at the start of the line");
                }
                None => commands |= !text.trim().is_empty() && !text.trim_start().starts_with('#'),
            }
        }
        Ok(directives)
    }

    /// A value read from its text, if the option was given.
    pub(crate) fn read<T>(
        &self,
        option: &str,
        parse: impl FnOnce(&str) -> Result<T, Complaint>,
    ) -> Result<Option<T>, ReadError> {
        let Some(given) = self.given.get(option) else {
            return Ok(None);
        };
        parse(&given.value).map(Some).map_err(|complaint| self.complain(option, complaint))
    }

    /// The value of an option as it stands.
    pub(crate) fn text(&self, option: &str) -> Option<&str> {
        self.given.get(option).map(|given| given.value.as_str())
    }

    /// All options with their values; an option without a value has an empty one.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.given.iter().map(|(option, given)| (*option, given.value.as_str()))
    }

    /// Whether an option was given.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.given.contains_key(option)
    }

    /// Options that say nothing about placement, in the order of their lines.
    ///
    /// * `launch` — whether those count that say how a task is started.
    pub(crate) fn ignored(&self, launch: bool) -> Vec<String> {
        let aside = self.aside.iter().filter(|(_, launches)| launch || !launches);
        aside.map(|(shown, _)| shown.clone()).collect()
    }

    /// A complaint about an option, at its line.
    pub(crate) fn complain(&self, option: &str, complaint: Complaint) -> ReadError {
        let line = self.given.get(option).map_or(1, |given| given.line);
        self.at(line, &format!("--{option}"), complaint)
    }

    fn at(&self, line: usize, option: &str, complaint: Complaint) -> ReadError {
        let text = self.source.line(line);
        let word = option.trim_start_matches('-');
        let column = text.find(word).map_or(1, |at| text[..at].chars().count() + 1);
        self.source.complain(line, option, complaint).showing(text, column)
    }

    fn warn(&mut self, line: usize, text: &str, why: &str) {
        self.warnings.push(format!("line {line}: {} does not count: {why}", quote(text.trim())));
    }

    fn line(&mut self, line: usize, text: &str) -> Result<(), ReadError> {
        let words = words(text).map_err(|complaint| self.at(line, "SBATCH", complaint))?;
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let (name, mut value) = split(&word);
            let known = options::find(name);
            if !word.starts_with('-') || name.is_empty() {
                return Err(self.at(line, &word, stray(&word)));
            }
            let takes = known.map_or(Takes::Value, |(_, _, takes, _)| *takes);
            if takes == Takes::Value && value.is_none() {
                value = words.next_if(|next| known.is_some() || !next.starts_with('-'));
            }
            let Some(&(long, _, _, of_use)) = known else {
                self.warnings.push(format!("line {line}: {}", unknown(&word, name)));
                continue;
            };
            if takes == Takes::Value && value.is_none() {
                let complaint = Complaint::new("has no value", format!("write --{long}=VALUE"));
                return Err(self.at(line, &format!("--{long}"), complaint));
            }
            self.take((line, long, value, of_use));
        }
        Ok(())
    }

    fn take(&mut self, (line, long, value, of_use): (usize, &'static str, Option<String>, Use)) {
        let value = value.unwrap_or_default();
        let equals = if value.is_empty() { "" } else { "=" };
        let shown = format!("--{long}{equals}{value}");
        match of_use {
            Use::Read => {
                self.given.insert(long, Given { line, value });
            }
            Use::Launch => {
                self.aside.push((format!("{shown} (line {line})"), true));
                self.given.insert(long, Given { line, value });
            }
            Use::Ignored => {
                self.aside.push((format!("{shown} (line {line})"), false));
                self.given.insert(long, Given { line, value });
            }
            Use::Unmet => {
                self.warnings.push(format!("line {line}: hotpot does not follow {shown}"));
                self.given.insert(long, Given { line, value });
            }
        }
    }
}

pub(crate) fn is_apart(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([' ', '\t'])
}

/// Name and attached value of an option: `--name=value`, `-nvalue`.
pub(crate) fn split(word: &str) -> (&str, Option<String>) {
    if let Some(long) = word.strip_prefix("--") {
        return match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (long, None),
        };
    }
    let short = word.strip_prefix('-').unwrap_or(word);
    let end = short.chars().next().map_or(0, char::len_utf8);
    let (name, value) = short.split_at(end);
    (name, (!value.is_empty()).then(|| value.to_string()))
}

fn stray(word: &str) -> Complaint {
    if ["hetjob", "packjob"].contains(&word) {
        let way_out = "write one script for each part";
        return Complaint::new("heterogeneous jobs are not read", way_out);
    }
    let way_out = "begin options with --, and put values with blanks in quotes";
    Complaint::new(format!("{} is not an option", quote(word)), way_out)
}

fn unknown(word: &str, name: &str) -> String {
    match nearest(name, &options::names()).filter(|_| name.len() > 1) {
        Some(meant) => format!("{} is not known; did you mean --{meant}?", quote(word)),
        None => format!("{} is not known and does not count", quote(word)),
    }
}

/// The words of a directive: quotes hold blanks, a backslash the next character, `#` ends the line.
pub(crate) fn words(text: &str) -> Result<Vec<String>, Complaint> {
    Ok(spanned_words(text)?.into_iter().map(|(word, _)| word).collect())
}

/// As [`words`], each with the bytes of the line that it is made of.
pub(crate) fn spanned_words(text: &str) -> Result<Vec<(String, Range<usize>)>, Complaint> {
    let mut words = Vec::new();
    let mut word: Option<(String, usize)> = None;
    let mut quoted: Option<char> = None;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        let begin = || (String::new(), at);
        match (quoted, c) {
            (Some(quote), c) if c == quote => quoted = None,
            (None, '"' | '\'') => {
                quoted = Some(c);
                word.get_or_insert_with(begin);
            }
            (_, '\\') if quoted != Some('\'') => {
                word.get_or_insert_with(begin).0.extend(chars.next().map(|(_, c)| c));
            }
            (None, c) if c.is_whitespace() => {
                words.extend(word.take().map(|(word, from)| (word, from..at)));
            }
            (None, '#') if word.is_none() => break,
            (_, c) => word.get_or_insert_with(begin).0.push(c),
        }
    }
    words.extend(word.map(|(word, from)| (word, from..text.len())));
    match quoted {
        Some(quote) => Err(Complaint::new(format!("a {quote} is not closed"), "close the quote")),
        None => Ok(words),
    }
}
