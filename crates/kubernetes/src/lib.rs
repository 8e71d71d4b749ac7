//! The adapter for Kubernetes: GPUs become devices of the API, claims become workloads of the engine, plans become
//! allocations, and a plugin of the kubelet makes shares real on its node.
#![forbid(unsafe_code)]

pub mod controller;
pub mod dialect;
mod https;
pub mod metrics;
pub mod names;
pub mod plugin;
pub mod quantity;
pub mod share;
pub mod webhook;

/// A client of the cluster that KUBECONFIG names or, inside a pod, of its own.
///
/// # Errors
/// There is none, or what names it cannot be read; with the way out.
pub async fn client() -> Result<kube::Client, String> {
    let way_out = "set KUBECONFIG to a cluster's file, or run it in a pod of the cluster";
    kube::Client::try_default().await.map_err(|error| format!("no cluster: {error}; {way_out}"))
}
