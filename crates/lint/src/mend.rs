//! Carrying out edits until nothing is left that can be mended without asking.

use std::collections::BTreeMap;

use formats::ReadError;

use crate::card::Card;
use crate::finding::{Edit, Finding};
use crate::input::Input;
use crate::lines::Lines;
use crate::show::{Place, of_lines};

/// Rounds until nothing more is mended: one finding may hide another one behind it.
const ROUNDS_MAX: usize = 16;

/// A mended file.
#[derive(Clone, Debug)]
pub struct Mended {
    /// The file with its new text; all else is as it was, byte for byte.
    pub input: Input,
    /// What was mended, with the place that it had then.
    pub done: Vec<(Place, Finding)>,
    /// What a person has to decide, in the new text.
    pub left: Vec<Finding>,
}

/// Mends one of the files of a call.
///
/// * `at` — which of `inputs`; the others are read for what they say of the cluster.
///
/// # Errors
/// As [`crate::check`].
pub fn mend(inputs: &[Input], at: usize, card: Option<&Card>) -> Result<Mended, ReadError> {
    let mut inputs = inputs.to_vec();
    let mut done = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let found = crate::check(&inputs, card)?.swap_remove(at);
        let (edits, mended) = chosen(&found);
        if edits.is_empty() {
            return Ok(Mended { input: inputs.swap_remove(at), done, left: found });
        }
        let text = inputs[at].text();
        let lines = Lines::of(text);
        let mended = mended.into_iter().map(|one| (of_lines(&lines, &one.span), one.clone()));
        done.extend(mended);
        let text = applied(text, &edits);
        inputs[at] = inputs[at].with(text)?;
    }
    let left = crate::check(&inputs, card)?.swap_remove(at);
    Ok(Mended { input: inputs.swap_remove(at), done, left })
}

/// Edits that do not meet, in the order of the text, and the findings that they are of.
fn chosen(found: &[Finding]) -> (Vec<&Edit>, Vec<&Finding>) {
    let (mut edits, mut mended): (Vec<&Edit>, Vec<&Finding>) = (Vec::new(), Vec::new());
    let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
    for finding in found.iter().filter(|finding| !finding.edits.is_empty()) {
        let is_free = |edit: &Edit| {
            let before = taken.range(..=edit.span.end).next_back();
            before.is_none_or(|(_, end)| *end < edit.span.start)
        };
        if finding.edits.iter().all(is_free) {
            edits.extend(&finding.edits);
            taken.extend(finding.edits.iter().map(|edit| (edit.span.start, edit.span.end)));
            mended.push(finding);
        }
    }
    edits.sort_by_key(|edit| edit.span.start);
    (edits, mended)
}

/// * `edits` — in the order of the text.
fn applied(text: &str, edits: &[&Edit]) -> String {
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    // New lines end as the others do.
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    for edit in edits {
        out.push_str(text.get(from..edit.span.start).unwrap_or(""));
        out.push_str(&edit.text.replace('\n', end));
        from = edit.span.end;
    }
    out.push_str(text.get(from..).unwrap_or(""));
    out
}
