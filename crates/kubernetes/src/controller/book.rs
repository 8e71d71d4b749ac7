//! What is observed, kept up to date by watches and by the answers to our own writes: whichever is newer counts, so that a cycle
//! never plans on what it has itself changed already.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::Resource;
use kube::runtime::watcher::Event;

use super::observation::{Key, Observation, key};

/// One kind of objects.
#[derive(Debug)]
pub(super) struct Kept<T> {
    all: BTreeMap<Key, Arc<T>>,
    /// What a list that is still coming has brought.
    coming: Option<BTreeMap<Key, Arc<T>>>,
    is_whole: bool,
    /// Whether anything is otherwise than when this was last asked: the echo of an own write is not.
    has_changed: bool,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), coming: None, is_whole: false, has_changed: false }
    }
}

impl<T: Resource> Kept<T> {
    /// Takes what a watch says.
    pub(super) fn take(&mut self, event: Event<T>) {
        match event {
            Event::Init => self.coming = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                let object = self.newer(object);
                self.coming.get_or_insert_default().insert(key(object.meta()), object);
            }
            Event::InitDone => {
                self.all = self.coming.take().unwrap_or_default();
                (self.is_whole, self.has_changed) = (true, true);
            }
            Event::Apply(object) => self.put(object),
            Event::Delete(object) => {
                let key = key(object.meta());
                // One of the same name may have been made since.
                if self.all.get(&key).is_some_and(|known| known.meta().uid == object.meta().uid) {
                    self.all.remove(&key);
                    self.has_changed = true;
                }
            }
        }
    }

    /// Takes an object as the API server has answered it.
    pub(super) fn put(&mut self, object: T) {
        let object = self.newer(object);
        let before = self.all.insert(key(object.meta()), Arc::clone(&object));
        let same = before.is_some_and(|before| {
            (&before.meta().uid, version(before.as_ref()))
                == (&object.meta().uid, version(object.as_ref()))
        });
        self.has_changed |= !same;
    }

    /// Whether anything has changed since this was last asked.
    fn changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// The object, or the one that is known if that is newer.
    fn newer(&self, mut object: T) -> Arc<T> {
        object.meta_mut().managed_fields = None;
        let known =
            self.all.get(&key(object.meta())).filter(|known| known.meta().uid == object.meta().uid);
        match known {
            Some(known) if version(known.as_ref()) > version(&object) => Arc::clone(known),
            _ => Arc::new(object),
        }
    }

    fn values(&self) -> Vec<Arc<T>> {
        self.all.values().cloned().collect()
    }
}

/// Versions of one kind can be compared as numbers (Kubernetes API concepts, "Resource versions"); what is none is the oldest.
fn version<T: Resource>(object: &T) -> u128 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// All kinds that matter.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Nodes.
    pub(super) nodes: Kept<Node>,
    /// Pods.
    pub(super) pods: Kept<Pod>,
    /// Claims.
    pub(super) claims: Kept<ResourceClaim>,
    /// Slices of our driver.
    pub(super) slices: Kept<ResourceSlice>,
    /// Classes.
    pub(super) classes: Kept<DeviceClass>,
    /// Templates that the controller has made.
    pub(super) templates: Kept<ResourceClaimTemplate>,
    /// Budgets of disruption.
    pub(super) budgets: Kept<PodDisruptionBudget>,
}

impl Book {
    /// Whether all kinds have been listed once.
    pub(super) fn is_whole(&self) -> bool {
        self.nodes.is_whole
            && self.pods.is_whole
            && self.claims.is_whole
            && self.slices.is_whole
            && self.classes.is_whole
            && self.budgets.is_whole
            && self.templates.is_whole
    }

    /// Whether anything has changed since this was last asked.
    pub(super) fn changed(&mut self) -> bool {
        let all = [
            self.nodes.changed(),
            self.pods.changed(),
            self.claims.changed(),
            self.slices.changed(),
            self.classes.changed(),
            self.budgets.changed(),
            self.templates.changed(),
        ];
        all.contains(&true)
    }

    /// What is known now.
    pub(super) fn observation(&self) -> Observation {
        Observation {
            nodes: self.nodes.values(),
            pods: self.pods.all.clone(),
            claims: self.claims.all.clone(),
            slices: self.slices.values(),
            classes: self.classes.values(),
            budgets: self.budgets.values(),
            templates: self.templates.all.clone(),
        }
    }
}
