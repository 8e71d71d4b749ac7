//! What is known of how a tenant uses a GPU that it has for itself.

/// Use of a GPU by a tenant alone there. Parts are thousandths (0 to 1000); `None` is not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Profile {
    /// Time in which any kernel runs.
    pub busy_milli: Option<u32>,
    /// Streaming multiprocessors in use, mean over time.
    pub sm_milli: Option<u32>,
    /// Bandwidth of the device memory.
    pub dram_milli: Option<u32>,
    /// Bandwidth of the L2 cache.
    pub l2_milli: Option<u32>,
}
