//! Words of the scenario format: amounts, lists and key–value pairs.

use std::iter::Peekable;
use std::str::SplitWhitespace;

use model::{SharingKind, SharingMode};

/// The words of one line, read from the left.
pub(crate) struct Words<'a> {
    line: &'a str,
    rest: Peekable<SplitWhitespace<'a>>,
}

impl<'a> Words<'a> {
    pub(crate) fn of(line: &'a str) -> Self {
        Self { line, rest: line.split_whitespace().peekable() }
    }

    /// The next word, if there is one.
    pub(crate) fn try_next(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    /// The next word, which the line must have.
    pub(crate) fn next(&mut self) -> &'a str {
        let line = self.line;
        self.rest.next().unwrap_or_else(|| panic!("`{line}` ends too early"))
    }

    /// Takes the next word if it is `word`.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        self.rest.next_if(|next| *next == word).is_some()
    }

    /// The next word as a number.
    pub(crate) fn number<T: std::str::FromStr>(&mut self) -> T {
        let word = self.next();
        word.parse().unwrap_or_else(|_| panic!("`{word}` is no number in `{}`", self.line))
    }

    /// The next word as memory in MiB.
    pub(crate) fn mib(&mut self) -> u64 {
        mib(self.next())
    }

    /// The next word as a number of CPUs or GPUs, in thousandths.
    pub(crate) fn milli(&mut self) -> u64 {
        let word = self.next();
        let number: f64 = word.parse().unwrap_or_else(|_| panic!("`{word}` is no amount"));
        (number * 1000.0).round() as u64
    }

    pub(crate) fn fail(&self, word: &str) -> ! {
        panic!("`{word}` is not understood in `{}`", self.line)
    }
}

/// `16GiB` or `512MiB`.
pub(crate) fn mib(word: &str) -> u64 {
    let (number, factor) = match word.strip_suffix("GiB") {
        Some(number) => (number, 1024),
        None => (word.strip_suffix("MiB").unwrap_or(word), 1),
    };
    let number: u64 = number.parse().unwrap_or_else(|_| panic!("`{word}` is no memory"));
    number * factor
}

/// `300/18GiB`, `300` or `18GiB`: thousandths of compute and MiB, 0 for what is not said.
pub(crate) fn amounts(word: &str) -> (u32, u64) {
    match word.split_once('/') {
        Some((compute, memory)) => (compute.parse().expect("thousandths"), mib(memory)),
        None if word.ends_with('B') => (0, mib(word)),
        None => (word.parse().expect("thousandths"), 0),
    }
}

/// `mig,mps`; `all` is every mode.
pub(crate) fn kinds(word: &str) -> Vec<SharingKind> {
    if word == "all" {
        return SharingKind::ALL.to_vec();
    }
    word.split(',').map(kind).collect()
}

pub(crate) fn kind(word: &str) -> SharingKind {
    SharingKind::parse(word).unwrap_or_else(|| panic!("`{word}` is no sharing mode"))
}

/// `mps:4`, the limit of tenants after the colon.
pub(crate) fn mode(word: &str) -> SharingMode {
    let (name, limit) = word.split_once(':').unwrap_or((word, "8"));
    let tenants_max = limit.parse().expect("a limit of tenants");
    match kind(name) {
        SharingKind::Exclusive => SharingMode::Exclusive,
        SharingKind::Mig => SharingMode::Mig,
        SharingKind::Mps => SharingMode::Mps { tenants_max },
        SharingKind::TimeSlice => SharingMode::TimeSlice { tenants_max },
        SharingKind::MemoryCapped => SharingMode::MemoryCapped { tenants_max },
    }
}
