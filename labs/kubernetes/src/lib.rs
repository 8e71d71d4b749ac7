//! A real Kubernetes cluster on this host, up in seconds once its programs are built, for tests and for people.
//!
//! [`Options`] says what is wanted, [`Cluster`] is what runs. Everything lies in one folder and in namespaces of its own:
//! when their first process ends, all of the cluster does. `programs` is where Kubernetes' programs come from, `keys` who is who
//! to the API server, `conf` what the daemons read, `daemon` how each is started, `namespaces` what all of it runs in, `enter` how to get in,
//! `node` what a node has of its own, `image` what pods run, `objects` nodes that nobody runs, `hotpot` what its
//! controller needs.
#![forbid(unsafe_code)]

mod cgroup;
mod cluster;
mod conf;
mod daemon;
mod down;
mod enter;
pub mod hotpot;
mod image;
mod keys;
mod namespaces;
mod node;
mod objects;
mod options;
mod programs;

pub use cluster::Cluster;
pub use daemon::Daemon;
pub use down::{down, status};
pub use enter::{inside, program};
pub use image::Image;
pub use lab_base::LabError;
pub use objects::{ObjectNode, WITHOUT_SIGNS_OF_LIFE};
pub use options::Options;
pub use programs::{can_be_had, install};
