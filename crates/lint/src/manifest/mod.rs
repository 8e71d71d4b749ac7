//! Kubernetes objects: pods and what makes them, claims of devices and templates of claims.

mod amounts;
mod claim;
mod doc;
mod folk;
mod names;
mod pod;
mod profiles;
mod version;

use formats::tree::{Entry, Value};
use formats::{ReadError, Source};

use crate::card::Card;
use crate::finding::Finding;
use doc::{at, fields, items, word};

/// What is wrong in a manifest.
///
/// # Errors
/// The first document about GPUs that is no YAML.
pub(crate) fn check(source: &Source, card: Option<&Card>) -> Result<Vec<Finding>, ReadError> {
    let mut found = Vec::new();
    for doc in doc::documents(source)? {
        let kind = word(&doc.tree, "kind").unwrap_or_default();
        let is_list = kind.ends_with("List");
        let listed = items(&doc.tree, "items").iter().filter(|_| is_list);
        for object in std::iter::once(&doc.tree).filter(|_| !is_list).chain(listed) {
            found.extend(claim::check(&doc, object));
            let is_pod = kind == "PodList" || word(object, "kind") == Some("Pod");
            for (pod, spec) in pods(object, is_pod) {
                found.extend(pod::check(&doc, pod, spec, card));
            }
        }
    }
    Ok(found)
}

/// The pods in an object, each with its spec: the object itself, and templates in whatever makes pods, so that the kinds of
/// operators (PyTorchJob, RayCluster, JobSet) are read without being known.
///
/// * `is_pod` — whether the object is one itself.
fn pods(object: &Entry, is_pod: bool) -> Vec<(&Entry, &Entry)> {
    let (mut pods, mut left) = (Vec::new(), vec![(object, is_pod)]);
    while let Some((entry, is_pod)) = left.pop() {
        pods.extend(at(entry, &["spec"]).filter(|_| is_pod).map(|spec| (entry, spec)));
        left.extend(fields(entry).map(|(key, value)| (value, key.name.ends_with("emplate"))));
        if let Value::List(items) = &entry.value {
            left.extend(items.iter().map(|item| (item, false)));
        }
    }
    pods
}
