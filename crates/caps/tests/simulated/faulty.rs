//! How the field's limiter holds tenants back (Project-HAMi/HAMi-core as read in 2026): here only so that
//! the measurements are known to be able to fail.
//!
//! A launch takes as many tokens as it has blocks, whatever its kernel costs. Every 120 ms a watcher looks
//! at the process's utilisation and moves the number of tokens that it adds. The step grows with the square
//! of the multiprocessors, the pool only linearly.

use super::Tenant;

/// How often the watcher looks.
pub(crate) const WATCH_NS: u64 = 120_000_000;
/// How long a launch sleeps while there are no tokens.
pub(crate) const SLEEP_NS: u64 = 10_000_000;
/// Threads of one multiprocessor.
const THREADS: i64 = 2048;
/// The pool, in threads of the whole GPU.
const POOL: i64 = 32;
/// Divides the step.
const STEP: i64 = 2560;

/// The limiter of one process.
#[derive(Debug)]
pub(crate) struct Faulty {
    sms: i64,
    limit_percent: i64,
    tokens: i64,
    adds: i64,
    used: u64,
    at: u64,
}

impl Faulty {
    pub(crate) fn new(tenant: &Tenant, sms: u64) -> Self {
        let limit_percent = i64::from(tenant.terms.share_milli.unwrap_or(1000)) / 10;
        Self { sms: sms as i64, limit_percent, tokens: 0, adds: 0, used: 0, at: 0 }
    }

    pub(crate) fn launch(&mut self, tenant: &Tenant) -> bool {
        let may = self.tokens >= 0;
        if may {
            self.tokens -= tenant.blocks as i64;
        }
        may
    }

    pub(crate) fn watch(&mut self, used: u64, now: u64) {
        let time = now.saturating_sub(self.at).max(1);
        let percent = ((used - self.used) * 100 / time) as i64;
        (self.used, self.at) = (used, now);
        let pool = THREADS * self.sms * POOL;
        let off = (self.limit_percent - percent).abs().max(5);
        let step = self.sms * self.sms * THREADS * off / STEP;
        self.adds = if percent <= self.limit_percent {
            (self.adds + step).min(pool)
        } else {
            (self.adds - step).max(0)
        };
        self.tokens = (self.tokens + self.adds).min(pool);
    }
}
