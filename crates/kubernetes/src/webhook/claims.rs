//! What a pod's claims ask: read from the cluster at admission, as a template may have been made a moment before.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate};
use kube::{Api, Client};

/// Time for one object to be read; the API server waits 5 s for all.
const READ_TIME: Duration = Duration::from_secs(1);

/// A claim of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Read {
    /// What it asks.
    pub(super) spec: ResourceClaimSpec,
    /// Whether it has been given devices.
    pub(super) is_allocated: bool,
}

/// Where claims and templates are read.
pub(super) trait Claims: Send + Sync {
    /// What a pod names; nothing if it is not there, or cannot be read in time.
    fn read(
        &self,
        namespace: &str,
        named: &PodResourceClaim,
    ) -> impl Future<Output = Option<Read>> + Send;
}

/// The API server.
pub(super) struct Cluster(pub(super) Client);

impl Claims for Cluster {
    async fn read(&self, namespace: &str, named: &PodResourceClaim) -> Option<Read> {
        let read = async {
            if let Some(name) = &named.resource_claim_name {
                let api: Api<ResourceClaim> = Api::namespaced(self.0.clone(), namespace);
                let claim = api.get_opt(name).await.ok()??;
                let is_allocated =
                    claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
                return Some(Read { spec: claim.spec, is_allocated });
            }
            let name = named.resource_claim_template_name.as_ref()?;
            let api: Api<ResourceClaimTemplate> = Api::namespaced(self.0.clone(), namespace);
            let template = api.get_opt(name).await.ok()??;
            Some(Read { spec: template.spec.spec, is_allocated: false })
        };
        tokio::time::timeout(READ_TIME, read).await.ok()?
    }
}
