//! The plugin's two sockets: one in the folder that the kubelet watches, by which it learns of the other.
//!
//! Each plugin has its own two, named after its pod or process, so that during an upgrade the old one serves until the
//! new one does. A kubelet that starts anew finds all sockets in its folder by itself, and asks again.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::UnixListener;
use tokio::sync::Notify;

use super::Notice;
use super::greeting::greet;
use super::proto::registration::{PluginInfo, RegistrationStatus};
use crate::names;

/// What the kubelet calls plugins of our kind.
const TYPE: &str = "DRAPlugin";
/// Its protocols that are served, the newest first: the kubelet takes the first that it knows, and passes over others.
const SERVICES: [&str; 3] = ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"];
/// In the kubelet's folder: where it looks for plugins, and where they keep their own sockets.
const REGISTRY: &str = "plugins_registry";
const PLUGINS: &str = "plugins";
const REGISTRATION_ENDING: &str = "-reg.sock";
/// How long a connection of the kubelet may last: it has two calls to make.
const GREETING_MAX: Duration = Duration::from_secs(60);
/// Longest address of a socket (unix(7), with the zero at its end).
const ADDRESS_MAX: usize = 107;

/// A socket cannot be had.
#[derive(Debug, Error)]
pub enum SocketError {
    /// The system.
    #[error("{}: {source}; is that the kubelet's folder, and may it be written to?", path.display())]
    File {
        /// The socket or its folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Its name is too long.
    #[error("{}: the address of a socket has at most {ADDRESS_MAX} letters; use a shorter folder", .0.display())]
    Long(PathBuf),
}

/// A socket that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
}

impl Socket {
    /// Listens; one that was left at the place is removed.
    pub(super) fn listen(path: PathBuf) -> Result<(Self, UnixListener), SocketError> {
        if path.as_os_str().len() > ADDRESS_MAX {
            return Err(SocketError::Long(path));
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        let made = fs::create_dir_all(folder).and_then(|()| absent(fs::remove_file(&path)));
        match made.and_then(|()| UnixListener::bind(&path)) {
            Ok(listener) => Ok((Self { path }, listener)),
            Err(source) => Err(SocketError::File { path, source }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // One that stays is removed by the next plugin.
        let _left = fs::remove_file(&self.path);
    }
}

fn absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Places of a plugin's sockets.
pub(super) struct Places {
    folder: PathBuf,
    instance: String,
}

impl Places {
    /// * `kubelet` — its folder; `instance` — the plugin's pod or process.
    pub(super) fn new(kubelet: &Path, instance: &str) -> Self {
        Self { folder: kubelet.to_owned(), instance: instance.to_owned() }
    }

    pub(super) fn plugin(&self) -> PathBuf {
        self.folder.join(PLUGINS).join(names::DRIVER).join(format!("{}.sock", self.instance))
    }

    pub(super) fn registration(&self) -> PathBuf {
        let name = format!("{}-{}{REGISTRATION_ENDING}", names::DRIVER, self.instance);
        self.folder.join(REGISTRY).join(name)
    }

    /// Removes sockets of ours at which nobody listens: those who did were killed, and the kubelet would go on asking
    /// there.
    pub(super) fn sweep(&self) {
        let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let ours = format!("{}-", names::DRIVER);
        let registry = entries(self.folder.join(REGISTRY));
        let registry =
            registry.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours));
        let own = entries(self.folder.join(PLUGINS).join(names::DRIVER));
        for path in registry.chain(own).map(|entry| entry.path()) {
            let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if Probe::connect(&path).is_err_and(refused) {
                // What cannot be removed is no worse than before.
                let _left = fs::remove_file(&path);
            }
        }
    }
}

/// Tells the kubelet of the plugin.
#[derive(Clone)]
pub(super) struct Registrar {
    /// The plugin's own socket.
    pub(super) endpoint: PathBuf,
    /// Told when the kubelet has taken it: it may have removed our slices.
    pub(super) registered: Arc<Notify>,
    pub(super) notice: Notice,
}

impl Registrar {
    /// Serves all who come.
    ///
    /// # Errors
    /// Nobody can come any more.
    pub(super) async fn serve(self, listener: UnixListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let registrar = self.clone();
            tokio::spawn(async move {
                let info = registrar.info();
                // Who speaks something else is no kubelet, or one that ends.
                let met = greet(stream, &info, |status| registrar.note(&status));
                let _in_time = tokio::time::timeout(GREETING_MAX, met).await;
            });
        }
    }

    fn info(&self) -> PluginInfo {
        PluginInfo {
            r#type: TYPE.to_owned(),
            name: names::DRIVER.to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: SERVICES.map(str::to_owned).to_vec(),
        }
    }

    fn note(&self, status: &RegistrationStatus) {
        if status.plugin_registered {
            self.registered.notify_one();
        } else {
            (self.notice)(&format!("the kubelet does not take the plugin: {}", status.error));
        }
    }
}
