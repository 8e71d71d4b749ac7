//! The webhook: pods that ask for GPUs come to the controller in one form, and what can never run is refused with what could.
//!
//! `answer` is what a review is told (`claims` reads what it needs of the cluster, `known` is what is kept of it), `serve` is what may be
//! asked; certificates and connections are those of `https`.

mod answer;
mod claims;
mod known;
mod serve;

use std::net::SocketAddr;
use std::sync::Arc;

use kube::Client;
use model::Policy;
use tokio::sync::watch;

use self::claims::Cluster;
use self::known::Known;
use self::serve::Door;
use crate::https::trust::{By, Trust};
use crate::https::{Called, listen};

/// How the webhook is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its namespace, where its Secret is.
    pub namespace: String,
    /// Its Service, and its Secret of the same name.
    pub service: String,
    /// The MutatingWebhookConfiguration that leads to it.
    pub configuration: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// More names and addresses that its certificate is for.
    pub also_named: Vec<String>,
    /// The controller's policy: what it lists decides what can ever run.
    pub policy: Policy,
    /// Told what happens, line by line.
    pub say: fn(&str),
}

/// Runs until `end` comes, and then until open requests are answered.
///
/// # Errors
/// The address cannot be had, or a watch has ended.
pub async fn run(
    client: Client,
    options: Options,
    end: impl Future<Output = ()>,
) -> Result<(), String> {
    let listener = listen::bind(options.listen).await?;
    let (known, watches) = Known::watch(&client);
    let (keys, current) = watch::channel(None);
    let Options { namespace, service, configuration, also_named, policy, say, .. } = options;
    let called = Called { namespace, service, also_named };
    let trust = Trust { client: client.clone(), called, by: By::Webhooks(configuration), say };
    let door = Arc::new(Door { known, cluster: Cluster(client), policy, keys: current });
    tokio::select! {
        () = listen::serve(listener, door, end) => Ok(()),
        () = trust.keep(&keys) => Ok(()),
        () = watches => Err("the watches have ended".into()),
    }
}
