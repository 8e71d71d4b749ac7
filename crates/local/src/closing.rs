//! Where a run stands, and its end: GPUs put back, strays ended, the journal closed, the sum drawn.

use crate::clock::Clock;
use crate::runner::Runner;
use crate::task::State;
use crate::totals::{Summary, gpus_held};
use crate::watch::View;

impl Runner<'_> {
    /// Where the run stands.
    pub(crate) fn view(&self) -> View {
        let (mut done, mut failed) = (0, 0);
        for posted in &self.work.jobs {
            let (ok, ended) = posted.counts();
            done += ok;
            failed += ended - ok;
        }
        let tasks = self.work.tasks.len();
        View {
            now_ms: self.snapshot.now_ms,
            tasks,
            running: self.live.len(),
            done,
            failed,
            waiting: tasks - done - failed - self.live.len(),
            reason: self.reason.clone(),
            gpus: self.devices.gpu_count(),
            gpus_held: gpus_held(&self.snapshot),
            // A simulated GPU computes nothing.
            busy_ratio: self.gauge.busy_ratio().filter(|_| !self.settings.simulated),
        }
    }

    /// Puts GPUs back, ends strays, closes the journal and sums up.
    pub(crate) fn finish(mut self) -> Summary {
        self.totals.advance(&self.snapshot, self.clock.now_ms());
        self.containment.close();
        for text in self.devices.restore() {
            self.watch.told(&text);
        }
        self.withdraw();
        let view = self.view();
        self.watch.stands(&view);
        let is_left = |state: &State| match state {
            State::Ended(ending) => !ending.is_final(),
            State::Held | State::Waiting { .. } | State::Running { .. } => true,
        };
        let left = self.work.tasks.iter().filter(|task| is_left(&task.state)).count();
        let mut summary = Summary {
            run: self.journal.run(),
            tasks: view.tasks,
            done: view.done,
            failed: view.tasks - view.done - left,
            left,
            interrupted: self.stops > 0,
            gpus: view.gpus,
            simulated: self.settings.simulated,
            recorded: true,
            ..Summary::default()
        };
        self.totals.into_summary(&mut summary);
        summary.gpu_hours_busy = summary.gpu_hours_busy.filter(|_| !summary.simulated);
        let written = match left {
            0 => self.journal.finish(Clock::calendar_ms()),
            _ => self.journal.write(),
        };
        if let Err(error) = written {
            summary.recorded = false;
            self.watch.told(&format!("{error}; the end of this run is not recorded"));
        }
        summary
    }
}
