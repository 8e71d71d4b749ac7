//! Making room on a real control plane: the more important pod runs soon, and no more leave than must.
#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use std::time::{Duration, Instant};

use kubernetes_lab::Cluster;
use live::{
    Folder, add_nodes, control_plane, controller, node_of, pod, template, until_bound, until_told,
};

const HIGH: &str = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: service}\nvalue: 1000\n---\n";
/// A service may ask others to leave; its pod is to run within this.
const SOON: Duration = Duration::from_secs(10);

fn service(name: &str, template: &str) -> String {
    pod(name, &format!("resourceClaimTemplateName: {template}"), "").replacen(
        "spec:\n",
        "spec:\n  priorityClassName: service\n",
        1,
    )
}

/// Names of all pods that are there.
fn pods(cluster: &Cluster) -> Vec<String> {
    let text =
        cluster.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Two nodes of one card each: on the first seven shares of 10 GiB, on the second four of 18 GiB.
fn full(folder: &Folder, test: &str) -> Option<(Cluster, live::Running)> {
    let cluster = control_plane(test, folder)?;
    add_nodes(&cluster, &["n1", "n2"]);
    let running = controller(&cluster);
    let on = |name: String, template: &str, node: &str| {
        pod(&name, &format!("resourceClaimTemplateName: {template}"), "").replacen(
            "spec:\n",
            &format!("spec:\n  nodeSelector: {{kubernetes.io/hostname: {node}}}\n"),
            1,
        )
    };
    let small: String = (0..7).map(|at| on(format!("small{at}"), "ten", "n1")).collect();
    let large: String = (0..4).map(|at| on(format!("large{at}"), "eighteen", "n2")).collect();
    let templates = [("ten", "10Gi"), ("eighteen", "18Gi"), ("thirty", "30Gi")]
        .map(|(name, memory)| template(name, &format!("{{memory: {memory}}}")));
    cluster.apply(&(templates.concat() + HIGH + &small + &large)).unwrap();
    for name in pods(&cluster) {
        until_bound(&cluster, &name);
    }
    Some((cluster, running))
}

#[test]
fn a_service_on_a_full_cluster_runs_soon_and_as_few_leave_as_must() {
    let test = "a_service_on_a_full_cluster_runs_soon_and_as_few_leave_as_must";
    let folder = Folder::new("room");
    let Some((cluster, _controller)) = full(&folder, test) else { return };
    let asked = Instant::now();
    cluster.apply(&service("web", "thirty")).unwrap();
    // Three must leave the first card, two the second.
    assert_eq!(until_bound(&cluster, "web"), "n2");
    let took = asked.elapsed();
    eprintln!("bound after {} ms", took.as_millis());
    assert!(took < SOON, "{took:?}");
    let left = pods(&cluster);
    assert_eq!(left.iter().filter(|name| name.starts_with("large")).count(), 2, "{left:?}");
    assert_eq!(left.iter().filter(|name| name.starts_with("small")).count(), 7, "{left:?}");
    let events = cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].message}"]).unwrap();
    assert!(events.contains("makes room for pod default/web"), "{events}");
}

#[test]
fn budgets_of_disruption_and_equal_priorities_are_respected() {
    let test = "budgets_of_disruption_and_equal_priorities_are_respected";
    let folder = Folder::new("budgets");
    let Some((cluster, _controller)) = full(&folder, test) else { return };
    // Of those that are not ready none may leave, and no kubelet says that any is.
    let budget = |name: &str| {
        format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {name}}}\nspec: {{minAvailable: 1, selector: \
             {{matchLabels: {{keep: \"yes\"}}}}}}\n---\n"
        )
    };
    cluster.apply(&budget("keep")).unwrap();
    cluster.kubectl(&["label", "pod", "large0", "large1", "large2", "keep=yes"]).unwrap();
    cluster.apply(&pod("equal", "resourceClaimTemplateName: thirty", "")).unwrap();
    assert!(until_told(&cluster, "equal").starts_with("GPU memory: asks"));
    cluster.apply(&service("web", "thirty")).unwrap();
    assert_eq!(until_bound(&cluster, "web"), "n1");
    let left = pods(&cluster);
    assert_eq!(left.iter().filter(|name| name.starts_with("large")).count(), 4, "{left:?}");
    assert_eq!(left.iter().filter(|name| name.starts_with("small")).count(), 4, "{left:?}");
    assert_eq!(node_of(&cluster, "equal"), "");
}
