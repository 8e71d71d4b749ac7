//! Bytes of a text as lines and columns, and back.

/// Where the lines of a text begin.
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(ends).collect() }
    }

    /// The one-based line of a byte, and the one-based column in characters.
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let before = self.text.get(self.start(line)..offset).unwrap_or("");
        (line, before.chars().count() + 1)
    }

    /// A line by its one-based number, without its end; empty past the end.
    pub(crate) fn line(&self, line: usize) -> &'a str {
        let end = self.starts.get(line).copied().unwrap_or(self.text.len());
        let text = self.text.get(self.start(line)..end).unwrap_or("");
        text.trim_end_matches(['\n', '\r'])
    }

    /// The byte at which a one-based line begins; the text's end past the last one.
    pub(crate) fn start(&self, line: usize) -> usize {
        self.starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len())
    }

    /// The byte of a one-based column in characters, held within the line.
    pub(crate) fn offset(&self, line: usize, column: usize) -> usize {
        let text = self.line(line);
        let within = text.char_indices().nth(column.saturating_sub(1)).map(|(at, _)| at);
        self.start(line) + within.unwrap_or(text.len())
    }

    /// How many lines there are.
    pub(crate) fn count(&self) -> usize {
        self.starts.len()
    }
}
