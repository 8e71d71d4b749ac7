//! Serves what a node measures as Prometheus text.
//!
//! A scrape asks the thread in `measure`, which asks the driver; nothing runs between scrapes.
#![forbid(unsafe_code)]

mod accounts;
mod dcgm;
mod exposition;
mod measure;
mod observation;
mod occupants;
mod own;
mod pods;
pub mod reading;
pub mod seats;
mod server;
mod tenants;
mod text;
mod token;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use node::driver::{Driver, DriverError};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::measure::Measuring;
use crate::server::Endpoint;
use crate::token::Token;

pub use dcgm::{MetricNames, names as dcgm_names};
pub use exposition::Format;
pub use observation::Observation;
pub use occupants::{Occupancy, Occupant, PodName};
pub use own::names as own_names;
pub use text::render;
pub use token::TokenError;

/// Scrapes that wait for the driver at once.
const WAITING_MAX: usize = 64;

/// What the agent is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one, which the notice tells.
    pub listen: SocketAddr,
    /// Which of DCGM's names to write.
    pub names: MetricNames,
    /// File with the bearer token that scrapers must show; needed off loopback.
    pub token_file: Option<PathBuf>,
    /// Scrapes in quicker succession than this get the same sample.
    pub interval: Duration,
    /// The state folder, where runs are published.
    pub state: PathBuf,
    /// The driver's library, where it is not to be looked for.
    pub library: Option<PathBuf>,
    /// Who knows who sits on cards beside runs.
    pub occupancy: Option<Arc<dyn Occupancy>>,
    /// Told, for the log, where the agent listens and when the driver goes and comes back.
    pub notice: fn(&str),
}

/// Why the agent does not serve.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no driver to measure with.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The token file is of no use.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Others could read the metrics.
    #[error(
        "will not listen on {0} without a token: others could read who uses which GPU; give \
         --token-file FILE (`hotpot kubernetes agent`: --metrics-token-file FILE), or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {address}: {error}; choose another with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A panic in the thread that measures; its message is in the log.
    #[error("measuring has broken off, which is a defect of hotpot; start the agent again")]
    Defect,
    /// The system refuses what a server needs.
    #[error("cannot serve: {0}")]
    System(#[from] io::Error),
}

/// Serves metrics until SIGTERM or SIGINT.
///
/// # Errors
///
/// No driver, no address or no token at the start. A driver that fails later is told of in the
/// metrics.
pub fn serve(options: &Options) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let end = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        Server::open(options).await?.serve(end).await
    })
}

/// An agent that listens, for programs that do more than serve metrics.
pub struct Server {
    listener: TcpListener,
    endpoint: Endpoint,
    /// Told when nobody measures any more.
    gone: oneshot::Receiver<()>,
}

impl Server {
    /// Opens the driver, begins to measure when asked, and listens.
    ///
    /// # Errors
    /// No driver, no address or no token.
    pub async fn open(options: &Options) -> Result<Self, AgentError> {
        let token = options.token_file.as_deref().map(Token::read).transpose()?;
        if is_exposed(options.listen, token.is_some()) {
            return Err(AgentError::Exposed(options.listen));
        }
        let driver = open(options.library.as_deref())?;
        let (sender, requests) = sync_channel(WAITING_MAX);
        let (at_work, gone) = oneshot::channel::<()>();
        let measuring = options.measuring();
        let thread = std::thread::Builder::new().name("measure".into());
        thread.spawn(move || {
            let _at_work = at_work;
            measuring.run(driver, &requests);
        })?;
        let endpoint = Endpoint { requests: sender, names: options.names, host: host(), token };
        let unheard = |error| AgentError::Listen { address: options.listen, error };
        let listener = TcpListener::bind(options.listen).await.map_err(unheard)?;
        let address = listener.local_addr()?;
        (options.notice)(&format!("metrics at http://{address}/metrics"));
        Ok(Self { listener, endpoint, gone })
    }

    /// Serves until `end` comes, or until nobody measures any more.
    ///
    /// # Errors
    /// [`AgentError::Defect`].
    pub async fn serve(self, end: impl Future<Output = ()>) -> Result<(), AgentError> {
        let end = async {
            tokio::select! {
                () = end => Ok(()),
                _ = self.gone => Err(AgentError::Defect),
            }
        };
        server::serve(self.listener, self.endpoint, end).await
    }
}

/// Reads the token that scrapers must show, for whoever scrapes.
///
/// # Errors
/// [`TokenError`].
pub fn token(file: &Path) -> Result<String, TokenError> {
    Token::to_show(file)
}

/// Opens the driver.
fn open(library: Option<&Path>) -> Result<Driver, DriverError> {
    library.map_or_else(Driver::open, Driver::open_library)
}

/// Whether others than this machine's users could read what nothing protects.
fn is_exposed(listen: SocketAddr, with_token: bool) -> bool {
    !with_token && !listen.ip().is_loopback()
}

/// The text of one scrape, without serving.
///
/// # Errors
///
/// The driver does not answer.
pub fn once(options: &Options, format: Format) -> Result<String, AgentError> {
    let driver = open(options.library.as_deref())?;
    let seen = measure::once(&driver, &options.measuring())?;
    Ok(render(Some(&seen), options.names, format, &host()))
}

impl Options {
    fn measuring(&self) -> Measuring {
        let Self { interval, notice, .. } = *self;
        let (library, state) = (self.library.clone(), self.state.clone());
        Measuring { interval, state, library, occupancy: self.occupancy.clone(), notice }
    }
}

/// This machine's name, as DCGM's label has it.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_goes_without_a_token() {
        let exposed = |address: &str, token| is_exposed(address.parse().unwrap(), token);
        for local in ["127.0.0.1:1", "127.8.9.1:1", "[::1]:1"] {
            assert!(!exposed(local, false) && !exposed(local, true), "{local}");
        }
        for open in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[fe80::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(exposed(open, false) && !exposed(open, true), "{open}");
        }
    }
}
