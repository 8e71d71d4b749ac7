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
    /// A workload has left because it was asked to, and waits again.
    fn preempted(&mut self, _running: &Running, _at_ms: u64) {}
    /// All that happens at this moment has happened.
    fn settled(&mut self, _snapshot: &Snapshot) {}
}

/// Watches nothing.
impl Observer for () {}

/// Tells two observers of everything, the first one first.
pub(crate) struct Both<'a, A>(pub(crate) A, pub(crate) &'a mut dyn Observer);

impl<A: Observer> Observer for Both<'_, A> {
    fn arrived(&mut self, workload: &Workload) {
        self.0.arrived(workload);
        self.1.arrived(workload);
    }

    fn started(&mut self, running: &Running) {
        self.0.started(running);
        self.1.started(running);
    }

    fn rejected(&mut self, id: WorkloadId) {
        self.0.rejected(id);
        self.1.rejected(id);
    }

    fn finished(&mut self, running: &Running, at_ms: u64) {
        self.0.finished(running, at_ms);
        self.1.finished(running, at_ms);
    }

    fn preempted(&mut self, running: &Running, at_ms: u64) {
        self.0.preempted(running, at_ms);
        self.1.preempted(running, at_ms);
    }

    fn settled(&mut self, snapshot: &Snapshot) {
        self.0.settled(snapshot);
        self.1.settled(snapshot);
    }
}
