//! The arithmetic of sharing a GPU: how many fit, what is stranded, what a turn and an instance are worth, what is used of what is held.
//!
//! Nothing here decides on a seat: whether somebody fits says `Gpu::fits`. These are the sums behind advice and reports, a function each.
//! Memory is in MiB, compute in thousandths of the GPU, time in ms.

mod capacity;
mod latency;
mod slices;
mod use_of;

pub use capacity::{Bound, Capacity, Need, capacity, capacity_on};
pub use latency::{latency_factor, speed_for_latency};
pub use slices::{InstanceShare, Switching, instance_share, turn_milli};
pub use use_of::{GpuHours, alpha, efficiency, money, utilisation};
