//! Why there is no lab, or why it did not do what was asked.

use std::fmt;
use std::path::{Path, PathBuf};

/// What went wrong, with the way out where there is one.
#[derive(thiserror::Error)]
pub enum LabError {
    /// The options contradict each other, or this machine cannot carry them out.
    #[error("a lab like this cannot be had: {0}")]
    Options(String),
    /// What it needs is not here and cannot be installed.
    #[error("what a lab needs cannot be installed ({missing}): {why}")]
    Packages {
        /// What is missing.
        missing: String,
        /// Why it cannot be installed.
        why: String,
    },
    /// The folder is not ours to use.
    #[error("{}: {why}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
    /// A file cannot be made, read or removed.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A program failed or could not be started.
    #[error("`{line}`: {why}")]
    Failed {
        /// The program and its arguments.
        line: String,
        /// How it ended and what it said.
        why: String,
    },
    /// What was waited for has not come.
    #[error("waited {seconds} s in vain for {what}\n{shown}")]
    Timeout {
        /// What should have come.
        what: String,
        /// How long it was waited for, in seconds.
        seconds: u64,
        /// What the cluster and its logs say.
        shown: String,
    },
}

/// As it is displayed: tests unwrap, and logs are to be read line by line.
impl fmt::Debug for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names the file that an operation was about.
pub fn at(path: &Path) -> impl FnOnce(std::io::Error) -> LabError {
    move |source| LabError::File { path: path.to_owned(), source }
}
