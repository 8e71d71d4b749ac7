//! Classes and slices, kept up to date by watches, and what they come to.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

use crate::controller::prospect::Prospect;
use crate::dialect::classes::ClassNames;
use crate::names;

/// What reviews are answered by.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The names of our classes.
    pub(super) names: ClassNames,
    /// What could ever be given.
    pub(super) prospect: Prospect,
}

/// What is known of the cluster.
pub(super) struct Known {
    classes: Store<DeviceClass>,
    slices: Store<ResourceSlice>,
    /// Changes that have come.
    changes: Arc<AtomicU64>,
    /// What they came to, and after how many of them.
    last: Mutex<Option<(u64, Arc<Seen>)>>,
}

impl Known {
    /// Begins to watch; the watches go on while the future that is given back is waited for.
    pub(super) fn watch(client: &Client) -> (Self, impl Future<Output = ()> + use<>) {
        let (classes, of_classes) = reflector::store();
        let (slices, of_slices) = reflector::store();
        let changes = Arc::new(AtomicU64::new(0));
        let (one, other) = (Arc::clone(&changes), Arc::clone(&changes));
        let ours = watcher::Config::default().fields(&format!("spec.driver={}", names::DRIVER));
        let every = watcher::Config::default();
        let classes_come = watcher(Api::<DeviceClass>::all(client.clone()), every)
            .default_backoff()
            .reflect(of_classes)
            .for_each(move |_| count(Arc::clone(&one)));
        let slices_come = watcher(Api::<ResourceSlice>::all(client.clone()), ours)
            .default_backoff()
            .reflect(of_slices)
            .for_each(move |_| count(Arc::clone(&other)));
        let watches = async move {
            tokio::join!(classes_come, slices_come);
        };
        (Self { classes, slices, changes, last: Mutex::new(None) }, watches)
    }

    /// Waits until all has been listed once.
    pub(super) async fn is_whole(&self) {
        let listed = (self.classes.wait_until_ready(), self.slices.wait_until_ready());
        // Both fail only if their watch is gone, and then this program ends.
        let _listed = (listed.0.await, listed.1.await);
    }

    /// What is seen now; made anew only after changes.
    pub(super) fn seen(&self) -> Arc<Seen> {
        let changes = self.changes.load(Ordering::Acquire);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, seen)) = last.as_ref().filter(|(at, _)| *at == changes) {
            return Arc::clone(seen);
        }
        let (classes, slices) = (self.classes.state(), self.slices.state());
        let seen = Arc::new(Seen {
            names: ClassNames::of(&classes),
            prospect: Prospect::of(&classes, &slices),
        });
        *last = Some((changes, Arc::clone(&seen)));
        seen
    }
}

async fn count(changes: Arc<AtomicU64>) {
    changes.fetch_add(1, Ordering::AcqRel);
}

#[cfg(test)]
impl Known {
    /// One that has listed all: our class, and no slice.
    pub(super) fn whole() -> Self {
        use kube::runtime::watcher::Event;
        let (classes, mut of_classes) = reflector::store();
        let (slices, mut of_slices) = reflector::store();
        let opaque = serde_json::json!({"driver": names::DRIVER, "parameters": crate::share::GpuShare::new()});
        let class = serde_json::json!({"metadata": {"name": names::CLASS}, "spec": {"config": [{"opaque": opaque}]}});
        of_classes.apply_watcher_event(&Event::Init);
        of_classes.apply_watcher_event(&Event::InitApply(
            serde_json::from_value(class).unwrap_or_default(),
        ));
        of_classes.apply_watcher_event(&Event::InitDone);
        of_slices.apply_watcher_event(&Event::<ResourceSlice>::Init);
        of_slices.apply_watcher_event(&Event::<ResourceSlice>::InitDone);
        Self { classes, slices, changes: Arc::default(), last: Mutex::new(None) }
    }
}
