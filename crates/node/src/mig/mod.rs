//! Hardware instances: what there is, what there should be, and the way between the two.
//!
//! [`read`] asks the driver, [`plan_relayout`] decides without side effects, [`carry_out`] acts.

mod capabilities;
mod carry_out;
mod plan;
pub(crate) mod raw;
pub(crate) mod read;

pub use capabilities::capability_files;
pub use carry_out::{Holders, MigError, carry_out, plan_for, set_mode};
pub(crate) use plan::profile_name;
pub use plan::{Obstacle, Relayout, RelayoutRefusal, Standing, Target, plan_relayout};
pub use read::{Profiles, instances, mode, profiles, read};
