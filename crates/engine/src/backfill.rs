//! Starting workloads ahead of a blocked head of the queue without delaying it.
//!
//! EASY backfill (Lifka, JSSPP'95), per node: the head is promised the node, or for a gang the
//! nodes, that will be able to hold it soonest if everybody leaves at the end of their time limit.
//! Whoever comes after the head may use other nodes freely, and the promised ones only if gone again
//! by the promised time. Past the policy's patience every node that could hold the head is promised.

use alloc::collections::BTreeSet;
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

/// When a gang can start that needs several members on one node, and on which of the nodes: the
/// residents of all of them leave at the expected times until the members find room.
///
/// * `room` — members, up to the given number, that a node could hold.
pub(crate) fn gang_start_ms(
    nodes: &[(NodeId, &Node)],
    members: u32,
    mut room: impl FnMut(NodeId, &Node, u32) -> u32,
) -> Option<(u64, Vec<NodeId>)> {
    let mut later: Vec<(NodeId, Node)> =
        nodes.iter().map(|(id, node)| (*id, (*node).clone())).collect();
    let mut rooms: Vec<u32> = later.iter().map(|(id, node)| room(*id, node, members)).collect();
    let departures: BTreeSet<(u64, usize, WorkloadId)> = later
        .iter()
        .enumerate()
        .flat_map(|(at, (_, node))| {
            node.residents().iter().map(move |r| (r.until_ms, at, r.workload))
        })
        .collect();
    let mut now_ms = 0;
    let mut departures = departures.into_iter();
    while rooms.iter().map(|room| u64::from(*room)).sum::<u64>() < u64::from(members) {
        let (until_ms, at, workload) = departures.next()?;
        let (id, node) = &mut later[at];
        node.release(workload);
        rooms[at] = room(*id, node, members);
        now_ms = until_ms;
    }
    let able = later.iter().zip(&rooms).filter(|(_, room)| **room > 0);
    Some((now_ms, able.map(|((id, _), _)| *id).collect()))
}

/// When a node can hold something if its residents leave at the expected times: 0 if it can now,
/// `None` if not even when idle.
pub(crate) fn earliest_ms(node: &Node, mut fits: impl FnMut(&Node) -> bool) -> Option<u64> {
    if fits(node) {
        return Some(0);
    }
    let residents = node.residents().iter();
    let mut departures: Vec<_> = residents.map(|r| (r.until_ms, r.workload)).collect();
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
