//! The endpoint: connections with limits, `/metrics` and `/healthz`, and an orderly end.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::exposition::Format;
use crate::measure::Reply;
use crate::seats::{Seat, Seats};
use crate::token::Token;
use crate::{MetricNames, text};

/// Connections at once, and of one address.
const SEATS: usize = 64;
const SEATS_OF_ONE: usize = 16;
/// Time for a request to arrive in full; also how long an idle connection stays: who scrapes less often
/// connects anew.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Life of a connection, busy or not.
const CONNECTION_LIFE: Duration = Duration::from_secs(600);
/// Bytes of a request's head.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Time that the driver gets for an answer: less than the 10 s that Prometheus waits.
const DRIVER_TIME: Duration = Duration::from_secs(8);
/// Time for open requests to end when the agent does.
const FAREWELL: Duration = Duration::from_secs(2);

/// What a request is answered from.
pub(crate) struct Endpoint {
    pub(crate) requests: SyncSender<Reply>,
    pub(crate) names: MetricNames,
    pub(crate) host: String,
    pub(crate) token: Option<Token>,
}

/// Serves until `end` comes, then lets open requests finish; what `end` said.
pub(crate) async fn serve<T>(
    listener: TcpListener,
    endpoint: Endpoint,
    end: impl Future<Output = T>,
) -> T {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .with_state(Arc::new(endpoint));
    let seats = Seats::new(SEATS, SEATS_OF_ONE);
    let open = GracefulShutdown::new();
    let mut end = std::pin::pin!(end);
    let ended = loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &seats) => accepted,
            ended = &mut end => break ended,
        };
        let Some((stream, seat)) = accepted else { continue };
        let service = TowerToHyperService::new(router.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIME)
            .max_buf_size(REQUEST_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let connection = open.watch(connection);
        tokio::spawn(async move {
            // How a client leaves is its own business.
            let _ = timeout(CONNECTION_LIFE, connection).await;
            drop(seat);
        });
    };
    drop(listener);
    let _ = timeout(FAREWELL, open.shutdown()).await;
    ended
}

/// The next connection, once there is a seat for it; `None` for one that is turned away.
async fn accept(listener: &TcpListener, seats: &Seats) -> Option<(TcpStream, Seat)> {
    let free = seats.free().await?;
    match listener.accept().await {
        Ok((stream, peer)) => seats.give(free, peer.ip()).map(|seat| (stream, seat)),
        Err(_) => {
            // Out of descriptors, say: others will end, the queue waits.
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

async fn metrics(State(endpoint): State<Arc<Endpoint>>, headers: HeaderMap) -> Response {
    if !endpoint.admits(&headers) {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, challenge, "a bearer token is needed\n").into_response();
    }
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let seen = endpoint.ask().await;
    let text = text::render(seen.as_deref(), endpoint.names, format, &endpoint.host);
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}

impl Endpoint {
    fn admits(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).map_or(&b""[..], |shown| shown.as_bytes());
        self.token.as_ref().is_none_or(|token| token.is_shown_by(shown))
    }

    /// What is seen now; `None` if the driver does not answer, or not in time.
    async fn ask(&self) -> Option<Arc<crate::Observation>> {
        let (reply, answer) = oneshot::channel();
        // A full queue is a driver that hangs.
        self.requests.try_send(reply).ok()?;
        timeout(DRIVER_TIME, answer).await.ok()?.ok()?
    }
}
