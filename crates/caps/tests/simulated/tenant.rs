//! A tenant of the simulated GPU: what it launches, when it wants the GPU, what it has been given.

use caps::turns::Terms;

/// How a program launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Style {
    /// One launch after the other, as fast as it may.
    Saturating,
    /// Launches, waits until it is done, thinks so long (ns), and so on.
    Synchronous(u64),
    /// As fast as it may for so long, then nothing for so long (ns).
    Bursts(u64, u64),
    /// Never.
    Idle,
}

/// A tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenant {
    pub(crate) terms: Terms,
    pub(crate) style: Style,
    /// Its kernels take this long, in ns.
    pub(crate) kernel_ns: u64,
    /// Blocks of its kernels; only for limiters that look at them.
    pub(crate) blocks: u64,
    /// When it begins and when it dies, in ns.
    pub(crate) from_ns: u64,
    pub(crate) dies_ns: u64,
}

impl Tenant {
    /// A conserving share in percent and kernels in µs, saturating.
    pub(crate) fn new(percent: u32, kernel_us: u64) -> Self {
        let cap = caps::ComputeCap::of(percent * 10);
        Self {
            terms: Terms::of(Some(&cap)),
            style: Style::Saturating,
            kernel_ns: kernel_us * 1000,
            blocks: 1000,
            from_ns: 0,
            dies_ns: u64::MAX,
        }
    }

    pub(crate) fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }

    pub(crate) fn priority(mut self, priority: i32) -> Self {
        self.terms.priority = priority;
        self
    }

    pub(crate) fn strict(mut self) -> Self {
        self.terms.strict = true;
        self
    }

    pub(crate) fn uncapped(mut self) -> Self {
        self.terms = Terms::of(None);
        self
    }

    /// Kernels of `blocks` blocks of `block_us` each on a GPU of `sms` multiprocessors.
    pub(crate) fn grid(mut self, blocks: u64, block_us: u64, sms: u64) -> Self {
        self.blocks = blocks;
        self.kernel_ns = blocks.div_ceil(sms) * block_us * 1000;
        self
    }

    /// Whether it wants the GPU at a time.
    pub(crate) fn wants(&self, now: u64) -> bool {
        let alive = now >= self.from_ns && now < self.dies_ns;
        alive
            && match self.style {
                Style::Bursts(on, off) => (now - self.from_ns) % (on + off) < on,
                Style::Idle => false,
                Style::Saturating | Style::Synchronous(_) => true,
            }
    }

    /// When it wants the GPU again, if not now.
    pub(crate) fn wants_from(&self, now: u64) -> u64 {
        match self.style {
            _ if now < self.from_ns => self.from_ns,
            _ if self.wants(now) => now,
            Style::Bursts(on, off) => {
                let period = on + off;
                self.from_ns + ((now - self.from_ns) / period + 1) * period
            }
            Style::Idle => u64::MAX,
            Style::Saturating | Style::Synchronous(_) => now,
        }
    }
}
