//! How far one process runs ahead of one GPU, and what its work costs.
//!
//! A driver queues launches without bound; whoever waits for the turn would wait for all of them. So the
//! work in the queue is estimated ([`Costs`], learned by measuring some launches) and bounded
//! ([`Work`]): events ("marks") show how far the GPU has come. [`Member`] puts both together with the
//! process's place on the [`Board`](crate::turns::Board).
//!
//! Nothing here calls a driver, waits, or allocates after construction: the caller is told what to do and
//! tells what it has seen. Estimates only bound the queue; time is what is paid with.
//!
//! Times are µs of the board's clock, costs are ns of GPU time.

mod advice;
mod cost;
mod member;
mod queue;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod work;

pub use advice::{Launch, Tick};
pub use cost::{Costs, key};
pub use member::Member;
pub use queue::{Entered, MarkId, Moment, Waited};
pub use work::Work;

/// Kinds of launches whose cost is remembered.
pub const COSTS: usize = 4096;
/// Streams of one process on one GPU that are told apart; more of them share entries.
pub const STREAMS: usize = 64;
/// Marks that can be on their way.
pub const MARKS: usize = 64;

/// Most work in the GPU's queue, in µs, beyond the newest launch: what others wait for when the turn is
/// to end, so short beside a quantum, and long enough that the GPU never runs dry.
pub const RUN_AHEAD_US: u64 = 4_000;
/// Work after which a mark is put in, in µs: the bound is watched with this precision.
pub const MARK_EVERY_US: u64 = 1_000;
/// What a launch of unknown cost counts as, in ns.
pub const UNKNOWN_NS: u64 = 1_000_000;
/// A mark that takes longer than this, and than [`LATE_TIMES`] what was estimated, is late: its stream
/// waits for the host, which nobody may wait for in turn.
pub const LATE_US: u64 = 50_000;
/// See [`LATE_US`].
pub const LATE_TIMES: u64 = 4;
/// The same while costs are not known yet, as for a kernel that runs for the first time.
pub const LATE_UNKNOWN_US: u64 = 1_000_000;
/// How long a stream is then left alone.
pub const EXEMPT_US: u64 = 10_000_000;
/// A holder whose work has run dry keeps the turn so long, if it is used to launching again within this
/// time: a service that answers requests is not interrupted between its own kernels.
pub const LINGER_US: u64 = 500;
/// How often a holder that is to hand the turn on looks whether its work has run dry.
pub const DRAIN_POLL_US: u64 = 100;
/// A turn is paid for at least this often.
pub const PAY_US: u64 = 50_000;
/// If the estimated work fills so much of the time since it began, all of the time is paid. Else the GPU
/// stood still meanwhile, and only the work is.
pub const FILLED_PERCENT: u64 = 70;
/// How often a tenant without a cap of time looks whether anybody has one.
pub const FREE_LOOK_US: u64 = 20_000;
