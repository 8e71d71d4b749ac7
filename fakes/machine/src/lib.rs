//! A simulated GPU machine: its state lies in one file that all processes share.
//!
//! [`Machine`] is a folder, [`State`] what is in it, [`Code`] what a driver answers when it refuses.
//! The rules of MIG are in `mig`, what is true of a model of GPU in `models` and `profiles`; `layout` puts
//! the simulated driver where programs find it.
#![forbid(unsafe_code)]

mod code;
mod gpu;
pub mod layout;
mod mig;
mod models;
mod old_driver;
mod process;
mod profiles;
mod spec;
mod state;
mod store;

pub use code::Code;
pub use gpu::{AccountingRecord, Ecc, Gpu, Load, MemoryLimit, MigMode};
pub use mig::{ComputeInstance, GpuInstance};
pub use models::{Architecture, ModelFacts, facts};
pub use old_driver::without_symbols;
pub use process::{Process, ProcessKind};
pub use profiles::{ComputeProfile, InstanceProfile, compute_profiles, instance_profiles};
pub use spec::{GpuSpec, SpecError};
pub use state::{Effect, Fault, State, Xid};
pub use store::{EditError, MACHINE_VARIABLE, Machine, StoreError};
