//! What a tenant may take of GPUs, and what it has taken.
//!
//! The limiter inside a tenant's processes and whoever watches from outside meet here and nowhere else:
//! [`Caps`] is what the agent wrote, [`Ledger`] the memory that all processes of one tenant hold on one
//! GPU, [`turns`] the order in which tenants compute, [`pace`] how far one process may run ahead.
//! No CUDA and no threads. What is decided by time is told the time; only who waits for a lock looks at a clock.
//!
//! *Invariant:* nothing here panics, whatever a page or a file contains: both are written by others.
//! *Invariant:* nothing here is needed beyond `std` and the C library.

mod environment;
mod given;
mod ledger;
pub mod pace;
mod process;
mod shared;
pub mod sync;
mod text;
pub mod turns;

pub use environment::{FIXED, LIST_VARIABLE, LoadError, Source, is_own_ledger};
pub use given::{Caps, ComputeCap, DEFAULT_FLOOR_MILLI, GpuCaps, Standing, Which};
#[cfg(not(loom))]
pub use ledger::{Account, Ledger, ProcessUse, Refused};
pub use ledger::{Crowded, EXPORTS_MAX, KINDS, Kind, OverCap, PROCESSES_MAX, Slot};
pub use process::ProcessId;
pub use shared::{Mapped, Page};
pub use text::TextError;
