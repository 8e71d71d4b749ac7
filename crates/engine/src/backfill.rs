//! Starting workloads ahead of a blocked head of the queue without delaying it.
//!
//! EASY backfill (Lifka, JSSPP'95), per node: the head is promised the node, or for a gang the
//! nodes, that will be able to hold it soonest if everybody leaves at the end of their time limit.
//! Whoever comes after the head may use other nodes freely, and the promised ones only if gone again
//! by the promised time.

use alloc::vec::Vec;

use model::{Node, NodeId, WorkloadId};

/// What has been promised to the head of the queue.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) head: WorkloadId,
    pub(crate) starts_ms: u64,
    /// Ascending.
    pub(crate) nodes: Vec<NodeId>,
}

impl Promise {
    /// Nodes that a workload with the given expected end must leave alone.
    pub(crate) fn kept_from(&self, ends_ms: u64) -> &[NodeId] {
        if ends_ms <= self.starts_ms { &[] } else { &self.nodes }
    }
}

/// When a node can hold something if its residents leave at the expected times: 0 if it can now,
/// `None` if not even when idle.
pub(crate) fn earliest_ms(node: &Node, mut fits: impl FnMut(&Node) -> bool) -> Option<u64> {
    if fits(node) {
        return Some(0);
    }
    let residents = node.residents().iter();
    let mut departures: Vec<_> = residents.map(|resident| (resident.until_ms, resident.workload)).collect();
    departures.sort_unstable();
    let mut later = node.clone();
    for (until_ms, workload) in departures {
        later.release(workload);
        if fits(&later) {
            return Some(until_ms);
        }
    }
    None
}
