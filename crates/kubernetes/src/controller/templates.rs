//! Templates of claims for asks by resource names: made when a pod names one that is not there, deleted when none does any more. The
//! webhook that has the pod name it writes nothing itself. What is to be done is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaimTemplate, ResourceClaimTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};

use super::act::Written;
use super::observation::{Key, Observation, is_over, key};
use crate::dialect::ask::Ask;
use crate::dialect::classes::ClassNames;
use crate::names;

/// What no pod names stays for so long: a pod that was let in may still be on its way to us.
const UNUSED_MS: i64 = 60_000;

/// Something to do about a template.
#[derive(Clone, Debug)]
pub enum Change {
    /// Make it.
    Make(Box<ResourceClaimTemplate>),
    /// Delete it.
    Delete(Arc<ResourceClaimTemplate>),
}

/// What is to be done now.
pub(super) fn changes(seen: &Observation, now: &Time) -> Vec<Change> {
    let classes = ClassNames::of(&seen.classes);
    let (mut wanted, mut named) = (BTreeMap::new(), BTreeSet::new());
    for pod in seen.pods.values() {
        for (template, is_open) in templates_of(pod) {
            if let Some(ask) = is_open.then(|| classes.ask(&template.1)).flatten() {
                wanted.insert(template.clone(), ask);
            }
            named.insert(template);
        }
    }
    let missing = wanted.iter().filter(|(template, _)| !seen.templates.contains_key(*template));
    let made = missing.map(|(template, ask)| Change::Make(Box::new(made(template, ask))));
    let unused = seen.templates.iter().filter(|(template, found)| {
        let at = found.metadata.creation_timestamp.as_ref();
        let age_ms = at.map(|at| now.0.as_millisecond() - at.0.as_millisecond());
        let is_ours = classes.ask(&template.1).is_some();
        is_ours && !named.contains(*template) && age_ms.is_some_and(|age_ms| age_ms > UNUSED_MS)
    });
    made.chain(unused.map(|(_, found)| Change::Delete(Arc::clone(found)))).collect()
}

/// The templates that a pod names, and whether its claim of each has still to be made.
fn templates_of(pod: &Pod) -> impl Iterator<Item = (Key, bool)> {
    let (namespace, _) = key(&pod.metadata);
    let is_leaving = is_over(pod) || pod.metadata.deletion_timestamp.is_some();
    let made: BTreeSet<&str> = pod
        .status
        .iter()
        .flat_map(|status| status.resource_claim_statuses.iter().flatten())
        .map(|one| one.name.as_str())
        .collect();
    let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    claims.filter_map(move |claim| {
        let template = claim.resource_claim_template_name.clone()?;
        Some(((namespace.clone(), template), !is_leaving && !made.contains(claim.name.as_str())))
    })
}

fn made((namespace, name): &Key, ask: &Ask) -> ResourceClaimTemplate {
    ResourceClaimTemplate {
        metadata: ObjectMeta {
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            labels: Some(BTreeMap::from([(names::ASK_LABEL.to_owned(), "true".to_owned())])),
            ..ObjectMeta::default()
        },
        spec: ResourceClaimTemplateSpec { spec: ask.claim(), ..Default::default() },
    }
}

/// Carries out one change. That somebody was faster is nothing wrong.
pub(super) async fn carry_out(client: &Client, change: &Change, written: &mut Written) {
    match change {
        Change::Make(template) => {
            let (namespace, name) = key(&template.metadata);
            let api: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), &namespace);
            match api.create(&PostParams::default(), template).await {
                Ok(made) => written.templates.push(made),
                // One of that name is there, made by a user: it will do.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => written.went_wrong(&format!("template {namespace}/{name}"), &error),
            }
        }
        Change::Delete(template) => {
            let meta = &template.metadata;
            let (namespace, name) = key(meta);
            let api: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), &namespace);
            let preconditions = Preconditions {
                uid: meta.uid.clone(),
                resource_version: meta.resource_version.clone(),
            };
            let only_it =
                DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            if let Err(error) = api.delete(&name, &only_it).await {
                written.went_wrong(&format!("template {namespace}/{name}"), &error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::share::GpuShare;

    const TEMPLATE: &str = "hotpot-1x10240mib-300m";

    fn seen(pods: &[Value], templates: &[(&str, &str)]) -> Observation {
        let opaque = json!({"driver": names::DRIVER, "parameters": GpuShare::new()});
        let class =
            json!({"metadata": {"name": names::CLASS}, "spec": {"config": [{"opaque": opaque}]}});
        let mut seen = Observation {
            classes: vec![Arc::new(serde_json::from_value(class).unwrap())],
            ..Observation::default()
        };
        for pod in pods {
            let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
            seen.pods.insert(key(&pod.metadata), Arc::new(pod));
        }
        for (name, at) in templates {
            let meta = json!({"namespace": "team", "name": name, "creationTimestamp": at});
            let template = json!({"metadata": meta, "spec": {"spec": {}}});
            let template: ResourceClaimTemplate = serde_json::from_value(template).unwrap();
            seen.templates.insert(key(&template.metadata), Arc::new(template));
        }
        seen
    }

    fn pod(name: &str, template: &str, status: Value) -> Value {
        let claims = json!([{"name": "hotpot", "resourceClaimTemplateName": template}]);
        let spec = json!({"containers": [], "resourceClaims": claims});
        json!({"metadata": {"namespace": "team", "name": name}, "spec": spec, "status": status})
    }

    /// The changes a minute and a half past midnight.
    fn told(seen: &Observation) -> Vec<String> {
        let now: Time = serde_json::from_value(json!("2026-01-01T00:01:30Z")).unwrap();
        let one = |change: Change| match change {
            Change::Make(template) => format!("make {}", key(&template.metadata).1),
            Change::Delete(template) => format!("delete {}", key(&template.metadata).1),
        };
        changes(seen, &now).into_iter().map(one).collect()
    }

    #[test]
    fn a_template_that_a_pod_names_is_made_once_and_others_are_left_to_users() {
        let pods = [
            pod("a", TEMPLATE, json!({})),
            pod("b", TEMPLATE, json!({})),
            pod("c", "own", json!({})),
            pod("over", "hotpot-1xcard", json!({"phase": "Failed"})),
        ];
        assert_eq!(told(&seen(&pods, &[])), [format!("make {TEMPLATE}")]);
        assert!(told(&seen(&pods, &[(TEMPLATE, "2026-01-01T00:00:00Z")])).is_empty());
        let has = json!({"resourceClaimStatuses": [{"name": "hotpot", "resourceClaimName": "it"}]});
        assert!(told(&seen(&[pod("a", TEMPLATE, has)], &[])).is_empty());
        let Some(Change::Make(template)) =
            changes(&seen(&pods, &[]), &Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH)).pop()
        else {
            panic!("nothing is made")
        };
        let written = serde_json::to_value(&template.spec.spec).unwrap();
        let parameters = &written["devices"]["config"][0]["opaque"]["parameters"];
        assert_eq!(
            (&parameters["memoryMiB"], &parameters["computeMilli"]),
            (&json!(10_240), &json!(300))
        );
        assert_eq!(template.metadata.labels.unwrap()[names::ASK_LABEL], "true");
    }

    #[test]
    fn a_template_that_no_pod_names_goes_after_a_minute() {
        // The last is a user's own, whatever its label says.
        let old = "2026-01-01T00:00:00Z";
        let young = "2026-01-01T00:00:45Z";
        let templates = [("hotpot-1xcard", old), ("hotpot-2xcard", young), ("mine", old)];
        assert_eq!(told(&seen(&[], &templates)), ["delete hotpot-1xcard"]);
        assert!(told(&seen(&[pod("a", "hotpot-1xcard", json!({}))], &templates)).is_empty());
    }
}
