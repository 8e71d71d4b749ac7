//! Whose turn it is to compute on one GPU.
//!
//! Without MPS a GPU runs one process at a time and changes between them every few ms, so what a kernel
//! costs cannot be told while others run too. Here tenants take turns instead: the one whose turn it is
//! launches, the others wait, and a turn is paid with the time it took. That is exact whatever the
//! kernels are, and needs no model of the GPU.
//!
//! * [`Board`] — one page per GPU, in a file that all tenants map. Nobody runs a server: whoever asks
//!   moves things on. A step never blocks; it says until when to wait and then ask again.
//! * [`next`] — who is next, a pure function of what the board shows.
//! * Nobody else wants the GPU: the holder keeps the turn, without any gap.
//! * Others want it: the holder stops launching when its quantum is over, lets its work run dry, pays, and
//!   hands the turn on. A higher priority does not wait for that but takes the turn at once.
//! * Time in which the GPU stands still in somebody's turn, while others want it, is paid like work.
//!
//! Virtual time (GPU time by weight) decides among equals: whoever has had least is next. A tenant that comes
//! back after a pause is as far ahead of the others' mean, or behind it, as it was when it left (Stoica and
//! Abdel-Wahab's earliest eligible virtual deadline first, 1995, keeps this "lag" too).
//!
//! *Invariant:* nobody waits without bound for somebody who is dead, stopped or hangs: a turn whose beat
//! is [`OVERDUE_MS`] old can be taken, and one that does not run dry is handed on after [`DRAIN_MAX_US`].
//! *Invariant:* any bytes on the page are a valid board; nothing panics.
//!
//! Times are µs of `CLOCK_MONOTONIC`, which all processes of a machine share.

mod board;
mod charge;
#[cfg(test)]
#[cfg(loom)]
mod interleavings;
mod next;
mod seat;
mod sit;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod word;

pub use board::{Board, Hold, Passed, Turn};
pub use charge::Had;
pub use next::{SeatView, Views, effective_milli, mean_virtual, next};
pub use seat::{PRIORITY_MAX, PRIORITY_MIN, Place, Terms};

/// Tenants on one board.
#[cfg(not(loom))]
pub const SEATS: usize = 64;
/// Tenants on one board; few, so that every interleaving can be tried.
#[cfg(loom)]
pub const SEATS: usize = 2;

/// Processes of one tenant that are told apart; more of them share rows, which costs precision only.
#[cfg(not(loom))]
pub const PROCESSES: usize = 8;
/// Processes of one tenant that are told apart.
#[cfg(loom)]
pub const PROCESSES: usize = 2;

/// A holder whom others wait for gives the turn on after this time: long beside the 0.1 to 0.3 ms that a
/// change costs, short beside what people notice.
pub const QUANTUM_US: u64 = 10_000;

/// A turn lasts at least so long, even if somebody who has had less comes back meanwhile.
pub const TURN_MIN_US: u64 = 2_000;

/// Virtual time by which a tenant may be behind the others when it comes back after a pause, in µs: what
/// it waited for and did not get before. A pause itself earns nothing.
pub const LAG_US: u64 = 100_000;

/// The same, by which it may be ahead: what it had too much of, as with a kernel longer than a quantum.
pub const AHEAD_US: u64 = 60_000_000;

/// Shorter absences are no pause.
pub const PAUSE_US: u64 = 1_000;

/// Both are forgotten little by little over a pause of this length.
pub const FORGET_US: u64 = 10_000_000;

/// A tenant that comes back and is so far behind (virtual µs) does not wait for the end of the quantum.
pub const BEHIND_US: u64 = 5_000;

/// A holder shows that it lives at least this often while it computes or others wait.
pub const BEAT_US: u64 = 1_000;

/// A turn whose holder has not shown for so long that it lives can be taken by whoever asks. Above what a
/// busy machine may keep a thread waiting.
pub const OVERDUE_MS: u64 = 60;

/// A holder that is to hand on the turn waits so long for its work to run dry, then hands it on as it is.
pub const DRAIN_MAX_US: u64 = 500_000;

/// Whoever waits asks again at least this often.
pub const POLL_US: u64 = 5_000;

/// A tenant that waits counts only if it has asked within this time.
pub const WANT_STALE_US: u64 = 50_000;

/// A turn that its holder does not use within this time goes on.
pub const UNUSED_US: u64 = 2_000;

/// A seat whose tenant has not shown for so long, and which does not hold the turn, is free.
pub const SEAT_STALE_US: u64 = 10_000_000;

/// GPU time that a tenant with a strict share may save up.
pub const BURST_US: u64 = 50_000;

/// GPU time that a tenant with a strict share must have saved before it begins again, so that it does not
/// begin anew for every single launch.
pub const BURST_MIN_US: u64 = 5_000;

/// The longest that a tenant with a strict share has to wait for what it has had.
pub const DUE_MAX_US: u64 = 3_600_000_000;

/// What a tenant of low priority is owed by its floor before it is served ahead of higher ones: short, as
/// the higher one waits for that long.
pub const FLOOR_SLICE_US: u64 = 1_000;

/// Most that a tenant can be owed by its floor.
pub const FLOOR_SAVED_US: u64 = 3_000;

/// Most that a tenant can have been given ahead of its floor.
pub const FLOOR_AHEAD_US: u64 = 2_000_000;

/// Least weight of tenants without a cap, together, in thousandths.
pub const UNCAPPED_MILLI: u64 = 50;
