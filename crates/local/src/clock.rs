//! Two clocks: one that only goes forward and by which everything is decided, and the calendar's,
//! which goes into records alone. A jump of the calendar changes no limit and no order.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The clock of a run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    begun: Instant,
}

impl Clock {
    /// Starts at 0.
    pub fn start() -> Self {
        Self { begun: Instant::now() }
    }

    /// ms since the start.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// ms since 1970, as the calendar has it now.
    pub fn calendar_ms() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
