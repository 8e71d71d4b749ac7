//! Brings the slices of this node in the API server to what the node offers.
//!
//! The kubelet removes all slices of its node when it starts, and a driver's 30 s after it has lost it; whoever has
//! published them must do it again. Of two plugins during an upgrade the one that started last publishes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::watcher;
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_stream::StreamExt;

use super::devices::Offers;
use super::look::Seen;
use super::slices::{Changes, Features, Pool, changes, is_same, wanted};
use super::{Notice, probe};
use crate::names;

/// How often the stored slices are looked at when nothing seems to happen.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// A burst of events is answered once.
const SETTLED: Duration = Duration::from_millis(200);
/// After failures in a row it waits longer each time, up to this.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// In the state folder: which plugin publishes.
const MARK: &str = "publisher";

/// What keeps slices from being published.
#[derive(Debug, Error)]
pub enum PublishError {
    /// The API server.
    #[error("{what} cannot be {done}: {source}; may the plugin's service account do that?", source = source)]
    Server {
        /// `ResourceSlice NAME`, or `Node NAME`.
        what: String,
        /// `read`, `created` and so on.
        done: &'static str,
        /// What it says.
        source: Box<kube::Error>,
    },
    /// It is not stored as it was sent.
    #[error("ResourceSlice {name} is not stored as it was sent: the API server drops a part of it")]
    Dropped {
        /// Which.
        name: String,
    },
    /// The file that says who publishes.
    #[error("{}: {source}; which plugin publishes cannot be said: free some space", path.display())]
    Mark {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Whoever publishes the node's devices.
pub(super) struct Publisher {
    slices: Api<ResourceSlice>,
    nodes: Api<Node>,
    node: String,
    effect: &'static str,
    mark: Mark,
    features: Option<Features>,
    /// Told to those who prepare claims.
    whole_only: Arc<AtomicBool>,
    notice: Notice,
}

impl Publisher {
    pub(super) fn new(
        client: kube::Client,
        (node, effect): (&str, &'static str),
        mark: Mark,
        whole_only: Arc<AtomicBool>,
        notice: Notice,
    ) -> Self {
        let (slices, nodes) = (Api::all(client.clone()), Api::all(client));
        let node = node.to_owned();
        Self { slices, nodes, node, effect, mark, features: None, whole_only, notice }
    }

    /// Publishes whenever something has changed, here or there; ends with whoever looks at the machine.
    pub(super) async fn run(mut self, mut seen: watch::Receiver<Seen>, again: Arc<Notify>) {
        let config = watcher::Config::default().fields(&self.selector());
        let mut events = std::pin::pin!(watcher(self.slices.clone(), config));
        let mut offers = Offers::clone(&seen.borrow_and_update().offers);
        let mut wait = SETTLED;
        let (mut due, mut not_before) = (Instant::now(), Instant::now());
        loop {
            let soon = (Instant::now() + SETTLED).max(not_before);
            tokio::select! {
                changed = seen.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let now = &seen.borrow_and_update().offers;
                    if **now != offers {
                        offers.clone_from(now);
                        due = due.min(soon);
                    }
                }
                () = again.notified() => due = due.min(soon),
                // What is missed by a watch that fails is seen when the time has come.
                Some(Ok(_)) = events.next() => due = due.min(soon),
                () = tokio::time::sleep_until(due) => {
                    let published = self.publish(&offers).await;
                    wait = published.as_ref().map_or((wait * 2).min(WAIT_MAX), |()| SETTLED);
                    not_before = Instant::now() + wait;
                    due = if published.is_ok() { Instant::now() + LOOK_AGAIN } else { not_before };
                    if let Err(error) = published {
                        (self.notice)(&format!("devices are not published: {error}"));
                    }
                }
            }
        }
    }

    fn selector(&self) -> String {
        format!("spec.nodeName={},spec.driver={}", self.node, names::DRIVER)
    }

    /// Brings what is stored to what is offered.
    ///
    /// # Errors
    /// [`PublishError`]; what was changed by then stays.
    pub(super) async fn publish(&mut self, offers: &Offers) -> Result<(), PublishError> {
        if !self.mark.is_ours()? {
            return Ok(());
        }
        let node = self.nodes.get(&self.node).await;
        let node = node.map_err(server(format!("Node {}", self.node), "read"))?;
        let node_uid = node.metadata.uid.unwrap_or_default();
        let features = self.features(&node_uid).await?;
        let pool = Pool { node: self.node.clone(), node_uid, effect: self.effect, features };
        let stored = self.slices.list(&ListParams::default().fields(&self.selector())).await;
        let stored =
            stored.map_err(server(format!("ResourceSlices of {}", self.node), "listed"))?;
        let changes = changes(&stored.items, wanted(offers, &pool));
        if changes.is_empty() {
            return Ok(());
        }
        self.carry_out(changes).await
    }

    async fn features(&mut self, node_uid: &str) -> Result<Features, PublishError> {
        if let Some(known) = self.features {
            return Ok(known);
        }
        let found = probe::features(&self.slices, &self.node, node_uid).await?;
        for missing in found.missing() {
            (self.notice)(missing);
        }
        self.whole_only.store(!found.shares, Ordering::Relaxed);
        self.features = Some(found);
        Ok(found)
    }

    /// Old ones last: readers pass over them once a newer generation is there.
    async fn carry_out(&mut self, changes: Changes) -> Result<(), PublishError> {
        let post = PostParams::default();
        for slice in &changes.replace {
            let name = slice.metadata.name.clone().unwrap_or_default();
            let stored = self.slices.replace(&name, &post, slice).await;
            let stored = stored.map_err(server(format!("ResourceSlice {name}"), "replaced"))?;
            self.is_kept(&stored, slice, name)?;
        }
        for slice in &changes.create {
            let name = slice.metadata.name.clone().unwrap_or_default();
            let stored = self.slices.create(&post, slice).await;
            let stored = stored.map_err(server(format!("ResourceSlice {name}"), "created"))?;
            self.is_kept(&stored, slice, name)?;
        }
        for name in &changes.delete {
            match self.slices.delete(name, &DeleteParams::default()).await {
                Err(error) if !is_absent(&error) => {
                    return Err(server(format!("ResourceSlice {name}"), "deleted")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What the server can keep may have changed: it is asked anew then.
    fn is_kept(
        &mut self,
        stored: &ResourceSlice,
        sent: &ResourceSlice,
        name: String,
    ) -> Result<(), PublishError> {
        if is_same(stored, sent) {
            return Ok(());
        }
        self.features = None;
        Err(PublishError::Dropped { name })
    }
}

pub(super) fn server(what: String, done: &'static str) -> impl FnOnce(kube::Error) -> PublishError {
    move |source| PublishError::Server { what, done, source: Box::new(source) }
}

fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The file that says which plugin publishes: the one that was started last, and none that is older, or they would
/// undo each other's work.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    path: PathBuf,
    instance: String,
}

impl Mark {
    /// Says that it is this one from now on.
    pub(super) fn set(state: &Path, instance: &str) -> Result<Self, PublishError> {
        let mark = Self { path: state.join(MARK), instance: instance.to_owned() };
        node::whole::write(&mark.path, instance, 0o600)
            .map_err(|source| PublishError::Mark { path: mark.path.clone(), source })?;
        Ok(mark)
    }

    /// Whether it is this one. Where nobody is named, the one who was has ended in order, and left it to the others.
    fn is_ours(&self) -> Result<bool, PublishError> {
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(text == self.instance),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::set(self.path.parent().unwrap_or(Path::new(".")), &self.instance)
                    .map(|_| true)
            }
            Err(source) => Err(PublishError::Mark { path: self.path.clone(), source }),
        }
    }

    /// Leaves it to another one.
    pub(super) fn clear(&self) {
        if self.is_ours().is_ok_and(|ours| ours) {
            // At worst the other one waits until it is started again.
            let _left = fs::remove_file(&self.path);
        }
    }
}
