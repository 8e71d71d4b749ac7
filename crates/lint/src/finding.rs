//! What was found, and the edits that mend it.

use std::ops::Range;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It is not accepted, or the daemon that reads it does not start.
    Refused,
    /// It is accepted and never starts.
    WaitsForEver,
    /// It runs, and does something else than its author thinks.
    NotWhatYouThink,
    /// It runs, and there is a better way.
    Better,
}

impl Severity {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::WaitsForEver => "waits for ever",
            Self::NotWhatYouThink => "not what you think",
            Self::Better => "better",
        }
    }
}

/// Something wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is called, for scripts; stable.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The bytes of the text that are wrong.
    pub span: Range<usize>,
    /// What happens if the file is used as it is.
    pub happens: String,
    /// What to write instead.
    pub instead: String,
    /// What makes that of the text; none where a person has to choose.
    pub edits: Vec<Edit>,
}

/// A piece of text in the place of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The bytes that go.
    pub span: Range<usize>,
    /// What comes.
    pub text: String,
}

impl Edit {
    /// An edit of its parts.
    pub(crate) fn new(span: Range<usize>, text: impl Into<String>) -> Self {
        Self { span, text: text.into() }
    }
}

impl Finding {
    /// A finding that is not mended by itself.
    pub(crate) fn new(
        (name, severity): (&'static str, Severity),
        span: Range<usize>,
        happens: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        let (happens, instead) = (happens.into(), instead.into());
        Self { name, severity, span, happens, instead, edits: Vec::new() }
    }

    /// The same with an edit that mends it, or a part of it.
    pub(crate) fn with(mut self, edit: Option<Edit>) -> Self {
        self.edits.extend(edit);
        self
    }
}
