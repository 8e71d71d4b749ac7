//! A progress bar for replays that take more than a moment.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::{Running, Snapshot, Trace, Workload, WorkloadId};
use simulator::Observer;

/// Shorter runs stay silent.
const PATIENCE: Duration = Duration::from_secs(2);
/// Events between looks at the clock.
const STRIDE: u64 = 64;

/// Counts arrivals and departures of one replay; draws on standard error if that is a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    since: Instant,
    events: u64,
    looked: u64,
}

impl Progress {
    /// A bar for one replay of a trace.
    ///
    /// * `since` — when the first of the replays began: patience is with all of them together.
    pub(crate) fn new(label: &str, trace: &Trace, since: Instant) -> Self {
        let ends = trace.arrivals.iter().filter(|arrival| arrival.runs_ms.is_some()).count();
        let events = (trace.arrivals.len() + ends) as u64;
        let bar = ProgressBar::with_draw_target(Some(events), ProgressDrawTarget::hidden());
        let style = "{msg:>16} {bar:30} {percent:>3} %, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(label.to_string());
        Self { bar, since, events: 0, looked: 0 }
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Progress {
    fn arrived(&mut self, _workload: &Workload) {
        self.events += 1;
    }

    fn rejected(&mut self, _id: WorkloadId) {
        self.events += 1;
    }

    fn finished(&mut self, _running: &Running, _at_ms: u64) {
        self.events += 1;
    }

    fn settled(&mut self, _snapshot: &Snapshot) {
        if self.events < self.looked + STRIDE {
            return;
        }
        self.looked = self.events;
        if self.bar.is_hidden() && self.since.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        // Those turned away count as gone, whether or not they would have left.
        self.bar.set_position(self.events.min(self.bar.length().unwrap_or(u64::MAX)));
    }
}
