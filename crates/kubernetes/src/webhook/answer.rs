//! What a review is answered: let in as it is, changed, or refused. Nothing is written.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use model::Policy;
use serde_json::Value;

use super::claims::{Claims, Read};
use super::known::Seen;
use crate::dialect::resources::Asking;
use crate::dialect::{pod, resources};

/// Claims of a pod that are looked at.
const CLAIMS_MAX: usize = 32;
/// Letters of a warning (admission webhooks' guidelines: 120, beyond which servers may cut).
const WARNING_MAX: usize = 256;

/// Answers for a pod that is to be created.
pub(super) async fn to_pod(
    request: &AdmissionRequest<DynamicObject>,
    seen: &Seen,
    claims: &impl Claims,
    policy: &Policy,
) -> AdmissionResponse {
    let response = AdmissionResponse::from(request);
    let Some(sent) = request.object.as_ref().and_then(|it| serde_json::to_value(it).ok()) else {
        return response;
    };
    let Ok(read) = serde_json::from_value::<Pod>(sent.clone()) else { return response };
    let Some(spec) = read.spec.as_ref().filter(|_| !resources::is_ignored(&read)) else {
        return response;
    };
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let asking = match resources::read(spec, &seen.names) {
        Ok(asking) => asking,
        Err(why) => return response.deny(why),
    };
    // Who names the node passes by the scheduler: nobody would give it anything.
    if spec.node_name.is_some() {
        return match asking.found.is_empty() || is_mirror(&read) {
            true => response,
            false => response.deny(NAMES_ITS_NODE),
        };
    }
    let named = of_ours(spec, namespace, seen, claims).await;
    if asking.found.is_empty() && named.is_empty() {
        return response;
    }
    if let Err(why) = could_be_given(&asking, &named, (seen, policy, namespace)) {
        return response.deny(why);
    }
    let warnings = asking.warnings.iter().cloned().chain(unused(spec, &named));
    let mut response = changed(response, &sent, &asking);
    let warnings: Vec<String> = warnings.map(|text| cut(&text)).collect();
    response.warnings = (!warnings.is_empty()).then_some(warnings);
    response
}

const NAMES_ITS_NODE: &str = "spec.nodeName has the pod pass by the scheduler, and it would run without a GPU; name the node by a nodeSelector, such as \
                              kubernetes.io/hostname, and leave nodeName out";

/// Whether a kubelet tells of a pod of its own files, which runs already.
fn is_mirror(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror"))
}

/// Answers for a claim or a template of claims.
pub(super) fn to_claim(
    request: &AdmissionRequest<DynamicObject>,
    seen: &Seen,
) -> AdmissionResponse {
    let response = AdmissionResponse::from(request);
    let spec = request.object.as_ref().map(|object| &object.data["spec"]);
    let spec = spec.map(|spec| spec.get("spec").unwrap_or(spec).clone());
    let Some(Ok(spec)) = spec.map(serde_json::from_value::<ResourceClaimSpec>) else {
        return response;
    };
    if !seen.prospect.concerns(&spec) {
        return response;
    }
    match seen.prospect.is_sound(&spec) {
        Ok(()) => response,
        Err(why) => response.deny(why),
    }
}

/// The claims that a pod names and that are of our classes, with their names in the pod.
async fn of_ours(
    spec: &PodSpec,
    namespace: &str,
    seen: &Seen,
    claims: &impl Claims,
) -> Vec<(String, Read)> {
    let named = spec.resource_claims.iter().flatten().take(CLAIMS_MAX);
    let all = named.map(|claim| async move {
        let by_name = claim.resource_claim_template_name.as_deref();
        let asked = by_name.and_then(|template| seen.names.ask(template));
        let read = match asked {
            Some(ask) => Some(Read { spec: ask.claim(), is_allocated: false }),
            None => claims.read(namespace, claim).await,
        };
        read.map(|read| (claim.name.clone(), read))
    });
    let read = futures::future::join_all(all).await.into_iter().flatten();
    read.filter(|(_, read)| seen.prospect.concerns(&read.spec)).collect()
}

fn could_be_given(
    asking: &Asking,
    named: &[(String, Read)],
    (seen, policy, namespace): (&Seen, &Policy, &str),
) -> Result<(), String> {
    let open = named.iter().filter(|(_, read)| !read.is_allocated);
    let specs: Vec<ResourceClaimSpec> = open
        .map(|(_, read)| read.spec.clone())
        .chain(asking.found.iter().map(|found| found.ask.claim()))
        .collect();
    if specs.is_empty() {
        return Ok(());
    }
    seen.prospect.could_be_given(&specs, namespace, policy)
}

/// The pod with claims for resources, and our gate.
fn changed(response: AdmissionResponse, sent: &Value, asking: &Asking) -> AdmissionResponse {
    let mut changed = sent.clone();
    pod::translate(&mut changed, &asking.found);
    pod::gate(&mut changed);
    let patch = json_patch::diff(sent, &changed);
    if patch.is_empty() {
        return response;
    }
    response.clone().with_patch(patch).unwrap_or(response)
}

/// Claims that no container is given.
fn unused<'a>(spec: &'a PodSpec, named: &'a [(String, Read)]) -> impl Iterator<Item = String> + 'a {
    let used = |name: &str| {
        resources::containers(spec)
            .filter_map(|(_, container)| container.resources.as_ref()?.claims.as_ref())
            .flatten()
            .any(|claim| claim.name == name)
    };
    named.iter().filter(move |(name, _)| !used(name)).map(|(name, _)| {
        format!("no container has claim {name} in its resources.claims: none will see its devices")
    })
}

fn cut(text: &str) -> String {
    text.chars().take(WARNING_MAX).collect()
}

#[cfg(test)]
mod tests;
