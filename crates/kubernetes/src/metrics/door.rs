//! Who is let in, and what is answered: only the API server asks, for whomever it has let ask (its own authorization, as for `list` of the
//! metric in a namespace of `external.metrics.k8s.io`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;

use super::api::{self, Ask, Refusal};
use super::figures::{Book, Figure, Metric};
use super::front::Front;
use super::gather::now_ms;
use crate::https::keys::Served;
use crate::https::listen::{self, Caller, said};

/// Time for the API server to say which pods a selector matches.
const PODS_TIME: Duration = Duration::from_secs(5);

/// What requests are answered by.
pub(super) struct MetricsDoor {
    /// Nothing until there is a certificate.
    pub(super) keys: watch::Receiver<Option<Served>>,
    pub(super) front: watch::Receiver<Front>,
    pub(super) book: Arc<Mutex<Book>>,
    /// Where pods have their labels.
    pub(super) pods: Client,
}

impl listen::Door for MetricsDoor {
    /// Made anew for each connection, so that it is by the authority of now; API servers keep theirs.
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        let served = Arc::clone(&self.keys.borrow().as_ref()?.tls);
        let Some(verifier) = self.front.borrow().verifier.clone() else { return Some(served) };
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let versions = builder.with_safe_default_protocol_versions().ok()?;
        let resolver = Arc::clone(&served.cert_resolver);
        let mut tls = versions.with_client_cert_verifier(verifier).with_cert_resolver(resolver);
        tls.alpn_protocols.clone_from(&served.alpn_protocols);
        Some(Arc::new(tls))
    }

    async fn respond(&self, request: Request<Incoming>, caller: Caller) -> Response<Full<Bytes>> {
        if request.uri().path() == "/healthz" {
            return self.health();
        }
        match self.answer(&request, &caller).await {
            Ok(document) => json(StatusCode::OK, &document),
            Err(refusal) => json(refusal.status, &refusal.document()),
        }
    }
}

impl MetricsDoor {
    fn health(&self) -> Response<Full<Bytes>> {
        match self.front.borrow().verifier {
            Some(_) => said(StatusCode::OK, "ok"),
            None => said(StatusCode::SERVICE_UNAVAILABLE, "who may ask is not known yet"),
        }
    }

    async fn answer<B>(&self, request: &Request<B>, caller: &Caller) -> Result<Value, Refusal> {
        if !self.front.borrow().knows(caller) {
            let why = "only the API server's aggregation layer is answered; ask it, as by `kubectl get --raw`";
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, why));
        }
        if request.method() != Method::GET {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "metrics are only read"));
        }
        let uri = request.uri();
        match api::ask(uri.path(), uri.query().unwrap_or_default())? {
            Ask::About(document) => Ok(document),
            Ask::Values { namespace, metric, selector } => {
                let pods = self.matching(&namespace, &selector).await?;
                Ok(api::values(&namespace, metric, &self.known(&namespace, metric, pods)))
            }
        }
    }

    /// The pods that a selector matches, in their order. The API server says, and reads the selector: from what it has in memory, as
    /// there may be many who ask.
    async fn matching(&self, namespace: &str, selector: &str) -> Result<Vec<String>, Refusal> {
        let api: Api<Pod> = Api::namespaced(self.pods.clone(), namespace);
        let which = ListParams::default().labels(selector).match_any();
        let listed = timeout(PODS_TIME, api.list_metadata(&which)).await;
        let unavailable = |why: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
        let listed = listed.map_err(|_| unavailable("pods are not told in time".to_owned()))?;
        let listed = listed.map_err(|error| {
            if let kube::Error::Api(status) = &error
                && status.code == 400
            {
                return Refusal::new(StatusCode::BAD_REQUEST, status.message.clone());
            }
            unavailable(format!("pods of {namespace}: {error}"))
        })?;
        Ok(listed.items.into_iter().filter_map(|pod| pod.metadata.name).collect())
    }

    fn known(&self, namespace: &str, metric: Metric, pods: Vec<String>) -> Vec<(String, Figure)> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = now_ms();
        let of = |pod: String| {
            let key = (namespace.to_owned(), pod);
            book.figure(metric, &key, now_ms).map(|figure| (key.1, figure))
        };
        pods.into_iter().filter_map(of).collect()
    }
}

fn json(status: StatusCode, document: &Value) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(document.to_string().into()));
    *answer.status_mut() = status;
    let kind = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}
