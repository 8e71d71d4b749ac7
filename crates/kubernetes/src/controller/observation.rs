//! What the controller knows of the cluster at one moment, in the API's own types.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::names;

/// Namespace and name.
pub type Key = (String, String);

/// All objects that matter.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Nodes.
    pub nodes: Vec<Arc<Node>>,
    /// Pods of all namespaces.
    pub pods: BTreeMap<Key, Arc<Pod>>,
    /// Claims of all namespaces.
    pub claims: BTreeMap<Key, Arc<ResourceClaim>>,
    /// Slices of our driver.
    pub slices: Vec<Arc<ResourceSlice>>,
    /// Classes of devices.
    pub classes: Vec<Arc<DeviceClass>>,
    /// Templates of claims that the controller has made, of all namespaces.
    pub templates: BTreeMap<Key, Arc<ResourceClaimTemplate>>,
    /// Budgets of disruption of all namespaces.
    pub budgets: Vec<Arc<PodDisruptionBudget>>,
}

/// An object's key.
pub fn key(meta: &ObjectMeta) -> Key {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// Whether a pod waits at our gate.
pub fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == names::GATE)
}

/// A gate that a pod waits at and that is not ours.
pub fn foreign_gate(pod: &Pod) -> Option<&str> {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().map(|gate| gate.name.as_str()).find(|name| *name != names::GATE)
}

/// Whether a pod is over.
pub fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The node that a pod has been bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// The node that the scheduler is to try first, and holds room on until then.
pub fn nominated(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

/// Pods that use claims: those that name one and are not over, by the claims' keys.
pub type Users = BTreeMap<Key, Vec<Arc<Pod>>>;

/// When it was made, in ms since 1970.
pub fn created(meta: &ObjectMeta) -> u64 {
    let at = meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
    u64::try_from(at).unwrap_or_default()
}

/// The node that a claim's devices of ours are of: its pool.
pub fn node_of_claim(claim: &ResourceClaim) -> Option<String> {
    node_of_allocation(claim.status.as_ref()?.allocation.as_ref()?)
}

/// The node of an allocation's devices of ours.
pub fn node_of_allocation(allocation: &AllocationResult) -> Option<String> {
    let devices = allocation.devices.as_ref()?;
    devices
        .results
        .iter()
        .flatten()
        .find(|result| result.driver == names::DRIVER)
        .map(|result| result.pool.clone())
}

impl Observation {
    /// Who uses which claim.
    pub fn users(&self) -> Users {
        let mut users = Users::new();
        for pod in self.pods.values().filter(|pod| !is_over(pod)) {
            for claim in self.claims_of(pod).into_iter().flatten() {
                users.entry(key(&claim.metadata)).or_default().push(Arc::clone(pod));
            }
        }
        users
    }

    /// The claims that a pod names, in its order; `None` for one that has not been made yet.
    pub fn claims_of(&self, pod: &Pod) -> Vec<Option<&Arc<ResourceClaim>>> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let named = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
        let made =
            || pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
        let name = |claim: &k8s_openapi::api::core::v1::PodResourceClaim| {
            let of_template =
                || made().find(|one| one.name == claim.name)?.resource_claim_name.clone();
            claim.resource_claim_name.clone().or_else(of_template)
        };
        named.map(|claim| self.claims.get(&(namespace.clone(), name(claim)?))).collect()
    }
}
