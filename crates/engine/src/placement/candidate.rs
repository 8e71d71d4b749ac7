//! What a score is given: the kind of workload, and the seat under consideration.

use alloc::string::String;

use model::{Class, Demand, Node, Owner, Workload, WorkloadId};

use crate::fit::Pick;

/// All of a workload that a score may depend on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The demand, with at most one alternative of GPU models.
    pub(crate) demand: Demand,
    /// The class where the policy minds it; [`Class::Batch`] otherwise.
    pub(crate) class: Class,
}

impl Key {
    /// A workload with this demand, to be seated where nobody looks at who it is.
    pub(crate) fn stand_in(&self) -> Workload {
        let nobody = Owner::new("");
        let demand = self.demand.clone();
        let workload = Workload::new(WorkloadId(u64::MAX), String::new(), nobody, demand);
        Workload { class: self.class, ..workload }
    }
}

/// A seat under consideration: the node as it is, and the shares that it would give.
pub(crate) struct Candidate<'a> {
    pub(crate) node: &'a Node,
    pub(crate) demand: &'a Demand,
    /// See [`Key::class`].
    pub(crate) class: Class,
    pub(crate) picks: &'a [Pick],
}

impl Candidate<'_> {
    /// vCPUs left after placement, in thousandths.
    pub(crate) fn cpu_after_milli(&self) -> u64 {
        self.node.cpu_free_milli().saturating_sub(self.demand.cpu_milli)
    }

    /// Thousandths of GPU that the picks take.
    pub(crate) fn taken_milli(&self) -> u64 {
        self.picks.iter().map(|pick| u64::from(pick.left_milli - pick.left_after_milli)).sum()
    }
}
