//! Whoever watches a replay.

use model::{Running, Snapshot, Workload, WorkloadId};

/// Is told of every event of a replay, in order. All methods do nothing unless implemented.
pub trait Observer {
    /// A workload has been submitted.
    fn arrived(&mut self, _workload: &Workload) {}
    /// A workload has been started.
    fn started(&mut self, _running: &Running) {}
    /// A workload has been turned away for good.
    fn rejected(&mut self, _id: WorkloadId) {}
    /// A workload has left.
    fn finished(&mut self, _running: &Running, _at_ms: u64) {}
    /// All that happens at this moment has happened.
    fn settled(&mut self, _snapshot: &Snapshot) {}
}

/// Watches nothing.
impl Observer for () {}
