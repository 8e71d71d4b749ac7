//! The command line of `hotpot kubernetes`.

use std::path::PathBuf;

use clap::{Args as Group, Subcommand};

#[derive(Debug, Group)]
pub(crate) struct Kubernetes {
    #[command(subcommand)]
    pub(crate) verb: KubernetesVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KubernetesVerb {
    /// Give pods that wait for GPUs their devices, and let the stock scheduler bind them.
    #[command(after_help = "The cluster is that of KUBECONFIG or, inside a pod, its own.\n\
                            Example: hotpot kubernetes controller --policy policy.toml")]
    Controller(Controller),
    /// Offer this node's GPUs to the cluster, and make the shares of pods real: a plugin of the kubelet.
    #[command(
        after_help = "It needs root, and the kubelet's and the driver's folders where the node has them.\n\
                            Example: hotpot kubernetes agent --node gpu01 --driver-root /run/nvidia/driver"
    )]
    Agent(Agent),
}

#[derive(Debug, Group)]
pub(crate) struct Agent {
    /// This node, as the cluster calls it.
    #[arg(long, env = "NODE_NAME")]
    pub(crate) node: String,
    /// Names this plugin's sockets, which no other one's may be; in a pod its UID. Default: the process.
    #[arg(long, env = "POD_UID")]
    pub(crate) instance: Option<String>,
    /// The kubelet's folder.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub(crate) kubelet: PathBuf,
    /// Where the container runtime looks for CDI files.
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    pub(crate) cdi: PathBuf,
    /// Where the agent keeps what it must not forget, at the same place for the node and for the agent.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/hotpot")]
    pub(crate) state: PathBuf,
    /// The root below which the node has the driver: / or that of a driver container.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) driver_root: PathBuf,
    /// Where the agent sees the node's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) host_root: PathBuf,
    /// A JSON file with `containerEdits`, as in CDI, for every container with a share.
    #[arg(long, value_name = "FILE")]
    pub(crate) extra: Option<PathBuf>,
    /// End pods on a card that has failed, instead of only keeping new ones from it.
    #[arg(long)]
    pub(crate) evict: bool,
    /// The container runtime's socket, to be asked whether it gives containers what they claim.
    #[arg(long, value_name = "SOCKET")]
    pub(crate) runtime: Option<PathBuf>,
}

#[derive(Debug, Group)]
pub(crate) struct Controller {
    /// How seats are chosen; see docs/policy.md. Without it, hotpot's own policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
}
