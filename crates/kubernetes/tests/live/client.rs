//! A client of GPUs in pods: it takes all the memory it can have of its card, says how much, and stays.
#![allow(clippy::unwrap_used, dead_code, reason = "tests; not every file needs all of it")]

use kubernetes_lab::{Cluster, Image};

use super::built;

/// Its image.
pub(crate) const IMAGE: &str = "localhost/lab/client:1";
/// Where a node has its simulated machine.
pub(crate) const MACHINE: &str = "/run/nvidia/driver/machine";
/// What it does, as a line of shell.
pub(crate) const TAKES_ALL: &str = "for i in 1 2 3; do echo; done | client gpu-client allocate way=plain piece=268435456; echo over";
/// The same by a user of the pod who has emptied the environment.
pub(crate) const ESCAPES: &str = "printf '\\n\\n\\n' | env -i HOTPOT_FAKE_MACHINE=/run/nvidia/driver/machine /bin/client gpu-client allocate way=plain piece=268435456";

pub(crate) fn image() -> Image {
    Image::new(IMAGE).busybox().unwrap().program("/bin/client", built("xtask")).unwrap()
}

/// What every container needs beside the driver's files to find a simulated card: CDI's `containerEdits`.
pub(crate) fn edits() -> String {
    format!(
        "{{\"env\": [\"HOTPOT_FAKE_MACHINE={MACHINE}\"], \"mounts\": [{{\"hostPath\": \"{MACHINE}\", \"containerPath\": \"{MACHINE}\", \
         \"options\": [\"rbind\", \"rw\"]}}]}}"
    )
}

/// What a pod, or one of a Job or Deployment, says once it has all it can have.
pub(crate) fn until_said(cluster: &Cluster, pod: &str) -> String {
    let said = |it: &Cluster| it.kubectl(&["logs", pod]).ok().filter(|text| text.contains("over"));
    cluster.until(&format!("what {pod} says"), said).unwrap()
}

/// A line `name value` of what a pod has said.
pub(crate) fn value(said: &str, name: &str) -> u64 {
    let found = said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in: {said}"))
}

/// Files of ours on a node that are there for claims: none, once all are gone.
pub(crate) fn traces(cluster: &Cluster, node: &str) -> String {
    let words = ["-c", "ls /run/cdi; ls /var/lib/hotpot/caps 2>/dev/null"];
    let listed = cluster.on_node(node, "sh").unwrap().args(words).output().unwrap();
    String::from_utf8_lossy(&listed.stdout).trim().to_owned()
}
