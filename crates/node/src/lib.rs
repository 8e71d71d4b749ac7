//! One machine: what GPUs are there, how they are divided, who uses them, and changing that.

pub mod backend;
pub mod grant;
pub mod inventory;
pub mod sample;
pub mod tenant;
