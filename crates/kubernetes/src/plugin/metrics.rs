//! Metrics of this node's cards and of the shares of its containers, served beside the kubelet's calls.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::{AgentError, MetricNames, Server};
use tokio::task::JoinHandle;

use super::Options;
use super::checkpoint::Checkpoint;
use super::occupants::Occupants;

/// Scrapes in quicker succession than this get the same sample.
const INTERVAL: Duration = Duration::from_secs(1);

/// How metrics are served.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Where they are.
    pub listen: SocketAddr,
    /// File with the bearer token that scrapers must show; needed off loopback.
    pub token_file: Option<PathBuf>,
}

impl Metrics {
    /// Begins to serve. What goes wrong later is told, and claims are served all the same.
    ///
    /// * `library` — the driver's, where it is not to be looked for.
    ///
    /// # Errors
    /// [`AgentError`]: no driver, no address or no token.
    pub(super) async fn begin(
        &self,
        options: &Options,
        checkpoint: Checkpoint,
        library: Option<PathBuf>,
    ) -> Result<JoinHandle<()>, AgentError> {
        let notice = options.notice;
        let occupancy = Occupants::new(checkpoint, &options.kubelet, notice);
        let of_agent = agent::Options {
            listen: self.listen,
            names: MetricNames::Both,
            token_file: self.token_file.clone(),
            interval: INTERVAL,
            state: options.state.clone(),
            library,
            occupancy: Some(Arc::new(occupancy)),
            notice,
        };
        let server = Server::open(&of_agent).await?;
        Ok(tokio::spawn(async move {
            if let Err(error) = server.serve(std::future::pending()).await {
                notice(&format!("metrics: {error}"));
            }
        }))
    }
}
