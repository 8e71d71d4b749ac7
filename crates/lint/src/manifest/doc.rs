//! One document of a manifest: its tree, and where its parts stand in the file.

use std::ops::Range;

use formats::tree::{Entry, Key, Spot, Value};
use formats::{ReadError, Source, yaml};

use crate::finding::Edit;
use crate::lines::Lines;

/// Words without which a document has nothing to do with GPUs.
const WORDS: [&str; 5] = ["gpu", "nvidia", "resource.k8s.io", "hotpot", "mig-"];

/// A document that was read.
pub(super) struct Doc<'a> {
    /// The document's text.
    text: &'a str,
    lines: Lines<'a>,
    /// Where it begins in the file.
    from: usize,
    /// What it says.
    pub(super) tree: Entry,
}

/// The documents that have to do with GPUs.
///
/// # Errors
/// The first of them that is no YAML.
pub(super) fn documents(source: &Source) -> Result<Vec<Doc<'_>>, ReadError> {
    let mut docs = Vec::new();
    for (line, from, text) in parts(source.text()) {
        let small = text.to_ascii_lowercase();
        if !WORDS.iter().any(|word| small.contains(word)) {
            continue;
        }
        let of_part = Source::from_bytes(source.name(), text.as_bytes().to_vec())?;
        let tree = yaml::manifest(&of_part).map_err(|mut error| {
            error.line = error.line.map(|at| at + line);
            error
        })?;
        docs.push(Doc { text, lines: Lines::of(text), from, tree });
    }
    Ok(docs)
}

/// The parts between lines `---`: the lines and the bytes before each, and its text.
fn parts(text: &str) -> Vec<(usize, usize, &str)> {
    let (mut parts, mut begun, mut at) = (Vec::new(), (0, 0), 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let is_mark = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.trim_start().is_empty() || rest.trim_start().starts_with('#'));
        if is_mark {
            parts.push((begun.0, begun.1, &text[begun.1..at]));
            begun = (number + 1, at + line.len());
        }
        at += line.len();
    }
    parts.push((begun.0, begun.1, &text[begun.1..]));
    parts
}

impl Doc<'_> {
    /// The byte of a spot within the document.
    fn offset(&self, at: Spot) -> usize {
        self.lines.offset(at.line, at.column)
    }

    /// The bytes of a key in the file.
    pub(super) fn key(&self, key: &Key) -> Range<usize> {
        let at = self.offset(key.at);
        let quotes = if self.text[at..].starts_with(['"', '\'']) { 2 } else { 0 };
        let end = (at + key.name.len() + quotes).min(self.text.len());
        self.from + at..self.from + self.boundary(end)
    }

    /// The bytes of a value that is a word, as they stand; those up to the end of its line if that is not plain.
    pub(super) fn value(&self, entry: &Entry) -> Range<usize> {
        let at = self.offset(entry.at);
        let line = self.lines.start(entry.at.line) + self.lines.line(entry.at.line).len();
        let end = self.token(entry).map_or(line.max(at), |length| at + length);
        self.from + at..self.from + end
    }

    /// The edit that puts another text in the place of a value that is a plain or quoted word.
    pub(super) fn replace(&self, entry: &Entry, text: impl Into<String>) -> Option<Edit> {
        self.token(entry)?;
        Some(Edit::new(self.value(entry), text))
    }

    /// A word as it stands, quotes included.
    pub(super) fn written(&self, entry: &Entry) -> Option<&str> {
        let at = self.offset(entry.at);
        self.text.get(at..at + self.token(entry)?)
    }

    /// The edit that calls a key otherwise; its name must stand as it is, without quotes.
    pub(super) fn rename(&self, key: &Key, name: &str) -> Option<Edit> {
        let at = self.offset(key.at);
        self.text[at..].starts_with(&key.name).then(|| Edit::new(self.key(key), name))
    }

    /// How long a word is as it stands; `None` if it is not one, or written over several lines.
    fn token(&self, entry: &Entry) -> Option<usize> {
        let text = self.text.get(self.offset(entry.at)..)?;
        let plain = match &entry.value {
            Value::Text(word) if text.starts_with(['"', '\'']) => {
                let quote = &text[..1];
                let quoted = format!("{quote}{word}{quote}");
                return text.starts_with(&quoted).then_some(quoted.len());
            }
            Value::Text(word) => text.starts_with(word.as_str()).then_some(word.len()),
            Value::Number(_) | Value::Flag(_) => text
                .find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)))
                .or(Some(text.len())),
            Value::Null | Value::List(_) | Value::Table(_) => None,
        };
        plain.filter(|length| *length > 0)
    }

    /// A byte at or before `at` at which a character begins.
    fn boundary(&self, at: usize) -> usize {
        (0..=at).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0)
    }

    /// The blanks before a key that stands first in its line; `None` if it does not, as in `{a: 1}`.
    pub(super) fn indent(&self, key: &Key) -> Option<String> {
        let line = self.lines.line(key.at.line);
        let before: String = line.chars().take(key.at.column.saturating_sub(1)).collect();
        before.chars().all(|c| c == ' ').then_some(before)
    }

    /// The lines, one-based, from a key that stands first in its line to the last that is indented deeper, or is an item of a
    /// list below it.
    pub(super) fn block(&self, key: &Key) -> Option<(usize, usize)> {
        let indent = self.indent(key)?.len();
        let mut last = key.at.line;
        for number in key.at.line + 1..=self.lines.count() {
            let line = self.lines.line(number);
            let (blanks, rest) = (line.len() - line.trim_start().len(), line.trim());
            if rest.is_empty() || rest.starts_with('#') {
                continue;
            }
            if blanks < indent || (blanks == indent && !rest.starts_with("- ")) {
                break;
            }
            last = number;
        }
        Some((key.at.line, last))
    }

    /// The bytes of lines in the file, without the end of the last.
    pub(super) fn span(&self, (first, last): (usize, usize)) -> Range<usize> {
        let end = self.lines.start(last) + self.lines.line(last).len();
        self.from + self.lines.start(first)..self.from + end
    }
}

/// A key of a table and its value.
pub(super) fn get<'a>(entry: &'a Entry, name: &str) -> Option<(&'a Key, &'a Entry)> {
    fields(entry).find(|(key, _)| key.name == name)
}

/// The value at a path of keys.
pub(super) fn at<'a>(entry: &'a Entry, path: &[&str]) -> Option<&'a Entry> {
    path.iter().try_fold(entry, |entry, name| get(entry, name).map(|(_, value)| value))
}

/// The keys of a table with their values; nothing of what is none.
pub(super) fn fields(entry: &Entry) -> impl Iterator<Item = (&Key, &Entry)> {
    let fields: &[(Key, Entry)] = match &entry.value {
        Value::Table(fields) => fields,
        Value::Null | Value::Flag(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => &[],
    };
    fields.iter().map(|(key, value)| (key, value))
}

/// The items of the list that a key has; nothing of what is none.
pub(super) fn items<'a>(entry: &'a Entry, name: &str) -> &'a [Entry] {
    match get(entry, name).map(|(_, value)| &value.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

/// A word or number as text.
pub(super) fn text(entry: &Entry) -> Option<&str> {
    match &entry.value {
        Value::Text(text) | Value::Number(text) => Some(text),
        Value::Null | Value::Flag(_) | Value::List(_) | Value::Table(_) => None,
    }
}

/// A key's word.
pub(super) fn word<'a>(entry: &'a Entry, name: &str) -> Option<&'a str> {
    get(entry, name).and_then(|(_, value)| text(value))
}
