//! A progress bar for replays that take more than a moment.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::{Snapshot, Workload};
use simulator::Observer;

/// Shorter runs stay silent.
const PATIENCE: Duration = Duration::from_secs(2);
/// Arrivals between looks at the clock.
const STRIDE: u64 = 64;

/// Counts arrivals of one replay; draws on standard error if that is a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    since: Instant,
    arrived: u64,
}

impl Progress {
    pub(crate) fn new(label: &str, arrivals: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(arrivals), ProgressDrawTarget::hidden());
        let style = "{msg:>16} {bar:30} {pos}/{len} workloads, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(label.to_string());
        Self { bar, since: Instant::now(), arrived: 0 }
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Progress {
    fn arrived(&mut self, _workload: &Workload) {
        self.arrived += 1;
    }

    fn settled(&mut self, _snapshot: &Snapshot) {
        if self.arrived % STRIDE != 0 {
            return;
        }
        if self.bar.is_hidden() && self.since.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(self.arrived);
    }
}
