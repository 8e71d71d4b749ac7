//! Versions of the API of dynamic resource allocation: v1 is served, others are gone or switched off.

use formats::tree::Entry;

use super::doc::{Doc, get, text, word};
use crate::finding::Finding;
use crate::finding::Severity::Refused;

/// The group with its slash.
const GROUP: &str = "resource.k8s.io/";
/// Parameters of NVIDIA's driver before claims had requests.
const CLASSIC: &str = "gpu.resource.nvidia.com/";
/// Kinds that are in v1 what they are in the betas, but for the requests of claims.
const KINDS: [&str; 3] = ["ResourceClaim", "ResourceClaimTemplate", "DeviceClass"];

/// The version of the group that an object is of; `None` if it is of another group.
pub(super) fn of(object: &Entry) -> Option<&str> {
    word(object, "apiVersion")?.strip_prefix(GROUP)
}

/// A version that servers do not take.
///
/// * `goes_on` — whether what stands below the version is, or can be made, of v1.
pub(super) fn check(doc: &Doc<'_>, object: &Entry, goes_on: bool) -> Option<Finding> {
    let (_, value) = get(object, "apiVersion")?;
    let written = text(value)?;
    let kind = word(object, "kind").unwrap_or_default();
    if written.starts_with(CLASSIC) {
        let happens = format!(
            "{written} was of NVIDIA's driver for claims of up to Kubernetes 1.30, and is gone with them"
        );
        let instead = "a claim carries its driver's configuration itself: spec.devices.config of resource.k8s.io/v1";
        return Some(Finding::new(
            ("api-version-gone", Refused),
            doc.value(value),
            happens,
            instead,
        ));
    }
    let (name, happens) = match written.strip_prefix(GROUP)? {
        "v1alpha1" | "v1alpha2" => (
            "api-version-gone",
            format!(
                "{written} was served up to Kubernetes 1.30 and is gone: `no matches for kind \"{kind}\"`"
            ),
        ),
        "v1alpha3" if KINDS.contains(&kind) => (
            "api-version-gone",
            format!("{written} has no {kind} any more: `no matches for kind \"{kind}\"`"),
        ),
        "v1beta1" | "v1beta2" if KINDS.contains(&kind) => (
            "api-version-off",
            format!(
                "{written} is served only where an administrator has switched it on; v1 is served by every cluster from Kubernetes 1.34 on"
            ),
        ),
        _ => return None,
    };
    let instead = match kind {
        "ResourceClass" => "write a DeviceClass of resource.k8s.io/v1".to_owned(),
        "PodSchedulingContext" => "leave it out: the scheduler does without it".to_owned(),
        _ => "write resource.k8s.io/v1, where the fields of a request stand below `exactly`"
            .to_owned(),
    };
    let edit = (goes_on && KINDS.contains(&kind)).then(|| doc.replace(value, format!("{GROUP}v1")));
    Some(Finding::new((name, Refused), doc.value(value), happens, instead).with(edit.flatten()))
}
