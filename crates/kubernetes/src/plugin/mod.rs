//! The plugin of the kubelet that runs on each node: it tells the API server of the node's GPUs, makes the shares of
//! claims real when the kubelet asks, and tells the container runtime of them.
//!
//! `devices` is what a node offers, `slices` and `publish` bring it to the API server, `probe` finds out what that
//! keeps. `allocation` and `seats` read what a claim was given, `prepare` makes it real by `node::machine`, `edits` and
//! `cdi` write what its containers need, `checkpoint` remembers. `registration`, `greeting` and `service` are the kubelet's wire,
//! `runtime` asks whether the container runtime listens,
//! `occupants` whose containers claims are in, for `metrics`.

pub mod allocation;
mod attributes;
pub mod cdi;
pub mod checkpoint;
pub mod claims;
pub mod devices;
pub mod driver_files;
pub mod edits;
mod greeting;
mod library;
mod look;
mod metrics;
mod occupants;
pub mod prepare;
mod preview;
mod probe;
pub mod proto;
mod publish;
mod registration;
pub mod runtime;
pub mod seats;
mod service;
mod serving;
pub mod slices;

use std::path::PathBuf;
use std::time::Duration;

use node::machine::MachineOptions;
use thiserror::Error;

pub use metrics::Metrics;
pub use preview::preview;
pub use publish::PublishError;
pub use registration::SocketError;
pub use serving::{run, serve};

/// Where something is told that people should know.
pub type Notice = fn(&str);

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's name, as the API server has it.
    pub node: String,
    /// The plugin's pod, by UID, or its process: its sockets are named so, and no other plugin's may be.
    pub instance: String,
    /// The kubelet's folder.
    pub kubelet: PathBuf,
    /// Where the container runtime looks for CDI files.
    pub cdi: PathBuf,
    /// The state folder. If the plugin runs in a container, it must be the machine's, at the same place: containers are
    /// given files from it.
    pub state: PathBuf,
    /// The root below which the driver is installed, as the machine has it.
    pub driver_root: PathBuf,
    /// Where the machine's root is seen from here.
    pub host_root: PathBuf,
    /// A file with `containerEdits` that every claim is given too.
    pub extra: Option<PathBuf>,
    /// Whether pods on a faulty card are ended, and not only kept from it.
    pub evict: bool,
    /// The socket of the container runtime, to be asked whether it gives containers what they claim.
    pub runtime: Option<PathBuf>,
    /// How to open the machine; its state folder is the one above.
    pub machine: MachineOptions,
    /// Where metrics are served, with one line for each container's share; nowhere without it.
    pub metrics: Option<Metrics>,
    /// How often the GPUs are looked at.
    pub look_every: Duration,
    /// Where news go.
    pub notice: Notice,
}

impl Options {
    /// As a kubelet is usually set up.
    ///
    /// * `node` — its name; `instance` — see [`Options::instance`].
    pub fn new(node: &str, instance: &str, notice: Notice) -> Self {
        Self {
            node: node.to_owned(),
            instance: instance.to_owned(),
            kubelet: "/var/lib/kubelet".into(),
            cdi: "/var/run/cdi".into(),
            state: "/var/lib/hotpot".into(),
            driver_root: "/".into(),
            host_root: "/".into(),
            extra: None,
            evict: false,
            runtime: None,
            machine: MachineOptions::default(),
            metrics: None,
            look_every: Duration::from_secs(10),
            notice,
        }
    }
}

/// Why the plugin cannot run, or does no longer.
#[derive(Debug, Error)]
pub enum PluginError {
    /// The machine cannot be opened.
    #[error(transparent)]
    Prepare(#[from] prepare::PrepareError),
    /// A socket cannot be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Metrics cannot be served.
    #[error("metrics: {0}")]
    Metrics(#[from] agent::AgentError),
    /// What the administrator adds.
    #[error(transparent)]
    Extra(#[from] edits::ExtraError),
    /// Who publishes.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The limiter cannot be put where containers are given it.
    #[error("{}: {source}; the limiter library cannot be put there for containers: free some space", path.display())]
    Library {
        /// The state folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A socket is no longer served.
    #[error("the kubelet can no longer be served: {0}")]
    Serve(#[from] tonic::transport::Error),
    /// The kubelet cannot ask for the plugin any more.
    #[error("the kubelet can no longer ask what plugin this is: {0}")]
    Registration(std::io::Error),
    /// Signals cannot be received.
    #[error("signals cannot be received: {0}")]
    Signals(std::io::Error),
    /// A part of the plugin has failed.
    #[error("a part of the plugin has failed: {0}")]
    Failed(#[from] tokio::task::JoinError),
}
