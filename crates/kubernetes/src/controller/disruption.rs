//! Who may be asked to leave for somebody more important: what pods say of themselves, and budgets of disruption. Pure.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::observation::{Key, Observation, created, is_over, key, node_of};
use super::selecting::holds;

/// After its grace a pod is expected to be gone for so long.
const OVERDUE_MS: u64 = 60_000;

/// A pod that is to be gone later than this has not left for anybody: its owner has the choice of the grace, and could keep its devices for
/// years by being deleted. Being evicted shortens the grace.
const LEAVING_MAX_MS: u64 = 3_600_000;

/// Pods that budgets keep, by namespace and name.
pub(super) struct Kept {
    pods: BTreeSet<Key>,
    now_ms: u64,
}

impl Kept {
    /// Of the pods that a budget speaks for, as many are let go as it allows, those who came last; a plan that took more would have
    /// some leave in vain.
    pub(super) fn of(seen: &Observation, now_ms: u64) -> Self {
        let mut kept = BTreeSet::new();
        for budget in &seen.budgets {
            // One that has not been counted yet allows none.
            let status = budget.status.as_ref();
            let allowed = status.and_then(|status| status.disruptions_allowed).unwrap_or(0);
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let Some(selector) = selector else { continue };
            let (namespace, _) = key(&budget.metadata);
            let of_namespace = seen.pods.range((namespace.clone(), String::new())..);
            let of_namespace = of_namespace.take_while(|((of, _), _)| *of == namespace);
            let mut pods: Vec<_> = of_namespace
                .map(|(_, pod)| pod)
                .filter(|pod| stays(pod, now_ms) && matches(selector, pod))
                .collect();
            pods.sort_by_key(|pod| (Reverse(created(&pod.metadata)), pod.metadata.name.clone()));
            let allowed = usize::try_from(allowed).unwrap_or(0);
            kept.extend(pods.into_iter().skip(allowed).map(|pod| key(&pod.metadata)));
        }
        Self { pods: kept, now_ms }
    }

    /// Whether a pod may be evicted: it is bound, has not been asked to leave, and no budget keeps it.
    pub(super) fn let_go(&self, pod: &Pod) -> bool {
        stays(pod, self.now_ms) && !self.pods.contains(&key(&pod.metadata))
    }
}

/// Whether it is bound and does not leave soon.
fn stays(pod: &Pod, now_ms: u64) -> bool {
    let leaves = pod.metadata.deletion_timestamp.is_some() && !leaves_late(pod, now_ms);
    !is_over(pod) && node_of(pod).is_some() && !leaves
}

/// The moment at which a pod's grace ends, which the API server writes.
fn gone_ms(pod: &Pod) -> Option<u64> {
    let by = pod.metadata.deletion_timestamp.as_ref()?;
    u64::try_from(by.0.as_millisecond()).ok()
}

fn leaves_late(pod: &Pod, now_ms: u64) -> bool {
    gone_ms(pod).is_some_and(|by_ms| by_ms > now_ms.saturating_add(LEAVING_MAX_MS))
}

/// Whether pods of lower priority may be evicted for a pod.
pub(super) fn preempts(pod: &Pod) -> bool {
    let policy = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref());
    policy != Some("Never")
}

/// When a pod that has been asked to leave is gone at the latest, in ms since 1970; `None` too for one that is long overdue: nobody
/// knows when that leaves, and for one that takes its time.
pub(super) fn leaves_by_ms(pod: &Pod, now_ms: u64) -> Option<u64> {
    let by_ms = gone_ms(pod).filter(|_| !leaves_late(pod, now_ms))?;
    (now_ms <= by_ms.saturating_add(OVERDUE_MS)).then_some(by_ms)
}

/// An empty selector takes all pods (API reference, PodDisruptionBudgetSpec).
fn matches(selector: &LabelSelector, pod: &Pod) -> bool {
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let equal = selector.match_labels.iter().flatten();
    let mut asked = selector.match_expressions.iter().flatten();
    equal.into_iter().all(|(key, value)| label(key) == Some(value))
        && asked.all(|one| holds(&one.operator, &one.values, label(&one.key)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use serde_json::{Value, json};

    use super::*;

    fn budget(selector: &Value, allowed: i32) -> Arc<PodDisruptionBudget> {
        let status = json!({"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1});
        let budget = json!({"metadata": {"namespace": "team"}, "spec": {"selector": selector}, "status": status});
        Arc::new(serde_json::from_value(budget).unwrap())
    }

    fn pod(namespace: &str, name: &str, at: &str, node: Option<&str>) -> Arc<Pod> {
        let meta = json!({"namespace": namespace, "name": name, "creationTimestamp": at, "labels": {"app": "a"}});
        let pod = json!({"metadata": meta, "spec": {"containers": [], "nodeName": node}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_that_takes_years_to_leave_has_not_left() {
        let now_ms = 1_767_225_600_000;
        let leaving = |at: &str| {
            let mut pod = Pod::clone(&pod("team", "a", "2026-01-01T00:00:00Z", Some("n1")));
            pod.metadata.deletion_timestamp = Some(serde_json::from_value(json!(at)).unwrap());
            let kept = Kept { pods: BTreeSet::new(), now_ms };
            (kept.let_go(&pod), leaves_by_ms(&pod, now_ms))
        };
        assert_eq!(leaving("2026-01-01T00:00:30Z"), (false, Some(now_ms + 30_000)));
        assert_eq!(leaving("2036-01-01T00:00:00Z"), (true, None), "it may be evicted");
        assert_eq!(leaving("2025-12-31T00:00:00Z"), (false, None), "long overdue");
    }

    /// Names of the pods that may go.
    fn go(budgets: Vec<Arc<PodDisruptionBudget>>) -> Vec<String> {
        let pods = [
            pod("other", "o", "2026-01-01T00:00:00Z", Some("n1")),
            pod("team", "a", "2026-01-01T00:00:01Z", Some("n1")),
            pod("team", "b", "2026-01-01T00:00:03Z", Some("n1")),
            pod("team", "c", "2026-01-01T00:00:02Z", Some("n1")),
            pod("team", "d", "2026-01-01T00:00:04Z", None),
        ];
        let pods = pods.into_iter().map(|pod| (key(&pod.metadata), pod)).collect();
        let seen = Observation { pods, budgets, ..Observation::default() };
        let kept = Kept::of(&seen, 0);
        let free = seen.pods.values().filter(|pod| kept.let_go(pod));
        free.filter_map(|pod| pod.metadata.name.clone()).collect()
    }

    #[test]
    fn of_a_budget_as_many_go_as_it_allows_and_the_last_ones_first() {
        assert_eq!(go(Vec::new()), ["o", "a", "b", "c"], "nothing is won by a pod that is nowhere");
        let all = json!({"matchLabels": {"app": "a"}});
        assert_eq!(go(vec![budget(&all, 0)]), ["o"]);
        assert_eq!(go(vec![budget(&all, 1)]), ["o", "b"]);
        assert_eq!(go(vec![budget(&all, 2)]), ["o", "b", "c"]);
        assert_eq!(go(vec![budget(&all, 2), budget(&json!({}), 1)]), ["o", "b"]);
    }

    #[test]
    fn a_budget_speaks_for_whom_it_selects() {
        for (selector, speaks) in [
            (json!({"matchLabels": {"app": "b"}}), false),
            (json!({}), true),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}),
                false,
            ),
            (json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}), true),
            (json!({"matchExpressions": [{"key": "x", "operator": "Exists"}]}), false),
        ] {
            assert_eq!(
                go(vec![budget(&selector, 0)]).len(),
                if speaks { 1 } else { 4 },
                "{selector}"
            );
        }
    }

    #[test]
    fn who_is_long_overdue_is_not_waited_for() {
        let mut pod = Pod::clone(&pod("team", "a", "2026-01-01T00:00:00Z", Some("n1")));
        assert_eq!(leaves_by_ms(&pod, 0), None);
        pod.metadata.deletion_timestamp =
            serde_json::from_value(json!("1970-01-01T00:01:00Z")).unwrap();
        assert_eq!(leaves_by_ms(&pod, 60_000 + OVERDUE_MS), Some(60_000));
        assert_eq!(leaves_by_ms(&pod, 60_001 + OVERDUE_MS), None);
    }
}
