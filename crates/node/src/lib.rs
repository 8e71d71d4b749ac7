//! One machine: what GPUs are there, how they are divided, who uses them, and changing that.

pub mod account;
pub mod amounts;
pub mod backend;
pub mod companion;
pub mod compute_mode;
pub mod driver;
pub mod gpu_lock;
pub mod grant;
pub mod inventory;
pub mod journal;
pub mod limiter;
pub mod live;
pub mod machine;
pub mod memory_limit;
pub mod mig;
pub mod model_names;
pub mod mps;
mod probe;
pub mod processes;
pub mod procfs;
pub mod sample;
pub mod sampler;
pub mod state_dir;
mod survey;
pub mod tenant;
pub mod time_slice;
pub mod tool;
