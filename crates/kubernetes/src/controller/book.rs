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

/// What is not kept of objects: memory must not grow with what users write and nobody here reads.
pub(super) trait Slim: Resource {
    /// Lets go of it.
    fn slim(&mut self) {}
}

impl Slim for Node {
    fn slim(&mut self) {
        self.status.iter_mut().for_each(|status| status.images = None);
    }
}

impl Slim for Pod {
    fn slim(&mut self) {
        let Some(spec) = &mut self.spec else { return };
        spec.volumes = None;
        let first = spec.init_containers.iter_mut().flatten();
        for container in first.chain(&mut spec.containers) {
            (container.env, container.command, container.args) = (None, None, None);
        }
    }
}

impl Slim for ResourceClaim {}
impl Slim for ResourceClaimTemplate {}
impl Slim for ResourceSlice {}
impl Slim for DeviceClass {}
impl Slim for PodDisruptionBudget {}

impl<T: Slim> Kept<T> {
    /// Takes what a watch says.
    pub(super) fn take(&mut self, event: Event<T>) {
        match event {
            Event::Init => self.coming = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                let object = self.newer(object);
                self.coming.get_or_insert_default().insert(key(object.meta()), object);
            }
            Event::InitDone => {
                // Of what was answered to our own writes meanwhile the list may have older versions.
                let before =
                    std::mem::replace(&mut self.all, self.coming.take().unwrap_or_default());
                for (key, known) in before {
                    if let Some(listed) = self.all.get_mut(&key) {
                        *listed = newest(&known, listed);
                    }
                }
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
        let meta = object.meta_mut();
        (meta.managed_fields, meta.annotations) = (None, None);
        object.slim();
        let object = Arc::new(object);
        let known = self.all.get(&key(object.meta()));
        known.map_or_else(|| Arc::clone(&object), |known| newest(known, &object))
    }

    fn values(&self) -> Vec<Arc<T>> {
        self.all.values().cloned().collect()
    }
}

/// What is known of an object, unless the other one is newer or another object.
fn newest<T: Resource>(known: &Arc<T>, object: &Arc<T>) -> Arc<T> {
    let is_same = known.meta().uid == object.meta().uid;
    let is_older = is_same && version(object.as_ref()) < version(known.as_ref());
    Arc::clone(if is_older { known } else { object })
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(version: &str, node: &str) -> Pod {
        let meta = json!({
            "name": "p", "uid": "1", "resourceVersion": version, "annotations": {"much": "x".repeat(1000)},
        });
        let container = json!({"name": "main", "env": [{"name": "A", "value": "b"}]});
        let pod = json!({"metadata": meta, "spec": {"nodeName": node, "containers": [container]}});
        serde_json::from_value(pod).unwrap()
    }

    fn node(kept: &Kept<Pod>) -> Option<&str> {
        let (_, pod) = kept.all.first_key_value()?;
        pod.spec.as_ref()?.node_name.as_deref()
    }

    #[test]
    fn what_was_answered_while_a_list_came_is_not_forgotten() {
        let mut kept = Kept::default();
        kept.take(Event::Init);
        kept.take(Event::InitApply(pod("5", "old")));
        kept.put(pod("7", "new"));
        kept.take(Event::InitDone);
        assert_eq!(node(&kept), Some("new"));
        kept.take(Event::Init);
        kept.take(Event::InitApply(pod("9", "newest")));
        kept.take(Event::InitDone);
        assert_eq!(node(&kept), Some("newest"));
        kept.take(Event::Init);
        kept.take(Event::InitDone);
        assert_eq!(node(&kept), None, "what is not listed is gone");
    }

    #[test]
    fn what_users_write_and_nobody_reads_is_not_kept() {
        let mut kept = Kept::default();
        kept.put(pod("1", "n1"));
        let (_, pod) = kept.all.first_key_value().unwrap();
        assert_eq!(pod.metadata.annotations, None);
        assert_eq!(pod.spec.as_ref().unwrap().containers[0].env, None);
    }
}
