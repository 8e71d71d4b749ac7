//! Images without a registry: files of this host as an archive that containerd imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use lab_base::{LabError, at};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// What an image contains and starts.
#[derive(Clone, Debug, Default)]
pub struct Image {
    name: String,
    entrypoint: Vec<String>,
    env: Vec<String>,
    /// Path in the image, path here.
    files: BTreeMap<PathBuf, PathBuf>,
    /// Path in the image, what it leads to.
    links: BTreeMap<PathBuf, PathBuf>,
}

impl Image {
    /// An empty image.
    ///
    /// * `name` — with its tag: `localhost/lab/work:1`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// What a container of it runs unless it says otherwise.
    #[must_use]
    pub fn entrypoint(mut self, words: &[&str]) -> Self {
        self.entrypoint = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// A variable of its containers.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push(format!("{name}={value}"));
        self
    }

    /// A file of this host.
    #[must_use]
    pub fn file(mut self, path: &str, here: impl Into<PathBuf>) -> Self {
        self.files.insert(path.into(), here.into());
        self
    }

    /// A symbolic link.
    #[must_use]
    pub fn link(mut self, path: &str, to: &str) -> Self {
        self.links.insert(path.into(), to.into());
        self
    }

    /// A program of this host with the libraries that it is linked with, each where it is here.
    ///
    /// # Errors
    /// `ldd` cannot be run.
    pub fn program(self, path: &str, here: impl Into<PathBuf>) -> Result<Self, LabError> {
        let here = here.into();
        let said = Command::new("ldd").arg(&here).output();
        let said =
            said.map_err(|error| LabError::Failed { line: "ldd".into(), why: error.to_string() })?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let mut image = self.file(path, here);
        for library in text.lines().filter_map(library) {
            image.files.insert(library.clone(), library);
        }
        Ok(image)
    }

    /// A static busybox, and links for all of its commands.
    ///
    /// # Errors
    /// There is none here.
    pub fn busybox(self) -> Result<Self, LabError> {
        let here =
            ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
        let here = here.ok_or_else(|| {
            LabError::Options("there is no busybox: apt-get install busybox-static".into())
        })?;
        let said = Command::new(here).arg("--list").output();
        let said =
            said.map_err(|error| LabError::Failed { line: here.into(), why: error.to_string() })?;
        let mut image = self.file("/bin/busybox", here);
        for name in String::from_utf8_lossy(&said.stdout)
            .split_whitespace()
            .filter(|name| *name != "busybox")
        {
            image = image.link(&format!("/bin/{name}"), "busybox");
        }
        Ok(image)
    }

    /// Writes the archive, in the OCI image layout.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn write(&self, to: &Path) -> Result<(), LabError> {
        let layer = self.layer().map_err(at(to))?;
        let diff = digest(&layer);
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Env": self.env},
            "rootfs": {"type": "layers", "diff_ids": [diff]},
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config), "layers": [descriptor(LAYER, &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut named = descriptor(MANIFEST, &manifest);
        named["annotations"] = json!({"io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": self.name});
        let index = json!({"schemaVersion": 2, "manifests": [named]}).to_string().into_bytes();
        let write = || -> std::io::Result<()> {
            let mut archive = tar::Builder::new(std::fs::File::create(to)?);
            put(
                &mut archive,
                Path::new("oci-layout"),
                br#"{"imageLayoutVersion": "1.0.0"}"#,
                0o644,
            )?;
            put(&mut archive, Path::new("index.json"), &index, 0o644)?;
            for blob in [&config, &manifest, &layer] {
                let path = format!("blobs/{}", digest(blob).replace(':', "/"));
                put(&mut archive, Path::new(&path), blob, 0o644)?;
            }
            archive.finish()
        };
        write().map_err(at(to))
    }

    /// The image's files as an archive; the same files give the same bytes.
    fn layer(&self) -> std::io::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for folder in self.folders() {
            let mut header = header(
                0,
                if folder.ends_with("tmp") { 0o1777 } else { 0o755 },
                tar::EntryType::Directory,
            );
            archive.append_data(&mut header, relative(&folder), std::io::empty())?;
        }
        for (path, here) in &self.files {
            let bytes = std::fs::read(here).map_err(|error| {
                std::io::Error::new(error.kind(), format!("{}: {error}", here.display()))
            })?;
            put(&mut archive, relative(path), &bytes, 0o755)?;
        }
        for (path, to) in &self.links {
            let mut header = header(0, 0o777, tar::EntryType::Symlink);
            archive.append_link(&mut header, relative(path), to)?;
        }
        archive.into_inner()
    }

    /// All folders, those above first.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let paths = self.files.keys().chain(self.links.keys());
        let above =
            paths.flat_map(|path| path.ancestors().skip(1)).filter(|path| *path != Path::new("/"));
        let usual = ["/tmp", "/etc", "/proc", "/sys", "/dev", "/run"].map(PathBuf::from);
        above.map(Path::to_owned).chain(usual).collect()
    }
}

/// The path of a library in a line of ldd.
fn library(line: &str) -> Option<PathBuf> {
    let word = match line.split_once("=>") {
        Some((_, found)) => found.split_whitespace().next()?,
        None => line.split_whitespace().next()?,
    };
    word.starts_with('/').then(|| PathBuf::from(word))
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn header(size: usize, mode: u32, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn put<W: std::io::Write>(
    archive: &mut tar::Builder<W>,
    path: &Path,
    bytes: &[u8],
    mode: u32,
) -> std::io::Result<()> {
    archive.append_data(&mut header(bytes.len(), mode, tar::EntryType::Regular), path, bytes)
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
}

/// This host's, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
