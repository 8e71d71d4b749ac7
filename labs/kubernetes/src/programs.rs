//! Where Kubernetes' programs come from: built once from published Go modules, whose versions and sums lie in `programs/`, into the
//! target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lab_base::{Claim, LabError, at, packages};
use sha2::{Digest, Sha256};

/// What kubelet, kube-proxy and network plugins call, and what images are made of.
const PACKAGES: &[&str] = &["runc", "iproute2", "iptables", "conntrack", "busybox-static"];
/// How long another lab may build: 1,300 s of CPU time on a machine with nothing built.
const TURN: Duration = Duration::from_secs(3600);
/// Kubernetes' version, as the programs tell it.
pub(crate) const VERSION: &str = "1.36.3";
/// Names under which the one program of Kubernetes is called.
const NAMES: [&str; 7] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
];

/// The folder of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs(PathBuf);

impl Programs {
    /// Finds them, or builds them, which takes minutes.
    pub(crate) fn get() -> Result<Self, LabError> {
        let programs = Self(target()?.join("kubernetes").join(fingerprint()?));
        if programs.0.exists() {
            return Ok(programs);
        }
        let _turn = Claim::wait("kubernetes-programs", TURN)?;
        if !programs.0.exists() {
            programs.build()?;
        }
        Ok(programs)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Into a folder beside it first: what is there is whole.
    fn build(&self) -> Result<(), LabError> {
        let partial = self.0.with_extension("partial");
        let _ = fs::remove_dir_all(&partial);
        fs::create_dir_all(&partial).map_err(at(&partial))?;
        kubernetes(&partial)?;
        for folder in ["containers", "helm"] {
            go(&sources(folder), &["-o", &format!("{}/", partial.display()), "tool"])?;
        }
        fs::rename(&partial, &self.0).map_err(at(&self.0))
    }
}

/// Installs what a lab needs and builds its programs; what was done, in words, nothing if all was there.
///
/// # Errors
/// No Go, no Debian, not root, or something cannot be built.
pub fn install() -> Result<Vec<String>, LabError> {
    let installed = packages::install(PACKAGES)?;
    let mut done: Vec<String> =
        installed.into_iter().map(|name| format!("installed {name}")).collect();
    let known = Command::new("go").arg("version").stdin(Stdio::null()).output();
    if !known.is_ok_and(|known| known.status.success()) {
        let why =
            "there is no `go` in PATH; Kubernetes' programs are built from its modules".to_owned();
        return Err(LabError::Packages { missing: "go".into(), why });
    }
    let before = target()?.join("kubernetes").join(fingerprint()?).exists();
    let programs = Programs::get()?;
    if !before {
        done.push(format!("built Kubernetes {VERSION} into {}", programs.0.display()));
    }
    Ok(done)
}

/// Whether a test can have a cluster here. Installs and builds what is missing; where that cannot be, it says by the
/// test's name that this is skipped.
///
/// # Panics
/// What is wrong is not that something cannot be had.
pub fn can_be_had(test: &str) -> bool {
    packages::can_be_had(test, install())
}

/// Kubernetes and etcd, and the names by which they are called.
fn kubernetes(folder: &Path) -> Result<(), LabError> {
    let set = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    let mut parts = VERSION.split('.');
    let flags = [
        "-s -w".to_owned(),
        set("gitVersion", &format!("v{VERSION}")),
        set("gitMajor", parts.next().unwrap_or_default()),
        set("gitMinor", parts.next().unwrap_or_default()),
    ];
    let out = folder.join("kube");
    go(&sources("kube"), &["-ldflags", &flags.join(" "), "-o", &out.display().to_string(), "."])?;
    for name in NAMES {
        let link = folder.join(name);
        std::os::unix::fs::symlink("kube", &link).map_err(at(&link))?;
    }
    Ok(())
}

/// Runs `go build` on a machine that may have no C compiler.
fn go(folder: &Path, words: &[&str]) -> Result<(), LabError> {
    let mut command = Command::new("go");
    command
        .args(["build", "-trimpath", "-buildvcs=false"])
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null());
    command.env("CGO_ENABLED", "0");
    let line = lab_base::process::line(&command);
    let done = command.output();
    let done =
        done.map_err(|error| LabError::Failed { line: line.clone(), why: error.to_string() })?;
    if done.status.success() {
        return Ok(());
    }
    Err(LabError::Failed { line, why: String::from_utf8_lossy(&done.stderr).trim().to_owned() })
}

fn sources(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Another one for each state of the sources and of how they are built.
fn fingerprint() -> Result<String, LabError> {
    let mut hasher = Sha256::new();
    hasher.update(include_str!("programs.rs"));
    for name in [
        "kube/main.go",
        "kube/go.mod",
        "kube/go.sum",
        "containers/go.mod",
        "containers/go.sum",
        "helm/go.mod",
        "helm/go.sum",
    ] {
        let path = sources(name);
        hasher.update(fs::read(&path).map_err(at(&path))?);
    }
    Ok(hasher.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}

/// Cargo's target folder, which this program lies in.
fn target() -> Result<PathBuf, LabError> {
    let program = std::env::current_exe().map_err(at(Path::new("/proc/self/exe")))?;
    let found = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    found
        .map(Path::to_owned)
        .ok_or_else(|| LabError::Options("this program lies in no target folder of cargo's".into()))
}
