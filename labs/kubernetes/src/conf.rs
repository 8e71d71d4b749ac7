//! What the daemons are told: words on their command lines and the files they read.
//!
//! Flags and keys are those of Kubernetes' reference and of containerd's; the remarks say what was found out with Kubernetes 1.36 and
//! containerd 2.1 on a host with cgroup v1, without systemd and without CAP_SYS_RESOURCE.

use lab_base::Place;

use crate::keys;
use crate::options::Options;
use crate::programs::Programs;

/// The API server's address in the cluster's network.
pub(crate) const API_ADDRESS: &str = "10.200.0.1";
/// Its port.
pub(crate) const API_PORT: u16 = 6443;
/// The service `kubernetes`: the first address of [`SERVICES`].
pub(crate) const SERVICE_ADDRESS: &str = "10.96.0.1";
const SERVICES: &str = "10.96.0.0/16";
const PODS: &str = "10.222.0.0/16";
const ETCD: &str = "http://127.0.0.1:2379";
const ETCD_PEERS: &str = "http://127.0.0.1:2380";
/// What containers are started in before they are: it only waits.
pub(crate) const PAUSE: &str = "localhost/lab/pause:1";

/// The address of the node with an index, counted from 0.
pub(crate) fn node_address(index: usize) -> String {
    format!("10.200.0.{}", index + 10)
}

/// A path in the cluster's folder, as a word.
fn word(place: &Place, name: &str) -> String {
    place.path(name).display().to_string()
}

fn key(place: &Place, name: &str) -> String {
    keys::path(place, name).display().to_string()
}

fn words(fixed: &[&str], made: Vec<String>) -> Vec<String> {
    fixed.iter().map(|word| (*word).to_owned()).chain(made).collect()
}

/// Durability is of no use to a lab: nothing is flushed to disk.
pub(crate) fn etcd(place: &Place) -> Vec<String> {
    let made = vec![
        format!("--data-dir={}", word(place, "state/etcd")),
        format!("--listen-client-urls={ETCD}"),
        format!("--advertise-client-urls={ETCD}"),
        format!("--listen-peer-urls={ETCD_PEERS}"),
        format!("--initial-advertise-peer-urls={ETCD_PEERS}"),
        format!("--initial-cluster=default={ETCD_PEERS}"),
    ];
    words(&["--unsafe-no-fsync", "--log-level=warn"], made)
}

/// Webhooks and aggregated servers are reached at their pods, so that the server needs no service addresses.
pub(crate) fn apiserver(place: &Place, options: &Options) -> Vec<String> {
    let fixed = [
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-aggregator-routing=true",
        "--bind-address=0.0.0.0",
        "--kubelet-preferred-address-types=InternalIP",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        "--service-account-issuer=https://kubernetes.default.svc",
    ];
    let made = vec![
        format!("--etcd-servers={ETCD}"),
        format!("--advertise-address={API_ADDRESS}"),
        format!("--secure-port={API_PORT}"),
        format!("--service-cluster-ip-range={SERVICES}"),
        format!("--client-ca-file={}", key(place, "ca.crt")),
        format!("--tls-cert-file={}", key(place, "apiserver.crt")),
        format!("--tls-private-key-file={}", key(place, "apiserver.key")),
        format!("--kubelet-client-certificate={}", key(place, "apiserver-client.crt")),
        format!("--kubelet-client-key={}", key(place, "apiserver-client.key")),
        format!("--proxy-client-cert-file={}", key(place, "front.crt")),
        format!("--proxy-client-key-file={}", key(place, "front.key")),
        format!("--requestheader-client-ca-file={}", key(place, "front-ca.crt")),
        format!("--service-account-key-file={}", key(place, "accounts.pub")),
        format!("--service-account-signing-key-file={}", key(place, "accounts.key")),
    ];
    [words(&fixed, made), options.apiserver.clone()].concat()
}

/// The words that every client of the API server is told.
fn client(place: &Place, file: &str) -> String {
    format!("--kubeconfig={}", word(place, &keys::kubeconfig(file)))
}

pub(crate) fn scheduler(place: &Place, options: &Options) -> Vec<String> {
    let fixed = ["--leader-elect=false", "--bind-address=127.0.0.1"];
    let given = options.scheduler.clone();
    // A configuration names the client itself.
    let client = if given.iter().any(|word| word.starts_with("--config")) {
        Vec::new()
    } else {
        vec![client(place, "scheduler")]
    };
    [words(&fixed, client), given].concat()
}

pub(crate) fn controllers(place: &Place, options: &Options) -> Vec<String> {
    let fixed = [
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--use-service-account-credentials=true",
        "--controllers=*,-node-ipam-controller,-node-route-controller,-cloud-node-lifecycle-controller",
    ];
    let made = vec![
        client(place, "controllers"),
        format!("--root-ca-file={}", key(place, "ca.crt")),
        format!("--service-account-private-key-file={}", key(place, "accounts.key")),
        format!("--requestheader-client-ca-file={}", key(place, "front-ca.crt")),
        format!("--client-ca-file={}", key(place, "ca.crt")),
    ];
    [words(&fixed, made), options.controllers.clone()].concat()
}

/// All nodes are in one network, so one of it serves them all. What goes to a service comes back through the host, as pods
/// of one bridge would answer each other past it.
pub(crate) fn proxy(place: &Place) -> Vec<String> {
    let fixed = [
        "--proxy-mode=iptables",
        "--masquerade-all=true",
        "--hostname-override=n1",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
        "--metrics-bind-address=127.0.0.1:10249",
        "--healthz-bind-address=127.0.0.1:10256",
    ];
    words(&fixed, vec![client(place, "proxy"), format!("--cluster-cidr={PODS}")])
}

pub(crate) fn kubelet(place: &Place, node: &str, index: usize) -> Vec<String> {
    vec![
        format!("--config={}", word(place, &format!("etc/{node}/kubelet.yaml"))),
        client(place, node),
        format!("--hostname-override={node}"),
        format!("--node-ip={}", node_address(index)),
        "--cert-dir=/run/kubelet-keys".into(),
    ]
}

/// cgroup v1 is refused by default from 1.35; a score below 0 needs CAP_SYS_RESOURCE.
pub(crate) fn kubelet_yaml(place: &Place, node: &str, index: usize, cgroup: &str) -> String {
    let (ca, address) = (key(place, "ca.crt"), node_address(index));
    let pods_max = 250;
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         failCgroupV1: false\ncgroupDriver: cgroupfs\ncgroupRoot: /{cgroup}/{node}\n\
         containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n\
         address: {address}\nhealthzBindAddress: {address}\noomScoreAdj: 0\nfailSwapOn: false\nmaxPods: {pods_max}\n\
         evictionHard: {{memory.available: 50Mi, nodefs.available: \"0%\", imagefs.available: \"0%\"}}\n\
         imageGCHighThresholdPercent: 100\nresolvConf: \"\"\nregisterNode: true\n\
         nodeStatusUpdateFrequency: 4s\nnodeStatusReportFrequency: 10s\n\
         authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {ca}}}}}\n\
         authorization: {{mode: Webhook}}\nserializeImagePulls: false\n"
    )
}

/// The score must be restricted, and the snapshotters that need kernel modules are left out.
pub(crate) fn containerd_toml(place: &Place, programs: &Programs, node: &str) -> String {
    let root = word(place, &format!("state/{node}/containerd"));
    let cni = word(place, &format!("etc/{node}/cni"));
    let bin = programs.folder().display();
    let snapshotters = ["blockfile", "btrfs", "devmapper", "erofs", "zfs"];
    let disabled =
        snapshotters.map(|name| format!("'io.containerd.snapshotter.v1.{name}'")).join(", ");
    format!(
        "version = 3\nroot = '{root}'\nstate = '/run/containerd'\ndisabled_plugins = [{disabled}]\n\
         [grpc]\naddress = '/run/containerd/containerd.sock'\n\
         [plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = '{PAUSE}'\n\
         [plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = true\ncdi_spec_dirs = ['/var/run/cdi']\nrestrict_oom_score_adj = true\n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nBinaryName = 'runc'\nSystemdCgroup = false\n\
         [plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['{bin}']\nconf_dir = '{cni}'\n"
    )
}

/// Pods of a node hang on a bridge of their own.
pub(crate) fn cni(node: &str, index: usize) -> String {
    format!(
        "{{\"cniVersion\": \"1.0.0\", \"name\": \"lab\", \"plugins\": [\n\
         {{\"type\": \"bridge\", \"bridge\": \"pods-{node}\", \"isGateway\": true, \"hairpinMode\": true,\n \
         \"ipam\": {{\"type\": \"host-local\", \"ranges\": [[{{\"subnet\": \"10.222.{index}.0/24\"}}]],\n  \
         \"routes\": [{{\"dst\": \"0.0.0.0/0\"}}], \"dataDir\": \"/run/cni\"}}}},\n\
         {{\"type\": \"portmap\", \"capabilities\": {{\"portMappings\": true}}}}]}}\n"
    )
}
