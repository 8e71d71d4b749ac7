//! What a score is given: the kind of workload, and the seat under consideration.

use alloc::string::String;

use model::{Class, Demand, Node, Owner, Profile, Workload, WorkloadId};

use crate::fit::Pick;

/// All of a workload that a score may depend on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The demand, with at most one alternative of GPU models.
    pub(crate) demand: Demand,
    /// The class where the policy minds it; [`Class::Batch`] otherwise.
    pub(crate) class: Class,
    /// How it runs beside others, where the policy minds that and something is known; empty otherwise.
    pub(crate) nature: Nature,
}

/// What decides how fast a workload runs beside others, and how fast it has to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nature {
    pub(crate) kind: String,
    pub(crate) profile: Profile,
    pub(crate) latency_target_ms: Option<u32>,
    pub(crate) latency_alone_ms: Option<u32>,
    /// Set only where its owner has a floor of speed.
    pub(crate) owner: Option<Owner>,
}

impl Key {
    /// A workload with this demand, to be seated where nobody looks at who it is.
    pub(crate) fn stand_in(&self) -> Workload {
        let Nature { kind, profile, latency_target_ms, latency_alone_ms, owner } =
            self.nature.clone();
        let owner = owner.unwrap_or_else(|| Owner::new(""));
        let demand = self.demand.clone();
        let workload = Workload::new(WorkloadId(u64::MAX), String::new(), owner, demand);
        Workload {
            class: self.class,
            kind,
            profile,
            latency_target_ms,
            latency_alone_ms,
            ..workload
        }
    }
}

/// A seat under consideration: the node as it is, and the shares that it would give.
pub(crate) struct Candidate<'a> {
    pub(crate) node: &'a Node,
    pub(crate) key: &'a Key,
    pub(crate) picks: &'a [Pick],
}

impl Candidate<'_> {
    /// vCPUs left after placement, in thousandths.
    pub(crate) fn cpu_after_milli(&self) -> u64 {
        self.node.cpu_free_milli().saturating_sub(self.key.demand.cpu_milli)
    }

    /// Thousandths of GPU that the picks take.
    pub(crate) fn taken_milli(&self) -> u64 {
        self.picks.iter().map(|pick| u64::from(pick.left_milli - pick.left_after_milli)).sum()
    }
}
