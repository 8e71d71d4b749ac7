//! Names from outside, made fit to show: no control characters, never empty, cut to a width.

use std::fmt::Write as _;

/// Returns `name` without characters that steer a terminal or turn the reading direction.
pub fn shown(name: &str) -> String {
    let clean: String = name.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect();
    if clean.trim().is_empty() { "(unnamed)".to_owned() } else { clean }
}

/// Returns whether a character acts on a terminal or on the reading direction; all are below U+10000.
pub(super) fn steers(c: char) -> bool {
    let turns_or_hides = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
    );
    let breaks_lines = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || turns_or_hides || breaks_lines
}

/// Returns a text of several lines without characters that steer a terminal; line ends and tabs stay.
pub fn harmless(text: &str) -> String {
    let stays = |c: char| matches!(c, '\n' | '\t') || !steers(c);
    text.chars().map(|c| if stays(c) { c } else { '\u{fffd}' }).collect()
}

/// Returns `name` in at most `width` characters, its middle left out: names often differ at the end.
pub fn shortened(name: &str, width: usize) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(1);
    let tail = kept / 2;
    let mut short: String = chars.iter().take(kept - tail).collect();
    short.push('…');
    short.extend(chars.iter().skip(chars.len() - tail));
    short
}

/// Returns `text` with the five characters that mean something to XML written as references.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '&' | '<' | '>' | '"' | '\'') {
            let _infallible = write!(out, "&#{};", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer_a_terminal() {
        assert_eq!(shown("a\u{1b}[31mb\nc\u{202e}"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}");
        assert_eq!(shown(" \t"), " \u{fffd}");
        assert_eq!(shown(""), "(unnamed)");
    }

    #[test]
    fn a_long_name_keeps_both_ends() {
        assert_eq!(shortened("fragmentation-aware-v2", 10), "fragm…e-v2");
        assert_eq!(shortened("short", 10), "short");
        assert_eq!(shortened("abc", 1), "…");
        assert_eq!(shortened("abc", 0), "…");
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(escaped("<a b='c'>&\""), "&#60;a b=&#39;c&#39;&#62;&#38;&#34;");
    }
}
