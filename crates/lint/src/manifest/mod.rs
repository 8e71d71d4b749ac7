//! Kubernetes objects: pods and what makes them, claims of devices and templates of claims.

mod amounts;
mod claim;
mod doc;
mod folk;
mod names;
mod pod;
mod profiles;
mod version;

use formats::tree::Entry;
use formats::{ReadError, Source};

use crate::card::Card;
use crate::finding::Finding;
use doc::{Doc, at, items, word};

/// What is wrong in a manifest.
///
/// # Errors
/// The first document about GPUs that is no YAML.
pub(crate) fn check(source: &Source, card: Option<&Card>) -> Result<Vec<Finding>, ReadError> {
    let mut found = Vec::new();
    for doc in doc::documents(source)? {
        match word(&doc.tree, "kind") {
            Some("List") => {
                for object in items(&doc.tree, "items") {
                    found.extend(object_of(&doc, object, card));
                }
            }
            _ => found.extend(object_of(&doc, &doc.tree, card)),
        }
    }
    Ok(found)
}

fn object_of(doc: &Doc<'_>, object: &Entry, card: Option<&Card>) -> Vec<Finding> {
    let template =
        |path: &[&str]| at(object, path).and_then(|pod| Some((pod, at(pod, &["spec"])?)));
    let pod = match word(object, "kind").unwrap_or_default() {
        "Pod" => at(object, &["spec"]).map(|spec| (object, spec)),
        "CronJob" => template(&["spec", "jobTemplate", "spec", "template"]),
        "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "Job"
        | "ReplicationController" => template(&["spec", "template"]),
        _ => None,
    };
    let mut found = claim::check(doc, object);
    if let Some((pod, spec)) = pod {
        found.extend(pod::check(doc, pod, spec, card));
    }
    found
}
