//! What can be asked, and the form of the answers: Kubernetes' external metrics API. Pure.

use hyper::StatusCode;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::figures::{Figure, Metric};

const GROUP: &str = "external.metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// Letters of a name (RFC 1123 subdomain).
const NAME_MAX: usize = 253;

/// The APIService that leads here.
pub(super) fn service() -> String {
    format!("{VERSION}.{GROUP}")
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// What there is: answered with a document.
    About(Value),
    /// Values of a metric, of the pods of a namespace that a selector matches.
    Values { namespace: String, metric: Metric, selector: String },
}

/// Why it is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }

    /// As clients of Kubernetes read it.
    pub(super) fn document(&self) -> Value {
        let reason = self.status.canonical_reason().unwrap_or_default().replace(' ', "");
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.why, "reason": reason, "code": self.status.as_u16(),
        })
    }
}

/// Reads a request.
///
/// # Errors
/// There is no such thing here.
pub(super) fn ask(path: &str, query: &str) -> Result<Ask, Refusal> {
    let none = || Refusal::new(StatusCode::NOT_FOUND, format!("there is no {path} here"));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["apis"] => Ok(Ask::About(groups())),
        ["apis", GROUP] => Ok(Ask::About(group("v1"))),
        ["apis", GROUP, VERSION] => Ok(Ask::About(resources())),
        ["apis", GROUP, VERSION, "namespaces", namespace, metric] => {
            let known = Metric::named(metric).ok_or_else(|| {
                let all = Metric::ALL.map(Metric::as_str).join(", ");
                Refusal::new(
                    StatusCode::NOT_FOUND,
                    format!("no metric `{metric}`; there are {all}"),
                )
            })?;
            if !is_name(namespace) {
                return Err(none());
            }
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            let selector = pairs.find(|(name, _)| name == "labelSelector");
            let selector = selector.map(|(_, text)| text.into_owned()).unwrap_or_default();
            Ok(Ask::Values { namespace: (*namespace).to_owned(), metric: known, selector })
        }
        _ => Err(none()),
    }
}

fn is_name(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_fine)
}

fn groups() -> Value {
    let mut group = group("v1");
    if let Some(object) = group.as_object_mut() {
        object.remove("kind");
        object.remove("apiVersion");
    }
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})
}

fn group(api_version: &str) -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({
        "kind": "APIGroup", "apiVersion": api_version, "name": GROUP,
        "versions": [version], "preferredVersion": version,
    })
}

fn resources() -> Value {
    let resource = |metric: Metric| {
        json!({
            "name": metric.as_str(), "singularName": "", "namespaced": true,
            "kind": "ExternalMetricValueList", "verbs": ["list"],
        })
    };
    let all: Vec<Value> = Metric::ALL.into_iter().map(resource).collect();
    let version = format!("{GROUP}/{VERSION}");
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": all})
}

/// * `found` — pods and what is known of them.
pub(super) fn values(namespace: &str, metric: Metric, found: &[(String, Figure)]) -> Value {
    let item = |(pod, figure): &(String, Figure)| {
        let at = Timestamp::from_second(figure.at_ms / 1000).unwrap_or_default();
        json!({
            "metricName": metric.as_str(), "metricLabels": {"namespace": namespace, "pod": pod},
            "timestamp": at.to_string(), "windowSeconds": figure.window_ms / 1000,
            "value": figure.value.to_string(),
        })
    };
    let items: Vec<Value> = found.iter().map(item).collect();
    json!({
        "kind": "ExternalMetricValueList", "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {}, "items": items,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "/apis/external.metrics.k8s.io/v1beta1";

    #[test]
    fn a_question_is_read_with_its_selector() {
        let path = format!("{ROOT}/namespaces/team/hotpot_gpu_busy_milli");
        let asked = ask(&path, "limit=1&labelSelector=app%3Dweb%2Ctier+in+%28a%2Cb%29").unwrap();
        let (namespace, selector) = ("team".to_owned(), "app=web,tier in (a,b)".to_owned());
        assert_eq!(asked, Ask::Values { namespace, metric: Metric::Busy, selector });
        let Ask::Values { selector, .. } = ask(&path, "").unwrap() else { panic!() };
        assert_eq!(selector, "");
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        for path in [
            "/",
            "/openapi/v2",
            "/apis/apps",
            &format!("{ROOT}/pods"),
            &format!("{ROOT}/namespaces/team"),
            &format!("{ROOT}/namespaces/../hotpot_gpu_busy_milli"),
            &format!("{ROOT}/namespaces/a%2Fb/hotpot_gpu_busy_milli"),
            &format!("{ROOT}/namespaces/team/hotpot_gpu_busy_milli/more"),
        ] {
            assert_eq!(ask(path, "").unwrap_err().status, StatusCode::NOT_FOUND, "{path}");
        }
        let refusal = ask(&format!("{ROOT}/namespaces/team/other"), "").unwrap_err();
        assert!(refusal.why.contains("hotpot_gpu_throttled_milli"), "{refusal:?}");
        let document = refusal.document();
        assert_eq!((&document["reason"], &document["code"]), (&json!("NotFound"), &json!(404)));
    }

    #[test]
    fn documents_name_all_metrics_and_values_are_quantities() {
        let Ask::About(resources) = ask(ROOT, "").unwrap() else { panic!() };
        let names = resources["resources"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, Metric::ALL.map(Metric::as_str));
        let Ask::About(groups) = ask("/apis", "").unwrap() else { panic!() };
        assert_eq!(groups["groups"][0]["preferredVersion"]["version"], json!(VERSION));
        let figure = Figure { value: 840, at_ms: 1_700_000_000_500, window_ms: 15_000 };
        let list = values("team", Metric::Busy, &[("web-1".to_owned(), figure)]);
        let item = json!({
            "metricName": "hotpot_gpu_busy_milli", "metricLabels": {"namespace": "team", "pod": "web-1"},
            "timestamp": "2023-11-14T22:13:20Z", "windowSeconds": 15, "value": "840",
        });
        assert_eq!(list["items"], json!([item]));
    }
}
