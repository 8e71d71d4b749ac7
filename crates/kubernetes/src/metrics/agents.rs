//! The agents of the nodes: which there are, and what one tells when it is asked, over plain HTTP with limits.

use std::time::Duration;

use agent::reading::{self, Reading};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long one agent may take; its driver has 8 s.
const PATIENCE: Duration = Duration::from_secs(9);
/// Bytes of an answer: a node of 16 cards and 250 pods has some 2 MB.
const ANSWER_MAX: usize = 16 << 20;

/// Which agents there are.
#[derive(Clone, Debug)]
pub enum Agents {
    /// Always those, by URL, as `http://10.0.0.1:9400/metrics`.
    Urls(Vec<String>),
    /// Those of a namespace's pods that have the labels, at a port.
    Pods {
        /// The namespace.
        namespace: String,
        /// A selector as `kubectl -l` takes it.
        labels: String,
        /// The port.
        port: u16,
    },
}

impl Agents {
    /// The URLs of those that are there now.
    ///
    /// # Errors
    /// The API server does not tell.
    pub(super) async fn urls(&self, client: &Client) -> Result<Vec<String>, String> {
        let (namespace, labels, port) = match self {
            Self::Urls(urls) => return Ok(urls.clone()),
            Self::Pods { namespace, labels, port } => (namespace, labels, port),
        };
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let listed = api.list(&ListParams::default().labels(labels).match_any()).await;
        let pods = listed.map_err(|error| format!("pods of {namespace} with {labels}: {error}"))?;
        let running = pods.items.into_iter().filter_map(|pod| pod.status);
        let running = running.filter(|status| status.phase.as_deref() == Some("Running"));
        Ok(running.filter_map(|status| Some(url(&status.pod_ip?, *port))).collect())
    }
}

fn url(address: &str, port: u16) -> String {
    match address.contains(':') {
        true => format!("http://[{address}]:{port}/metrics"),
        false => format!("http://{address}:{port}/metrics"),
    }
}

/// Asks one agent.
///
/// # Errors
/// Why there is no answer that can be used, in a few words.
pub(super) async fn ask(url: &str, token: Option<&str>) -> Result<Reading, String> {
    let text = timeout(PATIENCE, get(url, token)).await;
    let text =
        text.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))?;
    reading::read(&text)
}

async fn get(url: &str, token: Option<&str>) -> Result<String, String> {
    let uri: Uri = url.parse().map_err(|_| "no URL".to_owned())?;
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"));
    let authority = authority.ok_or("no URL of http; agents speak no TLS")?.as_str().to_owned();
    let path = uri.path_and_query().map_or("/metrics", |path| path.as_str());
    let at = if uri.port().is_some() { authority.clone() } else { format!("{authority}:80") };
    let stream = TcpStream::connect(at).await.map_err(|error| error.to_string())?;
    let mut request = Request::get(path).header(header::HOST, authority);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err("it wants a token, or another one".to_owned()),
            other => return Err(format!("it answers with status {}", other.as_u16())),
        }
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        let bytes = body.map_err(|error| error.to_string())?.to_bytes();
        String::from_utf8(bytes.to_vec()).map_err(|_| "its answer is no text".to_owned())
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // All may have come when the other side closes.
        _ended = connection => exchange.await,
    }
}
