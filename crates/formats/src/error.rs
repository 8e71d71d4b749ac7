//! The one error of all readers. It says where, why, and the way out.

use std::fmt;

/// Most characters of a file that an error repeats.
const QUOTE_MAX: usize = 60;

/// Why a value cannot be used, and what to write instead; not yet bound to a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// What is wrong: a fragment such as `"-2" is not a count`.
    pub what: String,
    /// What to do about it: a fragment such as `give 0 or more`.
    pub way_out: String,
}

impl Complaint {
    /// A complaint of its two parts, without full stops.
    pub fn new(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { what: what.into(), way_out: way_out.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.way_out)
    }
}

impl std::error::Error for Complaint {}

/// A file that cannot be read, with the place and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The file as the caller named it.
    pub file: Box<str>,
    /// One-based line, if the fault is in one.
    pub line: Option<usize>,
    /// Column, key or option.
    pub field: Option<Box<str>>,
    /// What is wrong.
    pub what: Box<str>,
    /// What to do about it.
    pub way_out: Box<str>,
    /// The line itself, where showing it helps.
    pub excerpt: Option<Box<Excerpt>>,
}

/// A line of the file with the place of the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line, without its end.
    pub text: String,
    /// One-based column in characters.
    pub column: usize,
}

impl ReadError {
    /// An error about a whole file, for those who read it by means of this crate.
    pub fn about(file: &str, complaint: Complaint) -> Self {
        Self::of_file(file, complaint)
    }

    /// An error about a whole file.
    pub(crate) fn of_file(file: &str, complaint: Complaint) -> Self {
        Self {
            file: file.into(),
            line: None,
            field: None,
            what: complaint.what.into(),
            way_out: complaint.way_out.into(),
            excerpt: None,
        }
    }

    /// The same error at a one-based line.
    pub(crate) fn at_line(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }

    /// The same error about a column, key or option.
    pub(crate) fn in_field(mut self, field: &str) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The same error with the line shown and a caret under a one-based column.
    pub(crate) fn showing(mut self, text: &str, column: usize) -> Self {
        self.excerpt = Some(Box::new(Excerpt { text: text.to_string(), column }));
        self
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        write!(f, "{}; {}", self.what, self.way_out)?;
        match (&self.excerpt, self.line) {
            (Some(excerpt), Some(line)) => excerpt.show(f, line),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ReadError {}

impl Excerpt {
    /// Writes the part of the line around the column, and a caret below it.
    fn show(&self, f: &mut fmt::Formatter<'_>, line: usize) -> fmt::Result {
        const BEFORE: usize = 60;
        const WIDTH: usize = 90;
        let column = self.column.saturating_sub(1);
        let from = column.saturating_sub(BEFORE);
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = self.text.chars().skip(from).take(WIDTH).map(plain).collect();
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        write!(f, "\n {number} | {}", text.trim_end())?;
        write!(f, "\n {margin} | {}^", " ".repeat(column - from))
    }
}

/// A value as errors show it: in quotes, control characters escaped, cut when long.
pub(crate) fn quote(value: &str) -> String {
    match value.char_indices().nth(QUOTE_MAX) {
        Some((end, _)) => format!("{:?}", format!("{}…", &value[..end])),
        None => format!("{value:?}"),
    }
}
