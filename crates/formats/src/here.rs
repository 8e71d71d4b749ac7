//! Here-documents of a shell script: text between `<<WORD` and a line `WORD`, which is no part of the script itself.

use std::collections::{BTreeSet, VecDeque};

/// The here-documents that the lines of a script have begun and not ended.
pub(crate) struct HereDocuments<'a> {
    /// All lines of the script, without tabs in front: a word that none of them is begins nothing.
    lines: BTreeSet<&'a str>,
    /// The words that end them, and whether tabs may stand before.
    open: VecDeque<(&'a str, bool)>,
}

impl<'a> HereDocuments<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let lines = text.lines().map(|line| line.trim_start_matches('\t')).collect();
        Self { lines, open: VecDeque::new() }
    }

    /// Whether a line is of the here-document that is open, its last line too.
    pub(crate) fn takes(&mut self, line: &str) -> bool {
        let Some((word, with_tabs)) = self.open.front() else { return false };
        let shown = if *with_tabs { line.trim_start_matches('\t') } else { line };
        if shown == *word {
            self.open.pop_front();
        }
        true
    }

    /// Takes note of what a line of commands begins.
    pub(crate) fn begin(&mut self, line: &'a str) {
        for (at, mark) in line.match_indices("<<") {
            let rest = &line[at + mark.len()..];
            let (rest, with_tabs) = rest.strip_prefix('-').map_or((rest, false), |it| (it, true));
            let word = end_word(rest.trim_start_matches([' ', '\t']));
            let word = word.filter(|word| self.lines.contains(word));
            self.open.extend(word.map(|word| (word, with_tabs)));
        }
    }
}

/// The word behind `<<`; `None` of what is a here-string or a shift of numbers.
fn end_word(rest: &str) -> Option<&str> {
    let bare = rest.strip_prefix(['"', '\'', '\\']).unwrap_or(rest);
    let end = bare.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(bare.len());
    let word = &bare[..end];
    word.starts_with(|c: char| c.is_alphabetic() || c == '_').then_some(word)
}
