//! The adapter for Slurm. Slurm keeps its queue, priorities, fair share, backfill and books; here is what
//! it lacks below the card.
//!
//! `commands` calls Slurm's own programs; `record`, `hostlist`, `gres`, `job`, `node_state`, `config` and `ask` read
//! what they print, `profiles` knows MIG types by name. `site` is what the site has chosen, `facts` what it has, `conf`
//! renders its nodes for Slurm, `check` asks whether all is in place. `on_node` makes shares real where a job starts and takes
//! them back where it ends, `usage` keeps what it used; `array` keeps GPUs busy with short tasks; `layout` moves nodes
//! between whole cards and MIG instances. `queue_view` is the cluster at one moment, `explain` says of a job why it
//! waits or what became of it, `report` what was held and used, `right_size` has a submission ask by that. `agents`
//! asks the nodes' agents what was measured.

pub mod agents;
pub mod array;
pub mod ask;
pub mod check;
pub mod commands;
pub mod conf;
pub mod config;
pub mod explain;
pub mod facts;
pub mod gres;
pub mod hostlist;
pub mod job;
pub mod layout;
pub mod node_state;
pub mod on_node;
mod profiles;
pub mod queue_view;
pub mod record;
pub mod report;
pub mod right_size;
pub mod site;
pub mod usage;

pub use commands::{Slurm, SlurmError};
use node::whole;
