//! The policy `random`: every node that can hold a member is as likely as any other, and so is every
//! GPU of it that can grant a share.
//!
//! The draw is a hash of seed, workload and member, so that a replay draws the same.

use alloc::vec::Vec;

use model::{GpuAsk, GpuDemand, NodeId, SplitMix, WorkloadId};

use crate::fit::Pick;

/// One member's tickets.
pub(crate) struct Lottery(SplitMix);

impl Lottery {
    pub(crate) fn new(seed: u64, workload: WorkloadId, member: usize) -> Self {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(workload.0);
        Self(SplitMix::new(mixed.rotate_left(32).wrapping_add(member as u64)))
    }

    /// One of the nodes.
    pub(crate) fn node(&mut self, able: &[NodeId]) -> Option<NodeId> {
        able.get(self.0.position(able.len())).copied()
    }

    /// As many of the GPUs as asked for, by index; whole GPUs are all alike, so the first are taken.
    pub(crate) fn picks(&mut self, mut options: Vec<Pick>, demand: &GpuDemand) -> Vec<Pick> {
        let count = demand.count as usize;
        if demand.each != GpuAsk::Whole {
            for at in 0..count.min(options.len()) {
                let other = at + self.0.position(options.len() - at);
                options.swap(at, other);
            }
        }
        options.truncate(count);
        options.sort_by_key(|pick| pick.gpu);
        options
    }
}
