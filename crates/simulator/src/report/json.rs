//! The comparison as JSON, for other programs and inside the page.

use std::fmt::Write as _;

use serde::Serialize;

use crate::outcome::{Comparison, Size};

use super::names::steers;

/// The format's name and version, the value of `format` at the top of the document.
pub const FORMAT: &str = "hotpot-simulation/1";

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    /// The order of every `by_size`.
    sizes: [Size; Size::ALL.len()],
    #[serde(flatten)]
    comparison: &'a Comparison,
}

impl<'a> Document<'a> {
    fn of(comparison: &'a Comparison) -> Self {
        Self { format: FORMAT, sizes: Size::ALL, comparison }
    }
}

/// Returns the whole comparison as indented JSON with a newline at its end.
///
/// Fields are those of [`Comparison`], with `format` and `sizes` before them; a figure that is not a number is `null`.
///
/// # Panics
/// Never: numbers, strings and lists encode.
pub fn json(comparison: &Comparison) -> String {
    let mut text = serde_json::to_string_pretty(&Document::of(comparison)).expect(ENCODES);
    text.push('\n');
    text
}

/// Returns the same document on one line, safe inside an HTML `script` element.
pub(super) fn embedded(comparison: &Comparison) -> String {
    let text = serde_json::to_string(&Document::of(comparison)).expect(ENCODES);
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        // Outside strings JSON has none of these, and inside strings the escape reads the same.
        if matches!(c, '<' | '>' | '&') || steers(c) {
            let _infallible = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

const ENCODES: &str = "numbers, strings and lists under string keys encode";
