//! Where claims are read: the API server, or in tests something in its place.

use std::future::Future;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::Api;
use thiserror::Error;

/// A claim cannot be read.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// There is none of that name.
    #[error("claim {0} is not there; it was deleted while the pod started")]
    Absent(String),
    /// The API server does not answer, or refuses.
    #[error("claim {name} cannot be read: {source}; may the plugin's service account do that?")]
    Server {
        /// Namespace and name.
        name: String,
        /// What it says.
        source: Box<kube::Error>,
    },
}

/// Who knows claims.
pub trait Claims: Send + Sync + 'static {
    /// Reads a claim.
    ///
    /// # Errors
    /// [`ClaimError`].
    fn read(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<ResourceClaim, ClaimError>> + Send;
}

impl Claims for kube::Client {
    async fn read(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ClaimError> {
        let full = format!("{namespace}/{name}");
        match Api::<ResourceClaim>::namespaced(self.clone(), namespace).get(name).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Err(ClaimError::Absent(full)),
            other => {
                other.map_err(|source| ClaimError::Server { name: full, source: Box::new(source) })
            }
        }
    }
}
