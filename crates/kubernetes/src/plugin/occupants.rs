//! Whose containers the claims of this node are in, for metrics. What a claim holds is in the checkpoint; which containers have it, the
//! kubelet says: nothing is taken from what pods say of themselves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent::{Occupancy, Occupant, PodName};
use node::live::LiveShare;
use tokio::runtime::Handle;
use tonic::transport::Endpoint;

use super::checkpoint::{Checkpoint, Claims};
use super::proto::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use super::proto::pod_resources::{ListPodResourcesRequest, PodResources};
use super::{Notice, cdi};
use crate::names;

/// In the kubelet's folder: where it tells of pods.
const SOCKET: &str = "pod-resources/kubelet.sock";
/// How long the kubelet may take; it takes milliseconds.
const PATIENCE: Duration = Duration::from_millis(800);
/// Bytes of an answer, the kubelet's own limit (`pkg/kubelet/apis/podresources/constants.go`).
const ANSWER_MAX: usize = 16 << 20;

/// Containers that have a claim, by its UID: namespace, pod and container.
type Users = BTreeMap<String, Vec<[String; 3]>>;

/// What is asked who sits on the node's cards.
#[derive(Debug)]
pub(super) struct Occupants {
    checkpoint: Checkpoint,
    socket: PathBuf,
    runtime: Handle,
    notice: Notice,
    /// What went wrong last.
    said: Mutex<String>,
}

impl Occupants {
    /// * `kubelet` — its folder. It is asked on the runtime that this is called on.
    pub(super) fn new(checkpoint: Checkpoint, kubelet: &Path, notice: Notice) -> Self {
        let socket = kubelet.join(SOCKET);
        Self { checkpoint, socket, runtime: Handle::current(), notice, said: Mutex::default() }
    }

    /// Tells each trouble once.
    fn tell(&self, why: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if *said != why && !why.is_empty() {
            (self.notice)(&why);
        }
        *said = why;
    }
}

impl Occupancy for Occupants {
    fn occupants(&self) -> Vec<Occupant> {
        let claims = match self.checkpoint.look() {
            Ok(claims) => claims,
            Err(error) => {
                self.tell(format!("metrics lack claims: {error}"));
                return Vec::new();
            }
        };
        if claims.is_empty() {
            return Vec::new();
        }
        let asked = async { tokio::time::timeout(PATIENCE, list(&self.socket)).await };
        let listed = self.runtime.block_on(asked);
        let listed = listed.unwrap_or_else(|_| Err("it takes too long".to_owned()));
        let told = listed.as_ref().err().map(|why| {
            format!("metrics lack pods' names: the kubelet at {}: {why}", self.socket.display())
        });
        self.tell(told.unwrap_or_default());
        occupants(&claims, &users(&listed.unwrap_or_default()))
    }
}

async fn list(socket: &Path) -> Result<Vec<PodResources>, String> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()));
    let channel = endpoint.map_err(|error| error.to_string())?.connect().await;
    let channel = channel.map_err(|error| super::runtime::cause(&error))?;
    let mut client = PodResourcesListerClient::new(channel).max_decoding_message_size(ANSWER_MAX);
    let answer = client.list(ListPodResourcesRequest {}).await;
    Ok(answer.map_err(|status| status.to_string())?.into_inner().pod_resources)
}

/// Which containers have which of our claims. A claim is known by the names of its devices, which are ours and have its UID.
fn users(pods: &[PodResources]) -> Users {
    let mut users = Users::new();
    for pod in pods {
        for container in &pod.containers {
            let resources = container.dynamic_resources.iter().flat_map(|one| &one.claim_resources);
            let ours = resources.filter(|one| one.driver_name == names::DRIVER);
            for uid in
                ours.flat_map(|one| &one.cdi_devices).filter_map(|it| cdi::claim_of(&it.name))
            {
                let name = [pod.namespace.clone(), pod.name.clone(), container.name.clone()];
                let of_claim = users.entry(uid.to_owned()).or_default();
                if !of_claim.contains(&name) {
                    of_claim.push(name);
                }
            }
        }
    }
    users
}

/// A claim's shares are one account for all that have it: where several do, none is named.
fn occupants(claims: &Claims, users: &Users) -> Vec<Occupant> {
    let of_claim = claims.iter().flat_map(|(uid, prepared)| {
        let (namespace, claim) = prepared.name.split_once('/').unwrap_or_default();
        let users = users.get(uid).map(Vec::as_slice).unwrap_or_default();
        let the_one = |part: usize| {
            let first = users.first().map(|user| user[part].clone());
            first.filter(|first| users.iter().all(|user| user[part] == *first)).unwrap_or_default()
        };
        let pod = PodName {
            namespace: namespace.to_owned(),
            claim: claim.to_owned(),
            pod: the_one(1),
            container: if users.len() == 1 { the_one(2) } else { String::new() },
        };
        prepared.grants().map(move |grant| Occupant {
            claim: uid.clone(),
            device: grant.device.clone(),
            share: LiveShare::of(grant),
            pod: pod.clone(),
        })
    });
    of_claim.collect()
}

#[cfg(test)]
mod tests;
