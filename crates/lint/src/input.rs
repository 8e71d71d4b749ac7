//! A file to be checked, and what kind of file it is.

use formats::{Complaint, ReadError, Source};

use crate::conf;

/// Most bytes of a file: 1 MiB. What people write by hand has a hundredth of that.
pub const SIZE_MAX_BYTES: u64 = 1 << 20;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A script for sbatch.
    Sbatch,
    /// Slurm's gres.conf.
    GresConf,
    /// Slurm's slurm.conf, or a part of it.
    SlurmConf,
    /// Kubernetes objects in YAML or JSON.
    Manifest,
}

/// A file to be checked.
#[derive(Clone, Debug)]
pub struct Input {
    source: Source,
    kind: Kind,
    is_marked: bool,
}

impl Input {
    /// A file of bytes.
    ///
    /// * `name` — how findings call it; `kind` — what it is, if it shall not be told from its text.
    ///
    /// # Errors
    /// A file that is empty, longer than [`SIZE_MAX_BYTES`], not UTF-8, packed, or of no known kind.
    pub fn new(name: &str, bytes: Vec<u8>, kind: Option<Kind>) -> Result<Self, ReadError> {
        if bytes.starts_with(&[0x1f, 0x8b]) {
            return Err(wrong(name, "is packed (gzip)", "unpack it, for example with `gzip -d`"));
        }
        if bytes.len() as u64 > SIZE_MAX_BYTES {
            let what = format!("is longer than {SIZE_MAX_BYTES} bytes");
            return Err(wrong(name, &what, "check the path, or split it"));
        }
        let is_marked = bytes.starts_with(b"\xef\xbb\xbf");
        let source = Source::within(name, bytes, SIZE_MAX_BYTES)?;
        let kind = kind.or_else(|| Kind::of(source.text())).ok_or_else(|| unknown(name))?;
        Ok(Self { source, kind, is_marked })
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// By what name findings call it.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// Its text, without byte order mark.
    pub fn text(&self) -> &str {
        self.source.text()
    }

    /// Whether a byte order mark stands before the text.
    pub(crate) fn is_marked(&self) -> bool {
        self.is_marked
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The same file with another text.
    pub(crate) fn with(&self, text: String) -> Result<Self, ReadError> {
        let source = Source::within(self.name(), text.into_bytes(), SIZE_MAX_BYTES * 2)?;
        Ok(Self { source, ..self.clone() })
    }
}

impl Kind {
    /// What a text is: a script begins with `#!` and has `SBATCH` in it, a manifest has `apiVersion`, a script without its first
    /// line has `#SBATCH` lines, gres.conf lines `Name=…` or `AutoDetect=…`, slurm.conf its own keys.
    pub fn of(text: &str) -> Option<Self> {
        if text.trim_start().starts_with("#!") {
            return text.contains("SBATCH").then_some(Self::Sbatch);
        }
        let is_json = text.trim_start().starts_with('{') && text.contains("\"apiVersion\"");
        let begins = |line: &str| line.starts_with("apiVersion:");
        // Before `#SBATCH`: a ConfigMap may carry a script.
        if is_json || text.lines().any(begins) {
            return Some(Self::Manifest);
        }
        if text.lines().any(|line| line.trim_start().starts_with("#SBATCH")) {
            return Some(Self::Sbatch);
        }
        conf::records(text).into_iter().find_map(|record| record.kind())
    }
}

fn unknown(name: &str) -> ReadError {
    let what = "is of no kind that is checked: it has neither #SBATCH lines nor an apiVersion nor lines of gres.conf or slurm.conf";
    wrong(name, what, "say what it is with --as sbatch, gres.conf, slurm.conf or manifest")
}

fn wrong(name: &str, what: &str, way_out: &str) -> ReadError {
    ReadError::about(name, Complaint::new(what, way_out))
}
