//! Taking values out of a table of the tree, with an error that fits when one is missing or wrong.

use crate::error::{Complaint, ReadError, quote};
use crate::near::nearest;
use crate::text::Source;
use crate::tree::{Entry, Key, Spot, Value};

/// A table whose keys are all known.
pub(crate) struct Keys<'a> {
    source: &'a Source,
    at: Spot,
    entries: &'a [(Key, Entry)],
}

/// A value that is present.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    source: &'a Source,
    name: &'a str,
    entry: &'a Entry,
}

impl<'a> Keys<'a> {
    /// The table of a whole file.
    pub(crate) fn of_file(
        source: &'a Source,
        tree: &'a Entry,
        known: &[&'static str],
    ) -> Result<Self, ReadError> {
        Field { source, name: "file", entry: tree }.keys(known)
    }

    /// The table of a whole file with keys that others define.
    pub(crate) fn of_any_file(source: &'a Source, tree: &'a Entry) -> Result<Self, ReadError> {
        Field { source, name: "file", entry: tree }.any_keys()
    }

    /// A value that may be absent; YAML's null counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<Field<'a>> {
        let (key, entry) = self.entries.iter().find(|(key, _)| key.name == name)?;
        let field = Field { source: self.source, name: &key.name, entry };
        (!matches!(entry.value, Value::Null)).then_some(field)
    }

    /// A value that must be present.
    pub(crate) fn need(&self, name: &str, example: &str) -> Result<Field<'a>, ReadError> {
        self.get(name).ok_or_else(|| {
            let complaint = Complaint::new("is missing", format!("add {example}"));
            self.source.error_at(self.at, complaint).in_field(name)
        })
    }

    /// The first of the named keys that is present.
    pub(crate) fn first_of(&self, names: &[&str]) -> Option<Field<'a>> {
        names.iter().find_map(|name| self.get(name))
    }

    /// A value read from its text, if it is present.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, Complaint>,
    ) -> Result<Option<T>, ReadError> {
        self.get(name).map(|field| field.read(parse)).transpose()
    }

    /// Every entry, for tables whose keys the user chooses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Field<'a>> {
        let source = self.source;
        self.entries.iter().map(move |(key, entry)| Field { source, name: &key.name, entry })
    }

    /// Every element of a list; none if the key is absent.
    pub(crate) fn items(&self, name: &str) -> Result<Vec<Field<'a>>, ReadError> {
        self.get(name).map_or(Ok(Vec::new()), |field| field.items())
    }
}

impl<'a> Field<'a> {
    /// The key.
    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    /// An error at this value.
    pub(crate) fn error(&self, what: impl Into<String>, way_out: impl Into<String>) -> ReadError {
        self.complain(Complaint::new(what, way_out))
    }

    /// A complaint, at this value.
    pub(crate) fn complain(&self, complaint: Complaint) -> ReadError {
        self.source.error_at(self.entry.at, complaint).in_field(self.name)
    }

    /// The value read from its text, be it a number or a string.
    pub(crate) fn read<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, Complaint>,
    ) -> Result<T, ReadError> {
        let (Value::Number(text) | Value::Text(text)) = &self.entry.value else {
            return Err(self.wrong_kind("one value", "give a number or a string"));
        };
        parse(text).map_err(|complaint| self.complain(complaint))
    }

    /// A string that is not empty.
    pub(crate) fn text(&self) -> Result<&'a str, ReadError> {
        if let Value::Number(number) = &self.entry.value {
            let way_out = format!("put it in quotes: \"{number}\"");
            return Err(self.error(format!("{number} is a number, not text"), way_out));
        }
        let Value::Text(text) = &self.entry.value else {
            return Err(self.wrong_kind("text", "give a string in quotes"));
        };
        if text.trim().is_empty() {
            return Err(self.error("is empty", "give a name"));
        }
        Ok(text)
    }

    /// A whole number between two bounds, both included.
    pub(crate) fn count(&self, least: u32, most: u32) -> Result<u32, ReadError> {
        let way_out = format!("give {least} to {most}");
        let Value::Number(text) = &self.entry.value else {
            return Err(self.wrong_kind("a count", &way_out));
        };
        match text.parse::<u32>() {
            Ok(count) if (least..=most).contains(&count) => Ok(count),
            Ok(count) => Err(self.error(format!("{count} is out of range"), way_out)),
            Err(_) => Err(self.error(format!("{} is not a count", quote(text)), way_out)),
        }
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self) -> Result<bool, ReadError> {
        let Value::Flag(flag) = &self.entry.value else {
            return Err(self.wrong_kind("a yes or no", "give true or false"));
        };
        Ok(*flag)
    }

    /// The elements of a list.
    pub(crate) fn items(&self) -> Result<Vec<Field<'a>>, ReadError> {
        let Value::List(items) = &self.entry.value else {
            return Err(self.wrong_kind("a list", "put it in [ ]"));
        };
        Ok(items.iter().map(|entry| Field { entry, ..*self }).collect())
    }

    /// Whether the value is a list.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.entry.value, Value::List(_))
    }

    /// Whether the value is a table.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.entry.value, Value::Table(_))
    }

    /// The value as a table with these keys only; of several unknown ones the first is told.
    pub(crate) fn keys(&self, known: &[&'static str]) -> Result<Keys<'a>, ReadError> {
        let keys = self.any_keys()?;
        let unknown = keys.entries.iter().filter(|(key, _)| !known.contains(&key.name.as_str()));
        match unknown.min_by_key(|(key, _)| (key.at.line, key.at.column)) {
            None => Ok(keys),
            Some((key, _)) => {
                let what = "is not a known key";
                let list = known.join(", ");
                let way_out = match nearest(&key.name, known) {
                    Some(meant) => format!("did you mean {meant}? known: {list}"),
                    None => format!("known: {list}"),
                };
                let error = self.source.error_at(key.at, Complaint::new(what, way_out));
                Err(error.in_field(&key.name))
            }
        }
    }

    /// The value as a table whose keys the user chooses.
    pub(crate) fn any_keys(&self) -> Result<Keys<'a>, ReadError> {
        let Value::Table(entries) = &self.entry.value else {
            return Err(self.wrong_kind("a table", "give keys and values"));
        };
        Ok(Keys { source: self.source, at: self.entry.at, entries })
    }

    fn wrong_kind(&self, wanted: &str, way_out: &str) -> ReadError {
        let found = match &self.entry.value {
            Value::Null => "nothing".to_string(),
            Value::Flag(flag) => flag.to_string(),
            Value::Number(number) => quote(number),
            Value::Text(text) => quote(text),
            Value::List(_) => "a list".to_string(),
            Value::Table(_) => "a table".to_string(),
        };
        self.error(format!("{found} is not {wanted}"), way_out)
    }
}
