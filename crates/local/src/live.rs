//! Telling other programs on this machine which process belongs to which task.

use node::live::{LiveRun, LiveShare, LiveTask};

use crate::containment::start_ticks_of;
use crate::runner::Runner;

impl Runner<'_> {
    /// Publishes the tasks that run now. Nobody depends on it: a failure is let pass.
    pub(crate) fn publish(&self) {
        let pid = std::process::id();
        let task = |live: &crate::runner::Live| LiveTask {
            task: live.label.clone(),
            pid: live.pid,
            start_ticks: live.start_ticks,
            shares: live.grants.iter().map(|(_, grant)| LiveShare::of(grant)).collect(),
        };
        let run = LiveRun {
            run: self.around.run.clone(),
            pid,
            start_ticks: start_ticks_of(pid).unwrap_or(0),
            tasks: self.live.values().map(task).collect(),
            ended: self.totals.all_booked().clone(),
        };
        let _ = run.publish(&node::live::folder(&self.settings.state));
    }

    /// Takes the published file away.
    pub(crate) fn withdraw(&self) {
        let folder = node::live::folder(&self.settings.state);
        let _ = node::live::withdraw(&folder, &self.around.run);
    }
}
