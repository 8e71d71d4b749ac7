//! What a claim was given of this node, as its status says, and which shares of cards that is. Pure.
//!
//! The status of a claim is written by allocators alone. What is in it with the source `FromClass` came from our
//! controller or from a DeviceClass, which administrators write; what a user asked for, `FromClaim`, is no answer.

use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::share::{self, FROM_CLASS, GpuShare};
use crate::{names, quantity};

/// One device that a claim was given, and what of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The request of the claim, without the alternative that was chosen.
    pub request: String,
    /// The device's name.
    pub device: String,
    /// Which of the device's shares it is.
    pub share_id: Option<String>,
    /// What the controller, or the class, says of the share.
    pub share: Option<GpuShare>,
    /// Memory that is booked, in bytes.
    pub memory_bytes: Option<u64>,
    /// Compute that is booked, in thousandths.
    pub compute_milli: Option<u32>,
    /// Whether anything was booked of the device.
    pub booked: bool,
    /// For whoever watches the device beside those who hold it.
    pub admin: bool,
}

/// Why a claim cannot be made real as it stands.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AllocationError {
    /// It is another one of that name.
    #[error("claim {name} is {found}, not {asked}: it was deleted and made anew; delete the pod")]
    Other {
        /// Namespace and name.
        name: String,
        /// UID of the claim that is there.
        found: String,
        /// UID that was asked for.
        asked: String,
    },
    /// It has been given nothing.
    #[error("claim {0} has no allocation; it was taken back while the pod started")]
    None(String),
    /// It is of another node.
    #[error(
        "device {device} is of node {pool}, and this is {node}: the allocation does not match the pod's node"
    )]
    Elsewhere {
        /// The device.
        device: String,
        /// Its pool.
        pool: String,
        /// This node.
        node: String,
    },
    /// What the class or the controller says cannot be read.
    #[error(
        "the configuration of {}, request {request}: {why}; see `kubectl get deviceclass` and hotpot's controller",
        names::DRIVER
    )]
    Configuration {
        /// The request.
        request: String,
        /// What is wrong.
        why: String,
    },
    /// An amount cannot be read.
    #[error("{name} of device {device}: `{text}` is no amount")]
    Amount {
        /// The device.
        device: String,
        /// The capacity.
        name: &'static str,
        /// What stands there.
        text: String,
    },
}

/// What a claim was given of our devices.
///
/// * `uid` — of the claim as whoever asks knows it; `node` — this node's name.
///
/// # Errors
/// [`AllocationError`].
pub fn given(claim: &ResourceClaim, uid: &str, node: &str) -> Result<Vec<Given>, AllocationError> {
    let (namespace, name) = (&claim.metadata.namespace, &claim.metadata.name);
    let name = format!(
        "{}/{}",
        namespace.as_deref().unwrap_or_default(),
        name.as_deref().unwrap_or_default()
    );
    let found = claim.metadata.uid.clone().unwrap_or_default();
    if found != uid {
        return Err(AllocationError::Other { name, found, asked: uid.to_owned() });
    }
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices =
        allocation.ok_or(AllocationError::None(name))?.devices.clone().unwrap_or_default();
    let configs = devices.config.unwrap_or_default();
    let results = devices.results.unwrap_or_default();
    let ours = results.iter().filter(|result| result.driver == names::DRIVER);
    ours.map(|result| one(result, &configs, node)).collect()
}

fn one(
    result: &DeviceRequestAllocationResult,
    configs: &[DeviceAllocationConfiguration],
    node: &str,
) -> Result<Given, AllocationError> {
    let DeviceRequestAllocationResult { request, device, pool, .. } = result;
    if pool != node {
        let (device, pool) = (device.clone(), pool.clone());
        return Err(AllocationError::Elsewhere { device, pool, node: node.to_owned() });
    }
    let amount = |name: &'static str, read: fn(&_) -> Option<u64>| {
        let found = result.consumed_capacity.as_ref().and_then(|all| all.get(name));
        let wrong = |text: &str| AllocationError::Amount {
            device: device.clone(),
            name,
            text: text.to_owned(),
        };
        found.map(|amount| read(amount).ok_or_else(|| wrong(&amount.0))).transpose()
    };
    let compute = amount(names::COMPUTE, quantity::milli)?;
    Ok(Given {
        request: share::base(request).to_owned(),
        device: device.clone(),
        share_id: result.share_id.clone(),
        share: share_of(request, configs)?,
        memory_bytes: amount(names::MEMORY, quantity::whole)?,
        compute_milli: compute.map(|milli| u32::try_from(milli).unwrap_or(u32::MAX)),
        booked: result.consumed_capacity.is_some(),
        admin: result.admin_access == Some(true),
    })
}

/// What the controller, or the class, says of the request's share.
fn share_of(
    request: &str,
    configs: &[DeviceAllocationConfiguration],
) -> Result<Option<GpuShare>, AllocationError> {
    let of_class = configs.iter().filter(|config| config.source == FROM_CLASS);
    let of_class = of_class.map(|config| (&config.requests, &config.opaque));
    let Some(found) = share::configured(request, of_class) else { return Ok(None) };
    let wrong = |why: String| AllocationError::Configuration { request: request.to_owned(), why };
    let share =
        GpuShare::deserialize(&found.parameters.0).map_err(|error| wrong(error.to_string()))?;
    let known = GpuShare::new();
    if (&share.api_version, &share.kind) != (&known.api_version, &known.kind) {
        let (version, kind) = (&share.api_version, &share.kind);
        return Err(wrong(format!(
            "{version} {kind} is not known here, only {} {}",
            known.api_version, known.kind
        )));
    }
    Ok(Some(share))
}

#[cfg(test)]
mod tests;
