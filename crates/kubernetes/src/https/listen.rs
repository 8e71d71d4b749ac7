//! HTTPS: connections with limits, and an orderly end. What is answered is somebody else's.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent::seats::{Seat, Seats};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Connections at once, and of one address: who connects and says nothing does not keep others out.
const CONNECTIONS_MAX: usize = 512;
const OF_ONE_MAX: usize = 64;
/// Time for a handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// An idle connection stays longer than API servers keep theirs (90 s), so that none is closed while a request is on its way.
const IDLE_TIME: Duration = Duration::from_secs(300);
/// Time in which others learn that this server ends; it still answers.
const FAREWELL: Duration = Duration::from_secs(3);

/// The certificate that a caller has shown and that the TLS configuration has found good, as DER.
pub(crate) type Caller = Option<Arc<[u8]>>;

/// What requests are answered by.
pub(crate) trait Door: Send + Sync + 'static {
    /// By what a new connection is served; nothing until there is a certificate.
    fn tls(&self) -> Option<Arc<ServerConfig>>;

    /// Answers one request.
    fn respond(
        &self,
        request: Request<Incoming>,
        caller: Caller,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}

/// Takes an address.
///
/// # Errors
/// It cannot be had, with the way out.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| {
        format!("cannot listen on {address}: {error}; name another address by --listen")
    })
}

/// Serves until `end` comes, and a little longer.
pub(crate) async fn serve(
    listener: TcpListener,
    door: Arc<impl Door>,
    end: impl Future<Output = ()>,
) {
    let seats = Seats::new(CONNECTIONS_MAX, OF_ONE_MAX);
    let open = GracefulShutdown::new();
    let mut end = std::pin::pin!(async {
        end.await;
        tokio::time::sleep(FAREWELL).await;
    });
    loop {
        let (stream, seat) = tokio::select! {
            accepted = accept(&listener, &seats) => match accepted {
                Some(accepted) => accepted,
                None => continue,
            },
            () = &mut end => break,
        };
        // Without a certificate there is nothing to say.
        let Some(tls) = door.tls() else { continue };
        tokio::spawn(connection(stream, tls, Arc::clone(&door), open.watcher(), seat));
    }
    drop(listener);
    let _ended = timeout(FAREWELL, open.shutdown()).await;
}

async fn accept(listener: &TcpListener, seats: &Seats) -> Option<(TcpStream, Seat)> {
    let seat = seats.free().await?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, seats.give(seat, peer.ip())?)),
        Err(_) => {
            // Out of descriptors, say: others will end, the queue waits.
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

/// One connection to its end; how a client leaves is its own business.
async fn connection(
    stream: TcpStream,
    tls: Arc<ServerConfig>,
    door: Arc<impl Door>,
    watcher: Watcher,
    seat: Seat,
) {
    let acceptor = TlsAcceptor::from(tls);
    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await else { return };
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let caller: Caller = shown.map(|certificate| Arc::from(certificate.as_ref()));
    let service = service_fn(move |request| {
        let (door, caller) = (Arc::clone(&door), caller.clone());
        async move { Ok::<_, Infallible>(door.respond(request, caller).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIME)
        .serve_connection(TokioIo::new(stream), service);
    let _left = watcher.watch(connection).await;
    drop(seat);
}

/// An answer in words.
pub(crate) fn said(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(format!("{text}\n").into()));
    *answer.status_mut() = status;
    answer
}
