//! What whoever launches, and whoever watches, is told to do.

use super::queue::MarkId;

/// What is to become of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Launch; nothing more is to be done. So it is for a tenant without a cap of time while nobody at the
    /// board has one.
    Free,
    /// Launch, then call [`launched`](super::Member::launched) with `ns`.
    Go {
        /// What it is expected to cost, in ns.
        ns: u64,
        /// Measure it.
        sample: bool,
    },
    /// Wait until the turn changes, at most until then, and ask again.
    Turn {
        /// µs.
        until_us: u64,
    },
    /// There is no seat for the tenant at this board any more: see [`move_to`](super::Member::move_to).
    Unseated,
    /// Wait until the mark is done and say so ([`finish`](super::Work::finish)), or that it is late ([`late`](super::Work::late)) when
    /// that time has come; then ask again.
    Settle {
        /// The mark.
        mark: MarkId,
        /// µs.
        until_us: u64,
    },
    /// Put a mark into this stream, then ask again.
    Mark {
        /// The stream.
        stream: u64,
    },
}

/// What the watcher is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// When to look again; `None`: not before the next launch.
    pub again_us: Option<u64>,
    /// The turn has changed: wake those who wait for it.
    pub wake: bool,
    /// Put a mark into this stream.
    pub mark: Option<u64>,
}
