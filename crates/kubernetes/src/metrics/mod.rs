//! What pods use of GPUs, where the API server and autoscalers look for it: an aggregated API server for `external.metrics.k8s.io`.
//!
//! `agents` are asked now and then by `gather`; `figures` is what their words come to for each pod, `api` what is answered, `door` who may
//! ask and how, `front` how callers are known. Certificates and connections are those of `https`.

mod agents;
mod api;
mod door;
mod figures;
mod front;
mod gather;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;

pub use self::agents::Agents;
use self::door::MetricsDoor;
use self::figures::Book;
use self::front::Front;
use crate::https::trust::{By, Trust};
use crate::https::{Called, listen};

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its namespace, where its Secret is.
    pub namespace: String,
    /// Its Service, and its Secret of the same name.
    pub service: String,
    /// More names and addresses that its certificate is for.
    pub also_named: Vec<String>,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who is asked.
    pub agents: Agents,
    /// The bearer token that agents want.
    pub token: Option<String>,
    /// How often they are asked.
    pub every: Duration,
    /// Told what happens, line by line.
    pub say: fn(&str),
}

/// Runs until `end` comes, and then until open requests are answered.
///
/// # Errors
/// The address cannot be had.
pub async fn run(
    client: Client,
    options: Options,
    end: impl Future<Output = ()>,
) -> Result<(), String> {
    let listener = listen::bind(options.listen).await?;
    let Options { namespace, service, also_named, agents, token, every, say, .. } = options;
    let (keys, of_keys) = watch::channel(None);
    let (front, of_front) = watch::channel(Front::default());
    let book = Arc::new(Mutex::new(Book::default()));
    let by = By::Aggregator(api::service());
    let called = Called { namespace, service, also_named };
    let trust = Trust { client: client.clone(), called, by, say };
    let gather = gather::Gather { client: client.clone(), agents, token, every, say };
    let door = MetricsDoor {
        keys: of_keys,
        front: of_front,
        book: Arc::clone(&book),
        pods: client.clone(),
    };
    tokio::select! {
        () = listen::serve(listener, Arc::new(door), end) => {}
        () = trust.keep(&keys) => {}
        () = front::keep(&client, &front, say) => {}
        () = gather.run(&book) => {}
    }
    Ok(())
}
