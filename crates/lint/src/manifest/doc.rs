//! One document of a manifest: its tree, and where its parts stand in the file.

use std::collections::BTreeSet;
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
    /// Lines and columns of the keys that stand in braces or brackets, as all do in JSON.
    in_flow: BTreeSet<(usize, usize)>,
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
            if text.contains("{{") {
                error.way_out = "of a template of Helm check what `helm template` prints".into();
            }
            error
        })?;
        let mut doc = Doc { text, lines: Lines::of(text), from, in_flow: BTreeSet::new(), tree };
        doc.in_flow = doc.keys_in_flow();
        docs.push(doc);
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

    /// The edit that puts another text in the place of a value that is a plain or quoted word. One with an anchor is left: it may
    /// be meant for other things too.
    pub(super) fn replace(&self, entry: &Entry, text: impl Into<String>) -> Option<Edit> {
        self.token(entry)?;
        let before = self.text.get(self.lines.start(entry.at.line)..self.offset(entry.at))?;
        let last = before.split_whitespace().next_back().unwrap_or("");
        if last.starts_with(['&', '!']) {
            return None;
        }
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

    /// The edit that gives a key another value and puts a second key with a number after it.
    pub(super) fn replace_by_two(
        &self,
        (key, entry): (&Key, &Entry),
        value: &str,
        (name, number): (&str, u64),
    ) -> Option<Edit> {
        let text = match self.is_in_flow(key) {
            true if self.text[self.offset(key.at)..].starts_with('"') => {
                format!("{value}, \"{name}\": {number}")
            }
            true => format!("{value}, {name}: {number}"),
            false => format!("{value}\n{}{name}: {number}", self.indent(key)?),
        };
        self.replace(entry, text)
    }

    fn is_in_flow(&self, key: &Key) -> bool {
        self.in_flow.contains(&(key.at.line, key.at.column))
    }

    fn keys_in_flow(&self) -> BTreeSet<(usize, usize)> {
        let (mut keys, mut left) = (BTreeSet::new(), vec![(&self.tree, false)]);
        while let Some((entry, is_within)) = left.pop() {
            let is_within = is_within || self.text[self.offset(entry.at)..].starts_with(['{', '[']);
            keys.extend(
                fields(entry).filter(|_| is_within).map(|(key, _)| (key.at.line, key.at.column)),
            );
            left.extend(fields(entry).map(|(_, value)| (value, is_within)));
            if let Value::List(items) = &entry.value {
                left.extend(items.iter().map(|item| (item, is_within)));
            }
        }
        keys
    }

    /// The blanks before a key that stands first in its line; `None` if it does not, or stands in braces.
    pub(super) fn indent(&self, key: &Key) -> Option<String> {
        if self.is_in_flow(key) {
            return None;
        }
        let line = self.lines.line(key.at.line);
        let before: String = line.chars().take(key.at.column.saturating_sub(1)).collect();
        before.chars().all(|c| c == ' ').then_some(before)
    }

    /// The lines, one-based, from a key that stands first in its line to the last that is indented deeper, or is an item of a
    /// list below it; `None` where braces are open behind that.
    pub(super) fn block(&self, key: &Key) -> Option<(usize, usize)> {
        let indent = self.indent(key)?.len();
        let mut last = key.at.line;
        for number in key.at.line + 1..=self.lines.count() {
            let line = self.lines.line(number);
            let (blanks, rest) = (line.len() - line.trim_start().len(), line.trim());
            if rest.is_empty() || rest.starts_with('#') {
                continue;
            }
            let is_item = rest.starts_with("- ") || rest == "-";
            if blanks < indent || (blanks == indent && !is_item) {
                break;
            }
            last = number;
        }
        let count = |mark: [char; 2]| {
            let lines = (key.at.line..=last).map(|number| self.lines.line(number));
            lines.map(|line| line.matches(mark).count()).sum::<usize>()
        };
        // Braces may close further left than what they are of begins.
        (count(['{', '[']) == count(['}', ']'])).then_some((key.at.line, last))
    }

    /// Whether something in a block has a name, or is named, elsewhere in the document.
    pub(super) fn has_anchors(&self, (first, last): (usize, usize)) -> bool {
        (first..=last).any(|number| self.lines.line(number).contains(['&', '*']))
    }

    /// Comments that stand in a block, without the blanks around them.
    pub(super) fn comments(&self, (first, last): (usize, usize)) -> Vec<&str> {
        let lines = (first..=last).map(|number| self.lines.line(number));
        let comment = |line: &'_ str| match line.trim_start().starts_with('#') {
            true => Some(line.len() - line.trim_start().len()),
            false => line.find(" #").map(|at| at + 1),
        };
        lines.filter_map(|line| Some(line[comment(line)?..].trim_end())).collect()
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
