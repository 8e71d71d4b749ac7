//! Fingerprints of a node's state: sums of parts, so that what comes and goes can be added and taken
//! away in any order.

use crate::id::WorkloadId;
use crate::node::Resident;
use crate::sharing::{Share, SharingMode};

/// Mixes 64-bit words; the finaliser is that of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Default)]
pub(crate) struct Fingerprint(pub(crate) u64);

impl Fingerprint {
    pub(crate) fn add(&mut self, word: u64) -> &mut Self {
        let mut z = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ word;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = z ^ (z >> 31);
        self
    }
}

/// A member's part of its node's fingerprint.
pub(crate) fn resident_print(resident: &Resident) -> u64 {
    let mut print = Fingerprint(1);
    print.add(resident.workload.0).add(resident.cpu_milli).add(resident.memory_mib);
    print.add(resident.until_ms);
    print.0
}

/// A share's part of its node's fingerprint.
pub(crate) fn share_print(workload: WorkloadId, index: u8, share: Share) -> u64 {
    let (kind, amount, memory_mib) = match share {
        Share::Exclusive => (0, 0, 0),
        Share::TimeSlice { memory_mib } => (1, 0, memory_mib),
        Share::Mps { compute_milli, memory_mib } => (2, u64::from(compute_milli), memory_mib),
        Share::Mig { profile, start } => (3, u64::from(profile.0), u64::from(start)),
        Share::MemoryCapped { memory_mib, compute_milli } => {
            (4, u64::from(compute_milli), memory_mib)
        }
    };
    let mut print = Fingerprint(2);
    print.add(workload.0).add(u64::from(index) << 8 | kind).add(amount).add(memory_mib);
    print.0
}

/// The part of a GPU's mode.
pub(crate) fn mode_print(index: u8, mode: SharingMode) -> u64 {
    let mut print = Fingerprint(3);
    print.add(u64::from(index) << 16 | (mode.kind() as u64) << 8 | u64::from(mode.tenants_max()));
    print.0
}

/// The part of a GPU that is set aside.
pub(crate) fn aside_print(index: u8) -> u64 {
    let mut print = Fingerprint(4);
    print.add(u64::from(index));
    print.0
}
