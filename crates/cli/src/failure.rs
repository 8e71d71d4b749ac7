//! How a verb ends: with an answer, or with a failure that knows its exit code.

use std::fmt;

use formats::ReadError;
use simulator::IllegalPlan;
use simulator::report::WriteError;

/// What a verb found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done, or yes.
    Yes,
    /// The question was answered with no: something is refused.
    No,
}

/// Why a verb could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Options that do not go together or name nothing.
    Usage(String),
    /// A file that cannot be read.
    Input(ReadError),
    /// A file that cannot be written.
    Output(WriteError),
    /// Standard output cannot be written.
    Screen(std::io::Error),
    /// The machine's driver or system refuses.
    Machine(String),
    /// The planner broke an invariant.
    Defect(IllegalPlan),
}

impl Failure {
    /// 2 for what the caller has to mend, 1 for what went wrong here.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Input(_) => 2,
            Self::Output(_) | Self::Screen(_) | Self::Machine(_) | Self::Defect(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Machine(text) => f.write_str(text),
            Self::Input(error) => error.fmt(f),
            Self::Output(error) => error.fmt(f),
            Self::Screen(error) => write!(f, "standard output: {error}"),
            Self::Defect(error) => error.fmt(f),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Input(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Output(error)
    }
}

impl From<IllegalPlan> for Failure {
    fn from(error: IllegalPlan) -> Self {
        Self::Defect(error)
    }
}
