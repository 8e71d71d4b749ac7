//! What a node has of its own: mounts, processes and a name; a simulated GPU machine; what its daemons read.

use std::fs;

use fake_machine::layout;
use lab_base::process::Process;
use lab_base::{LabError, Place, at, machine};

use crate::conf::{self, node_address};
use crate::namespaces;
use crate::options::Options;
use crate::programs::Programs;

/// Where a node's driver is, as where a driver container has installed it.
pub(crate) const DRIVER: &str = "/run/nvidia/driver";
/// The kubelet sets these for the whole machine; stand-ins keep the real ones as they are.
const SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Writes what a node's daemons read, and makes its GPUs.
pub(crate) fn make(
    place: &Place,
    options: &Options,
    programs: &Programs,
    (node, index): (&str, usize),
    cgroup: &str,
) -> Result<(), LabError> {
    let of_node = [
        "etc/NODE/cni",
        "state/NODE/lib",
        "state/NODE/work",
        "state/NODE/containerd",
        "machines/NODE",
    ];
    for folder in of_node {
        place.folder(&folder.replace("NODE", node))?;
    }
    place.write(
        &format!("etc/{node}/kubelet.yaml"),
        &conf::kubelet_yaml(place, node, index, cgroup),
        false,
    )?;
    place.write(
        &format!("etc/{node}/containerd.toml"),
        &conf::containerd_toml(place, programs, node),
        false,
    )?;
    place.write(&format!("etc/{node}/cni/10-lab.conflist"), &conf::cni(node, index), false)?;
    place.write(&format!("etc/{node}/node.sh"), &script(place, node, index), true)?;
    let machine = place.path(&format!("machines/{node}"));
    machine::make(&machine, &options.specs()?)?;
    layout::make_whole(&machine).map_err(at(&machine))
}

/// Makes a node's namespaces; gives their first process.
pub(crate) fn start(place: &Place, first: Process, node: &str) -> Result<Process, LabError> {
    let ready = place.path(&ready(node));
    let _ = fs::remove_file(&ready);
    let mut command = namespaces::in_all(first, "unshare");
    command.args([
        "--mount",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation",
        "private",
        "bash",
    ]);
    command.arg(place.path(&format!("etc/{node}/node.sh")));
    let log = place.path(&format!("log/{node}.log"));
    let process = namespaces::spawn(&mut command, &log)?;
    let failed = |why: String| LabError::Failed { line: format!("node {node}"), why };
    namespaces::wait_for(&failed, &log, || ready.exists().then_some(()))?;
    process.write(&place.path(&format!("run/{node}.process")))?;
    Ok(process)
}

fn ready(node: &str) -> String {
    format!("run/{node}.ready")
}

/// A node's first process. What it mounts is gone with it, as with a node that is switched off; what the kubelet and
/// containerd have on disk stays.
fn script(place: &Place, node: &str, index: usize) -> String {
    let path = |name: &str| place.path(name).display().to_string();
    let state = |name: &str| path(&format!("state/{node}/{name}"));
    let (lib, work, gpus) = (state("lib"), state("work"), path(&format!("machines/{node}")));
    let sysctls: String = SYSCTLS
        .iter()
        .map(|(name, value)| {
            let file = format!("/run/sysctl/{}", name.replace('/', "_"));
            format!("echo {value} > {file}\nmount --bind {file} /proc/sys/{name}\n")
        })
        .collect();
    let address = node_address(index);
    format!(
        "set -e\n\
         mount --make-rshared /\nmount -t tmpfs tmpfs /run\n\
         mkdir -p /run/containerd /run/cdi /run/netns /run/lock /run/sysctl {DRIVER}\n\
         hostname {node}\nip addr replace {address}/24 dev nodes\n\
         printf '127.0.0.1 localhost\\n{address} {node}\\n' > /run/hosts\n: > /run/resolv\n\
         mount --bind /run/hosts /etc/hosts\nmount --bind /run/resolv \"$(readlink -f /etc/resolv.conf)\"\n\
         {sysctls}\
         mount -t overlay overlay -o lowerdir=/var/lib,upperdir={lib},workdir={work} /var/lib\n\
         mount -t tmpfs tmpfs /var/log\n\
         mkdir -p /var/lib/kubelet /var/lib/hotpot /var/log/pods /var/log/containers\n\
         mount --bind /var/lib/kubelet /var/lib/kubelet\nmount --make-rshared /var/lib/kubelet\n\
         mount --rbind {gpus} {DRIVER}\n\
         : > {}\n\
         while :; do sleep 3600 & wait; done\n",
        path(&ready(node))
    )
}
