//! A real Slurm cluster on this host, up in about a second, for tests and for people.
//!
//! [`Options`] says what is wanted, [`Cluster`] is what runs. Everything lies in one folder, nothing
//! outside is touched, and any number of clusters run side by side. `conf` is what the daemons read,
//! `daemon` how each is started, `hotpot` what hotpot adds, `layouts` what its changes of layout need, `node` what a node has of its own, `on_nodes` who belongs to a cluster.
#![forbid(unsafe_code)]

mod accounting;
mod cgroup;
mod cluster;
mod conf;
mod daemon;
mod down;
mod hotpot;
mod layouts;
mod node;
mod on_nodes;
mod options;
mod packages;
mod ports;

pub use cluster::Cluster;
pub use daemon::Daemon;
pub use down::{down, status};
pub use lab_base::LabError;
pub use options::Options;
pub use packages::{can_be_had, install, missing};
