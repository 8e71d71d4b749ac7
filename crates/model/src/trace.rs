//! A trace: what arrives when, and how long it runs.

use alloc::vec::Vec;

use crate::workload::Workload;

/// One workload of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it is submitted.
    pub at_ms: u64,
    /// How long it runs once started, its time limit aside; `None` means that it never leaves by
    /// itself.
    pub runs_ms: Option<u64>,
    /// What it is. Its `id` is set to its position when a trace is replayed.
    pub workload: Workload,
}

/// Arrivals in order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The arrivals, ascending by `at_ms`.
    pub arrivals: Vec<Arrival>,
}
