//! What a container runtime adds to a container that has a claim, as a file of the Container Device Interface: one for
//! each claim, with one device in it for each device of the claim.
//!
//! Edits of a device are its own device nodes; all else is of the claim, and is applied once whichever of its devices
//! a container names. `CUDA_VISIBLE_DEVICES` names all devices of a claim, and so is left out where a container may
//! have only some of them and device nodes keep it to those.
//!
//! The limiter is loaded by `/etc/ld.so.preload` and not by `LD_PRELOAD`: a container that sets that variable itself,
//! as many do for their allocator, would take the limiter's place, and one that clears it would have no caps. The
//! file is mounted for reading, as the caps are, so that nothing in a container without privileges changes them. Where
//! it does not hold: the loader of musl does not read the file (nor would it load a library for glibc; with
//! `LD_PRELOAD` its programs would not even start), a program that is linked statically loads nothing, and an image
//! with a C library older than the limiter's goes on without it after a line of the loader's. CUDA programs are none
//! of the first two, as the driver's own libraries are made for glibc and are loaded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

/// Vendor and class.
pub const KIND: &str = "hotpot.dev/gpu";
/// The first version with all that is used here: device names that begin with a digit, and host paths of device nodes.
const VERSION: &str = "0.5.0";
/// What our files' names begin with.
const PREFIX: &str = "hotpot-";
const MODE: u32 = 0o644;
/// The file by which the loader of glibc learns of libraries that go first (ld.so(8)).
pub const PRELOAD: &str = "/etc/ld.so.preload";

/// A CDI file cannot be written or removed.
#[derive(Debug, Error)]
#[error("{}: {source}; the container runtime is told of devices there: make the folder, or name another one", path.display())]
pub struct CdiError {
    /// The file.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

/// What is added to a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edits {
    /// `NAME=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Files and folders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// What else an administrator has added, as it is.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A device file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNode {
    /// Where the container finds it.
    pub path: String,
    /// Where it is on the machine, if elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// What else is said of it.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A file or folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Where it is on the machine.
    pub host_path: String,
    /// Where the container finds it.
    pub container_path: String,
    /// As of mount(8).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// What else is said of it.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Mount {
    /// Something to be read.
    pub fn read(host: impl Into<String>, container: impl Into<String>) -> Self {
        Self::new(host.into(), container.into(), "ro")
    }

    /// Something to be written to.
    pub fn write(host: impl Into<String>, container: impl Into<String>) -> Self {
        Self::new(host.into(), container.into(), "rw")
    }

    fn new(host_path: String, container_path: String, access: &str) -> Self {
        let options = [access, "nosuid", "nodev", "rbind", "rprivate"].map(str::to_owned).into();
        Self { host_path, container_path, options, more: Map::new() }
    }
}

impl Edits {
    /// These and others.
    pub fn extend(&mut self, other: Self) {
        self.env.extend(other.env);
        self.device_nodes.extend(other.device_nodes);
        self.mounts.extend(other.mounts);
        self.more.extend(other.more);
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device<'a>>,
    #[serde(skip_serializing_if = "Edits::is_empty")]
    container_edits: &'a Edits,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device<'a> {
    name: String,
    container_edits: &'a Edits,
}

/// What the kubelet calls a device of a claim.
pub fn id(uid: &str, at: usize) -> String {
    format!("{KIND}={}", device(uid, at))
}

/// The claim whose device is called so; `None` if it is none of ours.
pub fn claim_of(id: &str) -> Option<&str> {
    let device = id.strip_prefix(KIND)?.strip_prefix('=')?;
    device.rsplit_once('-').map(|(uid, _)| uid)
}

fn device(uid: &str, at: usize) -> String {
    format!("{uid}-{at}")
}

/// The file's text.
///
/// * `claim` — edits of the claim; `devices` — of each of its devices.
pub fn text(uid: &str, claim: &Edits, devices: &[Edits]) -> String {
    // The specification wants a device to have some edit.
    let own = |at: usize| Edits {
        env: vec![format!("HOTPOT_DEVICE_{at}={}", device(uid, at))],
        ..Edits::default()
    };
    let filled: Vec<Edits> = devices
        .iter()
        .enumerate()
        .map(|(at, edits)| if edits.is_empty() { own(at) } else { edits.clone() })
        .collect();
    let devices = filled.iter().enumerate();
    let devices =
        devices.map(|(at, edits)| Device { name: device(uid, at), container_edits: edits });
    let spec = Spec {
        cdi_version: VERSION,
        kind: KIND,
        devices: devices.collect(),
        container_edits: claim,
    };
    // Nothing in it can fail to be written: all keys are texts.
    serde_json::to_string_pretty(&spec).unwrap_or_default() + "\n"
}

/// The folder of such files.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// * `path` — made when the first file is written.
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.0.join(format!("{PREFIX}{uid}.json"))
    }

    /// Writes a claim's file, unless it says so already.
    ///
    /// # Errors
    /// [`CdiError`].
    pub fn write(&self, uid: &str, text: &str) -> Result<(), CdiError> {
        let path = self.path(uid);
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(());
        }
        let made = fs::create_dir_all(&self.0).and_then(|()| node::whole::write(&path, text, MODE));
        made.map_err(|source| CdiError { path, source })
    }

    /// Whether a claim has a file here.
    pub fn has(&self, uid: &str) -> bool {
        self.path(uid).exists()
    }

    /// Removes a claim's file; that there is none is fine.
    ///
    /// # Errors
    /// [`CdiError`].
    pub fn remove(&self, uid: &str) -> Result<(), CdiError> {
        let path = self.path(uid);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(CdiError { path, source })
            }
            _ => Ok(()),
        }
    }

    /// UIDs of the claims that have a file here.
    pub fn claims(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let uid = |name: String| Some(name.strip_prefix(PREFIX)?.strip_suffix(".json")?.to_owned());
        entries.filter_map(|entry| uid(entry.file_name().into_string().ok()?)).collect()
    }
}

#[cfg(test)]
mod tests;
