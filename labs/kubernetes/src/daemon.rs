//! The cluster's daemons: their names, and how each is started.

use std::fmt;
use std::path::PathBuf;

use lab_base::Place;

use crate::conf;
use crate::options::Options;

/// A daemon of a cluster, in the order in which they come up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    /// The store.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    Controllers,
    /// kube-scheduler.
    Scheduler,
    /// kube-proxy, of all nodes.
    Proxy,
    /// A node's containerd.
    Containerd(String),
    /// A node's kubelet.
    Kubelet(String),
}

impl Daemon {
    /// All of a cluster.
    pub(crate) fn all(options: &Options) -> Vec<Self> {
        let fixed = [Self::Etcd, Self::ApiServer, Self::Controllers, Self::Scheduler];
        let of_nodes = options
            .all_nodes()
            .into_iter()
            .flat_map(|node| [Self::Containerd(node.clone()), Self::Kubelet(node)]);
        let proxy = (options.nodes > 0).then_some(Self::Proxy);
        fixed.into_iter().chain(of_nodes).chain(proxy).collect()
    }

    /// The daemon of a name as it is displayed.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let fixed = [Self::Etcd, Self::ApiServer, Self::Controllers, Self::Scheduler, Self::Proxy];
        let of_node = || match name.split_once('-')? {
            ("containerd", node) => Some(Self::Containerd(node.into())),
            ("kubelet", node) => Some(Self::Kubelet(node.into())),
            _ => None,
        };
        fixed.into_iter().find(|daemon| daemon.to_string() == name).or_else(of_node)
    }

    /// The node that it runs on, if it is one's own.
    pub(crate) fn node(&self) -> Option<&str> {
        match self {
            Self::Containerd(node) | Self::Kubelet(node) => Some(node),
            Self::Etcd | Self::ApiServer | Self::Controllers | Self::Scheduler | Self::Proxy => {
                None
            }
        }
    }

    /// The program that it is.
    pub(crate) fn program(&self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::Controllers => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Proxy => "kube-proxy",
            Self::Containerd(_) => "containerd",
            Self::Kubelet(_) => "kubelet",
        }
    }

    /// The words that it is started with.
    pub(crate) fn words(&self, place: &Place, options: &Options) -> Vec<String> {
        let index = |node: &str| {
            options.all_nodes().iter().position(|name| name == node).unwrap_or_default()
        };
        match self {
            Self::Etcd => conf::etcd(place),
            Self::ApiServer => conf::apiserver(place, options),
            Self::Controllers => conf::controllers(place, options),
            Self::Scheduler => conf::scheduler(place, options),
            Self::Proxy => conf::proxy(place),
            Self::Containerd(node) => {
                vec![
                    "--config".into(),
                    place.path(&format!("etc/{node}/containerd.toml")).display().to_string(),
                ]
            }
            Self::Kubelet(node) => conf::kubelet(place, node, index(node)),
        }
    }

    /// Where it is written down which process it is.
    pub(crate) fn record(&self, place: &Place) -> PathBuf {
        place.path(&format!("run/{self}.process"))
    }

    /// What it prints.
    pub(crate) fn log(&self, place: &Place) -> PathBuf {
        place.path(&format!("log/{self}.log"))
    }
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())?;
        self.node().map_or(Ok(()), |node| write!(f, "-{node}"))
    }
}
