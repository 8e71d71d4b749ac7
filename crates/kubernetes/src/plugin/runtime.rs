//! Whether the container runtime would pass over the devices that it is asked for, without a word: containerd does so
//! before 1.7, and in 1.7 unless it is told otherwise.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Mutex;
use tonic::transport::Endpoint;

use super::Notice;
use super::proto::cri::runtime_service_client::RuntimeServiceClient;
use super::proto::cri::{StatusRequest, VersionRequest};

const CONTAINERD: &str = "containerd";
/// The first release that knows CDI, and the first that has it switched on by itself.
const KNOWS: (u32, u32) = (1, 7);
const HAS: (u32, u32) = (2, 0);
/// How long a runtime may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is known of the container runtime.
#[derive(Clone, Debug, Default)]
pub struct Runtime {
    dropped: Option<Arc<str>>,
}

/// A container runtime that is asked again as long as it drops devices: it may be set up anew meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    socket: Option<Arc<Path>>,
    known: Arc<Mutex<Runtime>>,
}

impl Watched {
    /// Asks it for the first time.
    ///
    /// * `socket` — of its CRI, if it is to be asked at all.
    pub(super) async fn new(socket: Option<&Path>, notice: Notice) -> Self {
        let Some(socket) = socket else { return Self::default() };
        let runtime = Runtime::ask(socket).await;
        for news in [
            runtime.as_ref().err().cloned(),
            runtime.as_ref().ok().and_then(Runtime::drops_devices),
        ] {
            news.iter().for_each(|news| notice(news));
        }
        let known = Arc::new(Mutex::new(runtime.unwrap_or_default()));
        Self { socket: Some(socket.into()), known }
    }

    /// Why a container would not get its devices; `None` if it would, as far as is known.
    pub(super) async fn drops_devices(&self) -> Option<String> {
        let mut known = self.known.lock().await;
        if let (Some(_), Some(socket)) = (known.drops_devices(), &self.socket)
            && let Ok(again) = Runtime::ask(socket).await
        {
            *known = again;
        }
        known.drops_devices()
    }
}

#[derive(Default, Deserialize)]
struct Config {
    #[serde(rename = "enableCDI")]
    enable_cdi: Option<bool>,
}

impl Runtime {
    /// Asks it. One that does not answer is not known, and nothing is said of it.
    ///
    /// * `socket` — of its CRI.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn ask(socket: &Path) -> Result<Self, String> {
        let asked = tokio::time::timeout(PATIENCE, Self::asked(socket)).await;
        let asked = asked.unwrap_or_else(|_| Err("it takes too long".to_owned()));
        asked.map_err(|why| format!("the container runtime at {}: {why}", socket.display()))
    }

    async fn asked(socket: &Path) -> Result<Self, String> {
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()));
        let channel = endpoint.map_err(|error| error.to_string())?.connect().await;
        let channel = channel.map_err(|error| cause(&error))?;
        let mut client = RuntimeServiceClient::new(channel);
        let version = client.version(VersionRequest::default()).await;
        let version = version.map_err(|status| status.to_string())?.into_inner();
        let status = client.status(StatusRequest { verbose: true }).await;
        let info = status.map(|status| status.into_inner().info).unwrap_or_default();
        let config = info.get("config").map_or("", String::as_str);
        Ok(Self::judged(&version.runtime_name, &version.runtime_version, config))
    }

    /// * `config` — its settings as JSON, as far as it tells them.
    fn judged(name: &str, version: &str, config: &str) -> Self {
        let who = format!("{name} {version}");
        let config: Config = serde_json::from_str(config).unwrap_or_default();
        let why = match numbers(version) {
            _ if name != CONTAINERD => None,
            Some(version) if version < KNOWS => Some("knows no CDI; use containerd 1.7.2 or later"),
            Some(version) if version < HAS && config.enable_cdi != Some(true) => {
                Some("has CDI switched off; set `enable_cdi = true` in its config.toml")
            }
            _ if config.enable_cdi == Some(false) => {
                Some("has CDI switched off; remove `enable_cdi = false` from its config.toml")
            }
            _ => None,
        };
        let dropped = why.map(|why| {
            format!("{who} would start containers without the devices that they claim, and without a word: it {why}")
        });
        Self { dropped: dropped.map(Arc::from) }
    }

    /// Why a container would not get its devices; `None` if it would, as far as is known.
    pub fn drops_devices(&self) -> Option<String> {
        self.dropped.as_deref().map(str::to_owned)
    }
}

/// The first cause of an error: what the transport says by itself says nothing.
pub(crate) fn cause(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map_or_else(String::new, ToString::to_string)
}

/// The first two numbers of a version such as `v1.7.24` or `2.1.9+ds1`.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let number = |part: Option<&str>| {
        let digits: String = part?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    Some((number(parts.next())?, number(parts.next())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_runtime_that_surely_drops_devices_is_said_to() {
        for (name, version, config, drops) in [
            ("containerd", "1.6.20~ds1", "", true),
            ("containerd", "v1.7.24", "", true),
            ("containerd", "v1.7.24", r#"{"enableCDI": true, "other": 1}"#, false),
            ("containerd", "v1.7.24", r#"{"enableCDI": false}"#, true),
            ("containerd", "2.1.9+ds1", "", false),
            ("containerd", "v2.0.0", r#"{"enableCDI": false}"#, true),
            ("containerd", "unknown", "no json", false),
            ("cri-o", "1.30.0", "", false),
        ] {
            let runtime = Runtime::judged(name, version, config);
            assert_eq!(runtime.drops_devices().is_some(), drops, "{name} {version} {config}");
        }
    }
}
