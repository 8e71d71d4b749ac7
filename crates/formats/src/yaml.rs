//! YAML to the tree of `tree.rs`.
//!
//! `serde-saphyr` bounds aliases, depth and size; what it finds wrong is reported with its own words
//! and our line.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use crate::error::{Complaint, ReadError};
use crate::text::Source;
use crate::tree::{Entry, Key, Spot, Value};

/// Lists and tables within one another; the files described here need four.
const DEPTH_MAX: usize = 16;

/// As [`DEPTH_MAX`], for manifests of all kinds.
const MANIFEST_DEPTH_MAX: usize = 48;

/// The file as a tree.
pub(crate) fn parse(source: &Source) -> Result<Entry, ReadError> {
    within(source, DEPTH_MAX)
}

/// One document of a manifest, whatever its kind, as a tree.
///
/// # Errors
/// What is no YAML, with its line.
pub fn manifest(source: &Source) -> Result<Entry, ReadError> {
    within(source, MANIFEST_DEPTH_MAX)
}

fn within(source: &Source, max_depth: usize) -> Result<Entry, ReadError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: max_depth },
    };
    match serde_saphyr::from_str_with_options::<Spanned<Value>>(source.text(), options) {
        Ok(value) => Ok(entry(value)),
        Err(error) => {
            let at = spot(error.location().unwrap_or(Location::UNKNOWN));
            let message = error.without_snippet().to_string();
            // The message ends with the place, which is said in front already.
            let end = message.rfind(" at line ").unwrap_or(message.len());
            // Of a key that stands twice the message tells its caller, not our user, what to set.
            let (message, way_out) = match message[..end].split_once(", set DuplicateKeyPolicy") {
                Some((message, _)) => (message, "remove one of the two, or begin a new `- ` entry"),
                None => (&message[..end], "check indentation, quotes and colons"),
            };
            let what = format!("is not YAML here ({})", message.replace('\n', ", "));
            Err(source.error_at(at, Complaint::new(what, way_out)))
        }
    }
}

fn entry(spanned: Spanned<Value>) -> Entry {
    Entry { at: spot(spanned.referenced), value: spanned.value }
}

fn spot(location: Location) -> Spot {
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX).max(1);
    Spot { line: number(location.line()), column: number(location.column()) }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Number(number.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Value>>()? {
            list.push(entry(item));
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut table: Vec<(Key, Entry)> = Vec::new();
        while let Some(key) = items.next_key::<Spanned<String>>()? {
            if table.iter().any(|(known, _)| known.name == key.value) {
                return Err(A::Error::custom(format!("key {:?} stands twice", key.value)));
            }
            let value = items.next_value::<Spanned<Value>>()?;
            table.push((Key { at: spot(key.referenced), name: key.value }, entry(value)));
        }
        Ok(Value::Table(table))
    }
}
