//! A TOML or YAML file as one tree in which every value knows its line and column.
//!
//! Both formats end here, so that fleet, workload and policy files are read by one piece of code and
//! an error found late (a share above 1, a GPU model that nobody knows) still names its line.

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml_parser::lexer::TokenKind;

use crate::error::{Complaint, ReadError};
use crate::text::Source;
use crate::yaml;

/// A place in a file: one-based line, one-based column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// One-based line.
    pub line: usize,
    /// One-based column in characters.
    pub column: usize,
}

/// A value and where it begins.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where it begins.
    pub at: Spot,
    /// What it is.
    pub value: Value,
}

/// What a value is. Numbers keep their text, so that amounts are read exactly.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing.
    Null,
    /// Yes or no.
    Flag(bool),
    /// A number, as text.
    Number(String),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Entry>),
    /// A table, in the order of the file.
    Table(Vec<(Key, Entry)>),
}

/// A key and where it stands.
#[derive(Clone, Debug)]
pub struct Key {
    /// Where it begins.
    pub at: Spot,
    /// What it is called.
    pub name: String,
}

impl Source {
    /// The file as a tree: YAML if its extension says so, else TOML.
    pub(crate) fn tree(&self) -> Result<Entry, ReadError> {
        match self.extension().as_str() {
            "yaml" | "yml" => yaml::parse(self),
            _ => parse_toml(self),
        }
    }

    /// An error at a spot, with the line shown.
    pub(crate) fn error_at(&self, at: Spot, complaint: Complaint) -> ReadError {
        ReadError::of_file(self.name(), complaint)
            .at_line(at.line)
            .showing(self.line(at.line), at.column)
    }
}

/// Parts that a dotted TOML key may have. The parser bounds nesting by brackets but not by dots, and
/// each dot is a table in a table.
const KEY_PARTS_MAX: usize = 8;

fn parse_toml(source: &Source) -> Result<Entry, ReadError> {
    let lines = Lines::of(source.text());
    if let Some(offset) = long_key(source.text()) {
        let what = format!("is a key of more than {KEY_PARTS_MAX} parts");
        let complaint = Complaint::new(what, "shorten it: no key here has more than three");
        return Err(source.error_at(lines.spot(offset), complaint));
    }
    match DeTable::parse(source.text()) {
        Ok(table) => {
            let value = Value::Table(toml_table(table.get_ref(), &lines));
            Ok(Entry { at: Spot { line: 1, column: 1 }, value })
        }
        Err(error) => {
            let at = lines.spot(error.span().map_or(0, |span| span.start));
            let message = error.message().replace('\n', ", ");
            let way_out = match message.starts_with("duplicate key") {
                true => "remove one of the two, or begin a new [[…]] table before it",
                false => "see toml.io for the syntax",
            };
            let what = format!("is not TOML here ({message})");
            Err(source.error_at(at, Complaint::new(what, way_out)))
        }
    }
}

/// Where a key has too many parts, as a byte offset.
fn long_key(text: &str) -> Option<usize> {
    let mut dots = 0;
    let tokens = toml_parser::Source::new(text).lex();
    let too_many = |token: &toml_parser::lexer::Token| {
        dots = match token.kind() {
            TokenKind::Dot => dots + 1,
            TokenKind::Equals
            | TokenKind::Comma
            | TokenKind::LeftSquareBracket
            | TokenKind::RightSquareBracket
            | TokenKind::LeftCurlyBracket
            | TokenKind::RightCurlyBracket
            | TokenKind::Comment
            | TokenKind::Newline
            | TokenKind::Eof => 0,
            TokenKind::Whitespace
            | TokenKind::LiteralString
            | TokenKind::BasicString
            | TokenKind::MlLiteralString
            | TokenKind::MlBasicString
            | TokenKind::Atom => dots,
        };
        dots >= KEY_PARTS_MAX
    };
    tokens.into_iter().find(too_many).map(|token| token.span().start())
}

fn toml_table(table: &DeTable<'_>, lines: &Lines<'_>) -> Vec<(Key, Entry)> {
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        let key = Key { at: lines.spot(key.span().start), name: name.to_string() };
        (key, toml_value(value, lines))
    };
    table.iter().map(entry).collect()
}

fn toml_value(value: &Spanned<DeValue<'_>>, lines: &Lines<'_>) -> Entry {
    let at = lines.spot(value.span().start);
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Float(float) => Value::Number(plain_float(float.as_str())),
        DeValue::Integer(integer) => {
            let read = i128::from_str_radix(integer.as_str(), integer.radix());
            Value::Number(read.map_or_else(|_| integer.to_string(), |number| number.to_string()))
        }
        // A bare 01:30:00 is a TOML time; the readers take its text.
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| toml_value(item, lines)).collect())
        }
        DeValue::Table(table) => Value::Table(toml_table(table, lines)),
    };
    Entry { at, value }
}

/// A float's text without exponent where that changes nothing.
fn plain_float(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(number) if text.contains(['e', 'E']) => number.to_string(),
        _ => text.to_string(),
    }
}

/// Where the lines of a text begin, to turn byte offsets into lines and columns.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(ends).collect() }
    }

    fn spot(&self, offset: usize) -> Spot {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or("");
        Spot { line, column: before.chars().count() + 1 }
    }
}
