//! Findings for people, as a compiler shows them: the place, the line, what is wrong under it.

use std::fmt::Write;
use std::ops::Range;

use crate::finding::Finding;
use crate::lines::Lines;

/// Most characters of a line that are shown, and of these before the place.
const WIDTH: usize = 110;
const BEFORE: usize = 70;

/// Where something is in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// One-based line.
    pub line: usize,
    /// One-based column in characters.
    pub column: usize,
    /// Characters of it on that line, at least 1.
    pub width: usize,
}

/// The place of a span of a text.
pub fn place(text: &str, span: &Range<usize>) -> Place {
    of_lines(&Lines::of(text), span)
}

/// As [`place`], for many spans of one text.
pub(crate) fn of_lines(lines: &Lines<'_>, span: &Range<usize>) -> Place {
    let (line, column) = lines.place(span.start);
    let end = lines.start(line) + lines.line(line).len();
    let (last, end) = lines.place(span.end.min(end));
    let width = if last == line { end.saturating_sub(column) } else { 1 };
    Place { line, column, width: width.max(1) }
}

/// Findings of one file as text, each with its line.
///
/// * `name` — how the file is called.
pub fn shown(name: &str, text: &str, findings: &[Finding]) -> String {
    let lines = Lines::of(text);
    let mut out = String::new();
    for finding in findings {
        let place = of_lines(&lines, &finding.span);
        let (severity, kind) = (finding.severity.words(), finding.name);
        let _ =
            writeln!(out, "{}:{}:{}: {severity}: {kind}", plain(name), place.line, place.column);
        excerpt(&mut out, lines.line(place.line), place);
        let _ = writeln!(out, "  {}", plain(&finding.happens));
        let mends = if finding.edits.is_empty() { "" } else { " (--fix does it)" };
        let _ = writeln!(out, "  instead: {}{mends}", plain(&finding.instead));
    }
    out
}

/// The line, and a mark under what is meant.
fn excerpt(out: &mut String, line: &str, place: Place) {
    let column = place.column.saturating_sub(1);
    let from = column.saturating_sub(BEFORE);
    let text: String = line.chars().skip(from).take(WIDTH).collect();
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    let width = place.width.min(WIDTH - (column - from));
    let _ = writeln!(out, " {number} | {}", plain(text.trim_end()));
    let _ = writeln!(out, " {margin} | {}{}", " ".repeat(column - from), "^".repeat(width));
}

/// Text of a file without anything that steers a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
