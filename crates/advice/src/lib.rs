//! How should these workloads share, what does it take, and what do they lose?
//!
//! [`scheme::scheme`] says for each workload which way of sharing suits it and why. [`advise`] has the whole list share in each way in
//! turn, and in the mixed way that was advised, has the engine pack it and the simulator replay it, and puts the figures side by side.
//! [`report`] makes a page of that.
#![forbid(unsafe_code)]

pub mod groups;
pub mod need;
mod packed;
pub mod report;
pub mod scheme;
mod table;
mod timed;

pub use packed::fleet;
pub use table::{Card, Held, Row, Way};
pub use timed::{Course, course};

use std::sync::Arc;

use model::{GpuModel, SharingKind, Trace, WorkloadId};
use scheme::{Around, Scheme};
use simulator::{IllegalPlan, Speeds};

/// What is asked.
pub struct Question<'a> {
    /// The list; ids are positions in it. With running times its course is simulated too.
    pub trace: &'a Trace,
    /// The card.
    pub model: &'a Arc<GpuModel>,
    /// Cards that there are.
    pub cards: u32,
    /// How fast those get on who share a card.
    pub speeds: &'a dyn Speeds,
}

/// What is advised.
#[derive(Debug)]
pub struct Advice {
    /// For each workload of the list, in its order.
    pub each: Vec<Scheme>,
    /// The list under each way of sharing, and last as advised.
    pub rows: Vec<Row>,
    /// The cards of the list as advised.
    pub cards: Vec<Card>,
}

/// Advises.
///
/// # Errors
/// [`IllegalPlan`] if the planner breaks an invariant.
pub fn advise(question: &Question<'_>) -> Result<Advice, IllegalPlan> {
    let each = schemes(question);
    let mut rows = Vec::new();
    for kind in SharingKind::ALL {
        rows.push(table::row(question, Way::All(kind), &each)?.0);
    }
    let (row, cards) = table::row(question, Way::AsAdvised, &each)?;
    rows.push(row);
    Ok(Advice { each, rows, cards })
}

fn schemes(question: &Question<'_>) -> Vec<Scheme> {
    let workloads = || question.trace.arrivals.iter().map(|arrival| &arrival.workload);
    let first = workloads().next().map(|workload| &workload.owner);
    let several_owners = workloads().any(|workload| Some(&workload.owner) != first);
    let sizes = workloads().filter_map(|workload| need::Need::of(workload, question.model));
    let sizes = sizes.filter(|need| !need.is_whole).map(|need| need.size_milli(question.model));
    let around = Around {
        model: question.model,
        several_owners,
        smallest_milli: sizes.min().unwrap_or(1000),
    };
    workloads().map(|workload| scheme::scheme(workload, &around)).collect()
}

/// The workload at a position.
fn id(at: usize) -> WorkloadId {
    WorkloadId(at as u64)
}
