//! A cluster whose nodes are objects, with cards that are objects too, and hotpot's controller.
#![allow(clippy::unwrap_used, dead_code, reason = "tests; not every file needs all of it")]

pub(crate) mod chart;
pub(crate) mod client;

use std::path::PathBuf;
use std::process::{Child, Stdio};

use kubernetes_lab::hotpot::{CLASS, slice};
use kubernetes_lab::{Cluster, ObjectNode, Options, WITHOUT_SIGNS_OF_LIFE};

/// A folder of this test, gone at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("k8s-{}-{name}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program of the test that ends with it.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control plane without nodes, and the class of hotpot's devices; `None` where none can be had.
pub(crate) fn control_plane(test: &str, folder: &Folder) -> Option<Cluster> {
    if !kubernetes_lab::can_be_had(test) {
        return None;
    }
    let controllers = vec![WITHOUT_SIGNS_OF_LIFE.to_owned()];
    let cluster =
        Cluster::up(&folder.0, &Options { nodes: 0, controllers, ..Options::default() }).unwrap();
    cluster.apply(CLASS).unwrap();
    Some(cluster)
}

/// A program as it was built.
pub(crate) fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join(name)
}

/// Makes a service account of the namespace `default` that may do what is said and no more; the file by which it finds the cluster.
pub(crate) fn account(cluster: &Cluster, name: &str, rights: &str) -> PathBuf {
    cluster.apply(rights).unwrap();
    let token = cluster.kubectl(&["create", "token", name, "--duration=1h"]).unwrap();
    let (token, ca) = (token.trim(), cluster.folder().join("keys/ca.crt"));
    let server = ["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"];
    let server = cluster.kubectl(&server).unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: it\ncontexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n\
         clusters: [{{name: it, cluster: {{server: \"{server}\", certificate-authority: \"{}\"}}}}]\n\
         users: [{{name: it, user: {{token: {token}}}}}]\n",
        ca.display()
    );
    let path = cluster.folder().join(format!("keys/{name}.kubeconfig"));
    std::fs::write(&path, text).unwrap();
    path
}

/// Starts the controller as users do, always as the same one: its lease need not run out when it was killed.
pub(crate) fn controller(cluster: &Cluster) -> Running {
    start(cluster, "lab", "log/controller.log")
}

/// Starts one of several controllers.
pub(crate) fn controller_as(cluster: &Cluster, identity: &str) -> Running {
    start(cluster, identity, &format!("log/controller-{identity}.log"))
}

fn start(cluster: &Cluster, identity: &str, log: &str) -> Running {
    let log = std::fs::File::create(cluster.folder().join(log)).unwrap();
    let mut command = cluster.command(built("hotpot"));
    command.args(["kubernetes", "controller", "--identity", identity, "--lease-seconds", "3"]);
    Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

/// Nodes with one card of 80 GiB each, all objects.
pub(crate) fn add_nodes(cluster: &Cluster, names: &[&str]) {
    let node = |name: &&str| ObjectNode { name: (*name).to_owned(), cpus: 16, memory_mib: 64_000 };
    cluster.add_nodes(&names.iter().map(node).collect::<Vec<_>>()).unwrap();
    let slices: String = names.iter().map(|name| slice(name)).collect();
    cluster.apply(&slices).unwrap();
}

/// A template of claims for one share.
pub(crate) fn template(name: &str, amounts: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: {name}}}\nspec: {{spec: {{devices: {{requests: \
         [{{name: gpu, exactly: {{deviceClassName: gpu.hotpot.dev, capacity: {{requests: {amounts}}}}}}}]}}}}}}\n---\n"
    )
}

/// A pod that waits for devices.
///
/// * `claim` — `resourceClaimTemplateName: NAME` or `resourceClaimName: NAME`; `more` — more of its container.
pub(crate) fn pod(name: &str, claim: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  schedulingGates: [{{name: hotpot.dev/placement}}]\n  \
         resourceClaims: [{{name: gpu, {claim}}}]\n  terminationGracePeriodSeconds: 0\n  \
         containers: [{{name: main, image: none, resources: {{claims: [{{name: gpu}}]}}{more}}}]\n---\n"
    )
}

/// The node of a pod; nothing if it has none.
pub(crate) fn node_of(cluster: &Cluster, pod: &str) -> String {
    cluster.kubectl(&["get", "pod", pod, "-o", "jsonpath={.spec.nodeName}"]).unwrap_or_default()
}

/// Waits until a pod is bound, and gives the node.
pub(crate) fn until_bound(cluster: &Cluster, pod: &str) -> String {
    cluster
        .until(&format!("pod {pod} bound"), |it| {
            Some(node_of(it, pod)).filter(|node| !node.is_empty())
        })
        .unwrap()
}

/// Waits until a pod's condition says why it waits, and gives that.
pub(crate) fn until_told(cluster: &Cluster, pod: &str) -> String {
    let path = "jsonpath={.status.conditions[?(@.type==\"hotpot.dev/Placed\")].message}";
    let told = |it: &Cluster| {
        it.kubectl(&["get", "pod", pod, "-o", path]).ok().filter(|text| !text.is_empty())
    };
    cluster.until(&format!("why {pod} waits"), told).unwrap()
}
