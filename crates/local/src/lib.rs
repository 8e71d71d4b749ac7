//! The adapter for one machine: jobs become processes on its GPUs, and nothing of them is left behind.
//!
//! [`Runner`] is the loop; `deciding`, `starting`, `ending` and `closing` are its parts. `containment` keeps hold of
//! a task's processes, `devices` of its GPUs, `journal` of what has been done so far.

pub mod clock;
mod closing;
mod conditions;
pub mod containment;
mod deciding;
pub mod devices;
mod ending;
pub mod environment;
mod error;
pub mod files;
pub mod held;
pub mod journal;
mod live;
mod measure;
pub mod pattern;
pub mod prepare;
pub mod process;
mod runner;
pub mod signals;
mod starting;
pub mod task;
mod totals;
mod vfork;
pub mod watch;
pub mod work;

pub use devices::{Choice, Devices};
pub use error::RunError;
pub use held::Held;
pub use runner::{Runner, Settings};
pub use task::{Ending, State, Task};
pub use totals::Summary;
pub use watch::{View, Watch};
pub use work::Work;
