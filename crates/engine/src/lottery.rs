//! The policy `random`: every node that can hold a member is as likely as any other, and so is every
//! GPU of it that can grant a share.
//!
//! The draw is a hash of seed, workload and member, so that a replay draws the same.

use alloc::vec::Vec;

use model::{GpuAsk, GpuDemand, NodeId, WorkloadId};

use crate::fit::Pick;

/// One member's tickets.
pub(crate) struct Lottery(u64);

impl Lottery {
    pub(crate) fn new(seed: u64, workload: WorkloadId, member: usize) -> Self {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(workload.0);
        let mut lottery = Self(mixed.rotate_left(32).wrapping_add(member as u64));
        lottery.next();
        lottery
    }

    /// One of the nodes.
    pub(crate) fn node(&mut self, able: &[NodeId]) -> Option<NodeId> {
        let at = self.below(able.len())?;
        able.get(at).copied()
    }

    /// As many of the GPUs as asked for, by index; whole GPUs are all alike, so the first are taken.
    pub(crate) fn picks(&mut self, mut options: Vec<Pick>, demand: &GpuDemand) -> Vec<Pick> {
        let count = demand.count as usize;
        if demand.each != GpuAsk::Whole {
            for at in 0..count.min(options.len()) {
                let other = at + self.below(options.len() - at).unwrap_or(0);
                options.swap(at, other);
            }
        }
        options.truncate(count);
        options.sort_by_key(|pick| pick.gpu);
        options
    }

    fn below(&mut self, bound: usize) -> Option<usize> {
        let drawn = (u128::from(self.next()) * bound as u128) >> 64;
        (bound > 0).then_some(drawn as usize)
    }

    /// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
