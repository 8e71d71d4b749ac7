//! hotpot's chart: where it lies, and how it is installed into a cluster of the lab.
#![allow(clippy::unwrap_used, dead_code, reason = "tests; not every file needs all of it")]

use std::path::PathBuf;
use std::process::Command;

use kubernetes_lab::{Cluster, Image};

use super::built;

/// hotpot's own image in the lab.
pub(crate) const IMAGE: &str = "localhost/lab/hotpot:1";
/// Where hotpot is installed.
pub(crate) const NAMESPACE: &str = "hotpot";

/// A file of the project.
pub(crate) fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

pub(crate) fn chart() -> PathBuf {
    file("deploy/chart/hotpot")
}

/// Runs a program to its end; what it printed, or else what went wrong.
pub(crate) fn said(command: &mut Command) -> Result<String, String> {
    let done = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

/// The image that `deploy/Dockerfile` makes, of what was built here.
pub(crate) fn image() -> Image {
    // The simulated driver takes its machine for granted at one place, on the node and in the agent.
    let machine = ["/run/nvidia/driver", "/host/run/nvidia/driver"];
    let image = Image::new(IMAGE).entrypoint(&["/usr/bin/hotpot"]).link(machine[0], machine[1]);
    let image = image.program("/usr/bin/hotpot", built("hotpot")).unwrap();
    let library = "libhotpot_limiter.so";
    image.program(&format!("/usr/lib/hotpot/{library}"), built(library)).unwrap()
}

/// Runs helm in a cluster, for hotpot's namespace.
pub(crate) fn helm(cluster: &Cluster, words: &[&str]) -> Result<String, String> {
    let mut command = cluster.command("helm");
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(name, cluster.folder().join("etc/helm"));
    }
    said(command.args(words).args(["--namespace", NAMESPACE]))
}
