//! Watches of all that is observed; each goes on by itself after errors, with pauses that grow.

use std::fmt::Debug;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::book::Book;
use crate::names;

/// Changes that wait to be taken.
const CHANGES_MAX: usize = 4096;

/// A change of what is observed.
pub(super) enum Change {
    Node(Box<Event<Node>>),
    Pod(Box<Event<Pod>>),
    Claim(Box<Event<ResourceClaim>>),
    Slice(Box<Event<ResourceSlice>>),
    Class(Box<Event<DeviceClass>>),
    Budget(Box<Event<PodDisruptionBudget>>),
    Template(Box<Event<ResourceClaimTemplate>>),
    /// A watch has failed, and goes on after a pause.
    Failed(String),
}

impl Change {
    /// Enters it into the book.
    pub(super) fn enter(self, book: &mut Book) {
        match self {
            Self::Node(event) => book.nodes.take(*event),
            Self::Pod(event) => book.pods.take(*event),
            Self::Claim(event) => book.claims.take(*event),
            Self::Slice(event) => book.slices.take(*event),
            Self::Class(event) => book.classes.take(*event),
            Self::Budget(event) => book.budgets.take(*event),
            Self::Template(event) => book.templates.take(*event),
            Self::Failed(_) => {}
        }
    }
}

/// Watches all kinds until the first of the two is dropped.
pub(super) fn all(client: &Client) -> (JoinSet<()>, mpsc::Receiver<Change>) {
    let (sender, receiver) = mpsc::channel(CHANGES_MAX);
    let mut watches = Watches { client, sender, tasks: JoinSet::new() };
    let ours = Config::default().fields(&format!("spec.driver={}", names::DRIVER));
    watches.begin(Config::default(), Change::Node);
    watches.begin(Config::default(), Change::Pod);
    watches.begin(Config::default(), Change::Claim);
    watches.begin(ours, Change::Slice);
    watches.begin(Config::default(), Change::Class);
    watches.begin(Config::default(), Change::Budget);
    watches.begin(Config::default().labels(names::ASK_LABEL), Change::Template);
    (watches.tasks, receiver)
}

struct Watches<'a> {
    client: &'a Client,
    sender: mpsc::Sender<Change>,
    tasks: JoinSet<()>,
}

impl Watches<'_> {
    fn begin<T>(&mut self, config: Config, change: fn(Box<Event<T>>) -> Change)
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (api, sender) = (Api::<T>::all(self.client.clone()), self.sender.clone());
        self.tasks.spawn(async move {
            let mut events = Box::pin(watcher(api, config).default_backoff());
            loop {
                let seen = match events.try_next().await {
                    Ok(None) => return,
                    Ok(Some(event)) => change(Box::new(event)),
                    // The stream goes on after an error, with a pause.
                    Err(error) => Change::Failed(format!("watching {}: {error}", T::kind(&()))),
                };
                if sender.send(seen).await.is_err() {
                    return;
                }
            }
        });
    }
}
