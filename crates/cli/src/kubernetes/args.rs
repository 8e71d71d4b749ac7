//! The command line of `hotpot kubernetes`.

use std::ffi::OsString;
use std::net::SocketAddr;
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
                            Examples:\n  \
                            hotpot kubernetes agent --node gpu01 --driver-root /run/nvidia/driver\n  \
                            hotpot kubernetes agent --node gpu01 --print --simulate-gpus a100-80gb:8"
    )]
    Agent(Agent),
    /// Answer the API server for pods that are created: put resource names into claims, and refuse what can never run.
    #[command(
        after_help = "It makes its own certificate, which lies in a Secret called as the service, and has the configuration trust it.\n\
                            Example: hotpot kubernetes webhook --namespace hotpot --policy policy.toml"
    )]
    Webhook(Webhook),
    /// Tell autoscalers what pods use of GPUs: the API server's external metrics.
    #[command(
        after_help = "It asks the agents of the nodes, and answers the API server alone; see docs/kubernetes.md for an autoscaler by it.\n\
                            Example: hotpot kubernetes metrics --namespace hotpot --token-file /etc/hotpot/token"
    )]
    Metrics(Metrics),
    /// Become a program of the node that this container is on; the agent calls this.
    #[command(hide = true)]
    OnNode(OnNode),
}

#[derive(Debug, Group)]
pub(crate) struct OnNode {
    /// The program, as the node has it.
    pub(crate) program: PathBuf,
    /// Its words.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
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
    /// Where metrics of GPUs and of containers' shares are served for Prometheus. Default: nowhere.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// File with the token that whoever reads metrics must show; needed unless they are served on loopback.
    #[arg(long, value_name = "FILE", requires = "metrics_listen")]
    pub(crate) metrics_token_file: Option<PathBuf>,
    /// Print what would be published, as `kubectl apply -f -` takes it in a cluster without hotpot's chart, and end; no cluster is needed.
    #[arg(long)]
    pub(crate) print: bool,
    /// With --print: simulated GPUs, such as a100-80gb:8, on a machine that has none.
    #[arg(long, value_name = "MODEL:COUNT", requires = "print")]
    pub(crate) simulate_gpus: Option<String>,
}

#[derive(Debug, Group)]
pub(crate) struct Controller {
    /// Where the lease lies by which one of several controllers leads. Default: the client's namespace.
    #[arg(long, value_name = "NAMESPACE", env = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Names this controller among all that may lead; in a pod its name. Default: the host and the process.
    #[arg(long, value_name = "NAME", env = "POD_NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) identity: Option<String>,
    /// How long a controller leads that cannot renew its lease: another one takes over after that.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) lease_seconds: u16,
    /// How seats are chosen; see docs/policy.md. Without it, hotpot's own policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
}

#[derive(Debug, Group)]
pub(crate) struct Webhook {
    /// The namespace of its Service and its Secret.
    #[arg(long, env = "NAMESPACE")]
    pub(crate) namespace: String,
    /// The Service by which the API server calls it, and the Secret for its certificate.
    #[arg(long, value_name = "NAME", default_value = "hotpot-webhook")]
    pub(crate) service: String,
    /// The MutatingWebhookConfiguration that is to trust its certificate.
    #[arg(long, value_name = "NAME", default_value = "hotpot")]
    pub(crate) configuration: String,
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    pub(crate) listen: SocketAddr,
    /// One more name or address that its certificate is for; may be given again.
    #[arg(long, value_name = "NAME")]
    pub(crate) also_named: Vec<String>,
    /// The controller's policy: what it lists decides what can never run. Without it, hotpot's own policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
}

#[derive(Debug, Group)]
pub(crate) struct Metrics {
    /// The namespace of its Service and its Secret, and of the agents' pods.
    #[arg(long, env = "NAMESPACE")]
    pub(crate) namespace: String,
    /// The Service by which the API server calls it, and the Secret for its certificate.
    #[arg(long, value_name = "NAME", default_value = "hotpot-metrics")]
    pub(crate) service: String,
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:6443")]
    pub(crate) listen: SocketAddr,
    /// One more name or address that its certificate is for; may be given again.
    #[arg(long, value_name = "NAME")]
    pub(crate) also_named: Vec<String>,
    /// Labels of the agents' pods.
    #[arg(
        long,
        value_name = "SELECTOR",
        default_value = "app.kubernetes.io/name=hotpot,app.kubernetes.io/component=agent"
    )]
    pub(crate) agent_labels: String,
    /// The port of the agents' metrics.
    #[arg(long, value_name = "PORT", default_value_t = 9400)]
    pub(crate) agent_port: u16,
    /// These agents instead of pods, as http://10.0.0.1:9400/metrics.
    #[arg(long, value_name = "URL,…", value_delimiter = ',', conflicts_with_all = ["agent_labels", "agent_port"])]
    pub(crate) agents: Vec<String>,
    /// File with the token that agents want.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// How often agents are asked, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=30))]
    pub(crate) every: u16,
}
