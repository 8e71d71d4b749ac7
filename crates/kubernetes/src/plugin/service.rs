//! What the kubelet calls: the same work behind both versions of its protocol, and the health of devices.
//!
//! Every claim of a call has its entry in the answer: one that cannot be prepared has its error there, which the
//! kubelet shows at the pod, and keeps no other from starting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::allocation::given;
use super::claims::{ClaimError, Claims};
use super::look::Seen;
use super::prepare::{Answer, PrepareError, Preparer};
use super::proto::health::dra_resource_health_server::DraResourceHealth;
use super::proto::health::{
    DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest,
    NodeWatchResourcesResponse,
};
use super::proto::{v1, v1beta1};
use super::runtime::Watched;

/// After so long without news a device's health is unknown.
const HEALTH_TIMEOUT_S: i64 = 60;

/// Serves the kubelet.
#[derive(Debug)]
pub(super) struct Service<C> {
    pub(super) preparer: Arc<Mutex<Preparer>>,
    pub(super) claims: Arc<C>,
    pub(super) node: Arc<str>,
    pub(super) seen: watch::Receiver<Seen>,
    pub(super) whole_only: Arc<AtomicBool>,
    pub(super) runtime: Watched,
}

impl<C> Clone for Service<C> {
    fn clone(&self) -> Self {
        Self {
            preparer: Arc::clone(&self.preparer),
            claims: Arc::clone(&self.claims),
            node: Arc::clone(&self.node),
            seen: self.seen.clone(),
            whole_only: Arc::clone(&self.whole_only),
            runtime: self.runtime.clone(),
        }
    }
}

/// A claim as the kubelet names it.
struct Asked {
    namespace: String,
    name: String,
    uid: String,
}

impl<C: Claims> Service<C> {
    async fn prepare(&self, asked: &Asked) -> Result<Vec<Answer>, String> {
        if let Some(why) = self.runtime.drops_devices().await {
            return Err(why);
        }
        let uid = asked.uid.clone();
        let claim = match self.claims.read(&asked.namespace, &asked.name).await {
            Ok(claim) => claim,
            Err(error @ ClaimError::Absent(_)) => return Err(error.to_string()),
            Err(error) => {
                // What runs already goes on also while the API server does not answer.
                let known = self.on_machine(move |preparer| preparer.known(&uid)).await?;
                return known.ok_or_else(|| error.to_string());
            }
        };
        let given = given(&claim, &uid, &self.node).map_err(|error| error.to_string())?;
        let name = format!("{}/{}", asked.namespace, asked.name);
        let whole_only = self.whole_only.load(Ordering::Relaxed);
        self.on_machine(move |preparer| preparer.prepare((&uid, &name), given, whole_only)).await
    }

    async fn unprepare(&self, uid: String) -> Result<(), String> {
        self.on_machine(move |preparer| preparer.unprepare(&uid)).await
    }

    /// On a thread that may wait: for the driver, for locks, for the disk. One claim at a time.
    async fn on_machine<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Preparer) -> Result<T, PrepareError> + Send + 'static,
    ) -> Result<T, String> {
        let preparer = Arc::clone(&self.preparer);
        let done = tokio::task::spawn_blocking(move || {
            // Who panicked has left journal and checkpoint as they are on disk, and these are read anew.
            act(&mut preparer.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let done = done.await.map_err(|error| format!("the plugin has failed: {error}"))?;
        done.map_err(|error| error.to_string())
    }
}

#[tonic::async_trait]
impl<C: Claims> v1::dra_plugin_server::DraPlugin for Service<C> {
    async fn node_prepare_resources(
        &self,
        request: Request<v1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1::NodePrepareResourcesResponse>, Status> {
        let mut response = v1::NodePrepareResourcesResponse::default();
        for v1::Claim { namespace, uid, name } in request.into_inner().claims {
            let prepared = self.prepare(&Asked { namespace, name, uid: uid.clone() }).await;
            let answer = match prepared {
                Ok(answers) => v1::NodePrepareResourceResponse {
                    devices: answers.into_iter().map(|one| device(one, &self.node)).collect(),
                    error: String::new(),
                },
                Err(error) => v1::NodePrepareResourceResponse { devices: Vec::new(), error },
            };
            response.claims.insert(uid, answer);
        }
        Ok(Response::new(response))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1::NodeUnprepareResourcesResponse>, Status> {
        let mut response = v1::NodeUnprepareResourcesResponse::default();
        for claim in request.into_inner().claims {
            let error = self.unprepare(claim.uid.clone()).await.err().unwrap_or_default();
            response.claims.insert(claim.uid, v1::NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(response))
    }
}

fn device(answer: Answer, pool: &str) -> v1::Device {
    v1::Device {
        request_names: vec![answer.request],
        pool_name: pool.to_owned(),
        device_name: answer.device,
        cdi_device_ids: vec![answer.cdi_id],
        share_id: answer.share_id,
    }
}

#[tonic::async_trait]
impl<C: Claims> v1beta1::dra_plugin_server::DraPlugin for Service<C> {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter();
        let claims = claims.map(|v1beta1::Claim { namespace, uid, name }| v1::Claim {
            namespace,
            uid,
            name,
        });
        let request = v1::NodePrepareResourcesRequest { claims: claims.collect() };
        let newer =
            v1::dra_plugin_server::DraPlugin::node_prepare_resources(self, Request::new(request));
        let claims = newer.await?.into_inner().claims.into_iter();
        let older = |(uid, one): (String, v1::NodePrepareResourceResponse)| {
            let devices = one.devices.into_iter().map(|device| v1beta1::Device {
                request_names: device.request_names,
                pool_name: device.pool_name,
                device_name: device.device_name,
                cdi_device_ids: device.cdi_device_ids,
            });
            let (devices, error) = (devices.collect(), one.error);
            (uid, v1beta1::NodePrepareResourceResponse { devices, error })
        };
        let claims = claims.map(older).collect();
        Ok(Response::new(v1beta1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        let mut response = v1beta1::NodeUnprepareResourcesResponse::default();
        for claim in request.into_inner().claims {
            let error = self.unprepare(claim.uid.clone()).await.err().unwrap_or_default();
            response.claims.insert(claim.uid, v1beta1::NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(response))
    }
}

#[tonic::async_trait]
impl<C: Claims> DraResourceHealth for Service<C> {
    type NodeWatchResourcesStream =
        std::pin::Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    /// Whatever is seen is told, also if it is the same: what the kubelet knows has an age.
    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let node = Arc::clone(&self.node);
        let told = WatchStream::new(self.seen.clone()).map(move |seen| Ok(health(&seen, &node)));
        Ok(Response::new(Box::pin(told)))
    }
}

fn health(seen: &Seen, pool: &str) -> NodeWatchResourcesResponse {
    let since = seen.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let last_updated_time = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let cards = seen.offers.cards.iter();
    let devices = cards.flat_map(|card| {
        card.devices().map(move |device| {
            let health =
                if card.fault.is_some() { HealthStatus::Unhealthy } else { HealthStatus::Healthy };
            let (pool_name, device_name) = (pool.to_owned(), device.name.clone());
            DeviceHealth {
                device: Some(DeviceIdentifier { pool_name, device_name }),
                health: health.into(),
                last_updated_time,
                health_check_timeout_seconds: HEALTH_TIMEOUT_S,
                message: card.fault.as_ref().map(|fault| fault.why.clone()).unwrap_or_default(),
            }
        })
    });
    NodeWatchResourcesResponse { devices: devices.collect() }
}
