//! The controller: observe, decide, write, observe anew.
//!
//! `book` is what is known, `observation` one moment of it; `world` turns that into the engine's terms (`fleet`: cards, `host`: CPU and memory,
//! `held`: who has what, `ask`: who wants what, `eligible`: which nodes will do,
//! `tried`: from which pods were handed back); `decide` is one cycle; `allocation` is what a claim is given;
//! `act` and `tell` write. All but `act`, `tell` and this file are pure.

mod act;
mod allocation;
mod ask;
mod book;
pub mod decide;
mod eligible;
mod fleet;
mod held;
mod host;
pub mod observation;
mod tell;
pub mod tried;
mod world;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use engine::Planner;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource};
use model::Policy;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use self::book::Book;
use self::tried::Tried;
use crate::names;

/// Writes at once.
const WRITES_MAX: usize = 32;
/// Changes that wait to be taken.
const CHANGES_MAX: usize = 4096;
/// A cycle comes at least so often: what waits is told anew, what was missed is found.
const PERIOD: Duration = Duration::from_secs(10);

/// A change of what is observed.
enum Change {
    Node(Box<Event<Node>>),
    Pod(Box<Event<Pod>>),
    Claim(Box<Event<ResourceClaim>>),
    Slice(Box<Event<ResourceSlice>>),
    Class(Box<Event<DeviceClass>>),
}

/// What happens in the controller, for whoever runs it.
pub trait Log {
    /// Something was done or went wrong.
    fn line(&mut self, text: &str);
}

/// Runs until the channel of changes ends, which is never unless a watch task has died.
///
/// # Errors
/// A watch has ended.
pub async fn run(client: Client, policy: Policy, log: &mut impl Log) -> Result<(), String> {
    let mut changes = watches(&client);
    let (mut book, mut planner, mut tried) =
        (Book::default(), Planner::new(policy), Tried::default());
    loop {
        match tokio::time::timeout(PERIOD, changes.recv()).await {
            Ok(None) => return Err("the watches have ended".into()),
            Ok(Some(change)) => take(&mut book, change),
            Err(_) => {}
        }
        while let Ok(change) = changes.try_recv() {
            take(&mut book, change);
        }
        if book.is_whole() {
            cycle(&client, &mut book, (&mut planner, &mut tried), log).await;
        }
    }
}

async fn cycle(
    client: &Client,
    book: &mut Book,
    (planner, tried): (&mut Planner, &mut Tried),
    log: &mut impl Log,
) {
    let now = Time(Timestamp::now());
    let seen = book.observation();
    let live: BTreeSet<&str> =
        seen.pods.values().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
    tried.keep(|uid| live.contains(uid));
    let decided = decide::decide(&seen, planner, tried, &now, share_id);
    decided.alarms.iter().for_each(|alarm| log.line(alarm));
    let writes =
        stream::iter(decided.acts).map(|act| async move { act::carry_out(client, &act).await });
    let mut writes = writes.buffer_unordered(WRITES_MAX);
    while let Some(written) = writes.next().await {
        written.claims.into_iter().for_each(|claim| book.claims.put(claim));
        written.pods.into_iter().for_each(|pod| book.pods.put(pod));
        written.errors.iter().for_each(|error| log.line(error));
    }
}

fn share_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn take(book: &mut Book, change: Change) {
    match change {
        Change::Node(event) => book.nodes.take(*event),
        Change::Pod(event) => book.pods.take(*event),
        Change::Claim(event) => book.claims.take(*event),
        Change::Slice(event) => book.slices.take(*event),
        Change::Class(event) => book.classes.take(*event),
    }
}

/// Watches all kinds; each goes on by itself after errors, with pauses that grow.
fn watches(client: &Client) -> mpsc::Receiver<Change> {
    let (sender, receiver) = mpsc::channel(CHANGES_MAX);
    let ours = watcher::Config::default().fields(&format!("spec.driver={}", names::DRIVER));
    spawn(
        Api::<Node>::all(client.clone()),
        watcher::Config::default(),
        sender.clone(),
        Change::Node,
    );
    spawn(Api::<Pod>::all(client.clone()), watcher::Config::default(), sender.clone(), Change::Pod);
    spawn(
        Api::<ResourceClaim>::all(client.clone()),
        watcher::Config::default(),
        sender.clone(),
        Change::Claim,
    );
    spawn(Api::<ResourceSlice>::all(client.clone()), ours, sender.clone(), Change::Slice);
    spawn(
        Api::<DeviceClass>::all(client.clone()),
        watcher::Config::default(),
        sender,
        Change::Class,
    );
    receiver
}

fn spawn<T>(
    api: Api<T>,
    config: watcher::Config,
    sender: mpsc::Sender<Change>,
    change: fn(Box<Event<T>>) -> Change,
) where
    T: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    tokio::spawn(async move {
        let mut events = Box::pin(watch::watcher(api, config).default_backoff());
        loop {
            match events.try_next().await {
                // The stream goes on after an error, with a pause.
                Err(_) => {}
                Ok(None) => return,
                Ok(Some(event)) => {
                    if sender.send(change(Box::new(event))).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
}
