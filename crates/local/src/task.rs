//! One task: where it stands, and how it ended.

use std::fmt;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

/// A task of a job of this run. Its position in [`crate::Work::tasks`] is its id to the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its job, as a position in [`crate::Work::jobs`].
    pub job: usize,
    /// Index in the job's array.
    pub index: Option<u32>,
    /// How often it has been started.
    pub attempts: u32,
    /// Where it stands.
    pub state: State,
}

/// Where a task stands. Times are ms of the run's clock.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Waits for other jobs.
    Held,
    /// Waits for a seat.
    Waiting {
        /// Since when.
        since_ms: u64,
    },
    /// Has a process, or leftovers of one.
    Running {
        /// Since when.
        since_ms: u64,
    },
    /// Is over.
    Ended(Ending),
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal, which hotpot did not send.
    Signalled(i32),
    /// Its time limit was reached.
    TimedOut,
    /// The run was interrupted while it ran.
    Cancelled,
    /// It could not be started, and why.
    NotStarted(String),
    /// What it waited for cannot happen any more.
    DependencyNever,
    /// This machine can never hold it, and why.
    NeverFits(String),
    /// The GPU under it failed, as often as it was tried.
    GpuFailed(String),
}

impl Ending {
    /// Whether it did what it was meant to.
    pub fn is_ok(&self) -> bool {
        *self == Self::Exited(0)
    }

    /// Whether it came to an end, so that a continued run does not start it again.
    pub fn is_final(&self) -> bool {
        *self != Self::Cancelled
    }

    /// Whether it may be the fault of a GPU that failed under it.
    pub(crate) fn may_be_the_gpus(&self) -> bool {
        match self {
            Self::Exited(status) => *status != 0,
            Self::Signalled(_) | Self::GpuFailed(_) => true,
            Self::TimedOut
            | Self::Cancelled
            | Self::NotStarted(_)
            | Self::DependencyNever
            | Self::NeverFits(_) => false,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(0) => f.write_str("done"),
            Self::Exited(status) => write!(f, "exit status {status}"),
            Self::Signalled(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "killed by {signal}"),
                Err(_) => write!(f, "killed by signal {number}"),
            },
            Self::TimedOut => f.write_str("time limit reached"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::NotStarted(why) => write!(f, "not started: {why}"),
            Self::DependencyNever => f.write_str("what it waits for cannot happen any more"),
            Self::NeverFits(why) => write!(f, "can never run here: {why}"),
            Self::GpuFailed(why) => write!(f, "its GPU failed: {why}"),
        }
    }
}
