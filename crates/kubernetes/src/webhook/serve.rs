//! What the API server asks: `/pods`, `/claims` and `/healthz`.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use model::Policy;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;

use super::claims::Claims;
use super::{answer, known::Known};
use crate::https::keys::Served;
use crate::https::listen::{self, Caller, said};

/// A review's body at most: objects have up to 1.5 MiB, and a review of a change has two.
const BODY_MAX: usize = 3 << 20;
/// Time for a request's body to arrive.
const ARRIVAL_TIME: Duration = Duration::from_secs(10);
/// Time for classes and slices to be there; reviews wait so long when the webhook has just started.
const KNOWN_TIME: Duration = Duration::from_secs(3);

/// What requests are answered by.
pub(super) struct Door<C> {
    pub(super) known: Known,
    pub(super) cluster: C,
    pub(super) policy: Policy,
    /// Nothing until there is a certificate.
    pub(super) keys: watch::Receiver<Option<Served>>,
}

impl<C: Claims + 'static> listen::Door for Door<C> {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.keys.borrow().as_ref().map(|keys| Arc::clone(&keys.tls))
    }

    async fn respond(&self, request: Request<Incoming>, _caller: Caller) -> Response<Full<Bytes>> {
        self.answer(request).await
    }
}

impl<C: Claims> Door<C> {
    /// Answers one request.
    pub(super) async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path().to_owned();
        match (request.method(), path.as_str()) {
            (&Method::GET, "/healthz") => self.health().await,
            (&Method::POST, "/pods" | "/claims") => match review(request.into_body()).await {
                Ok(request) => self.decide(&path, &request).await,
                Err((status, why)) => said(status, &why),
            },
            (_, "/healthz" | "/pods" | "/claims") => {
                said(StatusCode::METHOD_NOT_ALLOWED, "reviews are sent by POST")
            }
            _ => said(StatusCode::NOT_FOUND, "there are /pods, /claims and /healthz"),
        }
    }

    async fn decide(
        &self,
        path: &str,
        request: &AdmissionRequest<DynamicObject>,
    ) -> Response<Full<Bytes>> {
        if timeout(KNOWN_TIME, self.known.is_whole()).await.is_err() {
            return said(StatusCode::SERVICE_UNAVAILABLE, "classes and slices are not known yet");
        }
        let seen = self.known.seen();
        let response = match path {
            "/claims" => answer::to_claim(request, &seen),
            _ => answer::to_pod(request, &seen, &self.cluster, &self.policy).await,
        };
        reviewed(response)
    }

    async fn health(&self) -> Response<Full<Bytes>> {
        match timeout(Duration::from_millis(100), self.known.is_whole()).await {
            Ok(()) => said(StatusCode::OK, "ok"),
            Err(_) => said(StatusCode::SERVICE_UNAVAILABLE, "classes and slices are not known yet"),
        }
    }
}

/// Reads a review, or says what is wrong with it.
async fn review<B>(body: B) -> Result<AdmissionRequest<DynamicObject>, (StatusCode, String)>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let arrived = timeout(ARRIVAL_TIME, Limited::new(body, BODY_MAX).collect()).await;
    let arrived = arrived
        .map_err(|_| (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned()))?;
    let too_large = |error: Box<dyn std::error::Error + Send + Sync>| {
        if error.is::<http_body_util::LengthLimitError>() {
            let why = format!("the body is larger than {BODY_MAX} bytes");
            return (StatusCode::PAYLOAD_TOO_LARGE, why);
        }
        (StatusCode::BAD_REQUEST, format!("the body: {error}"))
    };
    let bytes = arrived.map_err(too_large)?.to_bytes();
    let wrong = |why: String| (StatusCode::BAD_REQUEST, format!("no AdmissionReview: {why}"));
    let review: AdmissionReview<DynamicObject> =
        serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    review.try_into().map_err(|_| wrong("it has no request".into()))
}

fn reviewed(response: AdmissionResponse) -> Response<Full<Bytes>> {
    match serde_json::to_vec(&response.into_review()) {
        Ok(text) => {
            let mut answer = Response::new(Full::new(text.into()));
            let kind = header::HeaderValue::from_static("application/json");
            answer.headers_mut().insert(header::CONTENT_TYPE, kind);
            answer
        }
        Err(error) => said(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

#[cfg(test)]
mod tests;
