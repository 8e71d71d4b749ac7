//! What is tried on a GPU, part by part.

pub(super) mod cap;
pub(super) mod graph;
pub(super) mod memory_limit;
pub(super) mod mig;
pub(super) mod mps;
pub(super) mod neighbour;
pub(super) mod overhead;
mod run;
pub(super) mod shares;
pub(super) mod slices;

use super::bench::Bench;
use super::table::Table;

/// What a part has found.
pub(super) enum Found {
    /// Tables, and what was not as it must be.
    Done(Vec<Table>, Vec<String>),
    /// It cannot be tried here: what is missing.
    Skipped(String),
}

/// A part: its name, its bound in seconds, and how it is tried.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) bound_s: u64,
    pub(super) run: fn(&Bench) -> Result<Found, String>,
}

/// All parts, in order. The bounds are for a GPU that hangs; together the parts take under ten minutes.
pub(super) const ALL: [Part; 10] = [
    Part { name: "cap", bound_s: 90, run: cap::run },
    Part { name: "overhead", bound_s: 60, run: overhead::run },
    Part { name: "shares", bound_s: 240, run: shares::run },
    Part { name: "neighbour", bound_s: 60, run: neighbour::idle },
    Part { name: "priority", bound_s: 60, run: neighbour::priority },
    Part { name: "graph", bound_s: 60, run: graph::run },
    Part { name: "slices", bound_s: 60, run: slices::run },
    Part { name: "mps", bound_s: 60, run: mps::run },
    Part { name: "mig", bound_s: 90, run: mig::run },
    Part { name: "memory-limit", bound_s: 60, run: memory_limit::run },
];

/// Their names, for whoever has to choose.
pub(super) fn names() -> String {
    ALL.map(|part| part.name).join(", ")
}
