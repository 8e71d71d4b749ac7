//! Placement on a real control plane: the stock scheduler binds where hotpot has given devices.
#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use live::{
    Folder, add_nodes, control_plane, controller, node_of, pod, template, until_bound, until_told,
};

const TEN: &str = "resourceClaimTemplateName: ten";

#[test]
fn shares_of_a_card_are_bound_and_who_waits_is_told_why_until_there_is_room() {
    let test = "shares_of_a_card_are_bound_and_who_waits_is_told_why_until_there_is_room";
    let folder = Folder::new("shares");
    let Some(cluster) = control_plane(test, &folder) else { return };
    add_nodes(&cluster, &["n1"]);
    let _controller = controller(&cluster);
    let pods: String = ["a", "b", "c"].map(|name| pod(name, TEN, "")).concat();
    cluster.apply(&(template("ten", "{memory: 10Gi, compute: 300m}") + &pods)).unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(until_bound(&cluster, name), "n1");
    }
    cluster.apply(&pod("late", TEN, "")).unwrap();
    assert_eq!(until_told(&cluster, "late"), "compute: asks 300/1000, free 100/1000");
    assert_eq!(node_of(&cluster, "late"), "");
    cluster.kubectl(&["delete", "pod", "b", "--force", "--grace-period=0"]).unwrap();
    assert_eq!(until_bound(&cluster, "late"), "n1");
}

#[test]
fn pods_of_one_claim_share_its_devices_and_what_none_uses_is_taken_back() {
    let test = "pods_of_one_claim_share_its_devices_and_what_none_uses_is_taken_back";
    let folder = Folder::new("claim");
    let Some(cluster) = control_plane(test, &folder) else { return };
    add_nodes(&cluster, &["n1", "n2", "n3"]);
    let _controller = controller(&cluster);
    let claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: both}\nspec: {devices: {requests: \
                 [{name: gpu, exactly: {deviceClassName: gpu.hotpot.dev, count: 1}}]}}\n---\n";
    let shares = "resourceClaimName: both";
    cluster.apply(&(claim.to_owned() + &pod("one", shares, "") + &pod("two", shares, ""))).unwrap();
    let node = until_bound(&cluster, "one");
    assert_eq!(until_bound(&cluster, "two"), node);
    cluster.kubectl(&["delete", "pod", "one", "two", "--force", "--grace-period=0"]).unwrap();
    let path = "jsonpath={.status.allocation}";
    let is_free = |text: String| text.is_empty().then_some(());
    cluster
        .until("the claim taken back", |it| {
            it.kubectl(&["get", "resourceclaim", "both", "-o", path]).ok().and_then(is_free)
        })
        .unwrap();
    cluster.apply(&pod("three", shares, "")).unwrap();
    assert!(!until_bound(&cluster, "three").is_empty());
}

#[test]
fn a_pod_that_the_scheduler_hands_back_goes_to_another_node() {
    let test = "a_pod_that_the_scheduler_hands_back_goes_to_another_node";
    let folder = Folder::new("back");
    let Some(cluster) = control_plane(test, &folder) else { return };
    add_nodes(&cluster, &["n1", "n2"]);
    let _controller = controller(&cluster);
    // Both want the same port of their node, of which the controller knows nothing; and both would fit on one card.
    let port = ", ports: [{containerPort: 80, hostPort: 8080}]";
    let pods = pod("first", TEN, port) + &pod("second", TEN, port);
    cluster.apply(&(template("ten", "{memory: 10Gi, compute: 100m}") + &pods)).unwrap();
    let nodes = ["first", "second"].map(|name| until_bound(&cluster, name));
    assert_ne!(nodes[0], nodes[1]);
}

#[test]
fn nothing_is_lost_or_overbooked_when_the_controller_is_killed_again_and_again() {
    let test = "nothing_is_lost_or_overbooked_when_the_controller_is_killed_again_and_again";
    let folder = Folder::new("killed");
    let Some(cluster) = control_plane(test, &folder) else { return };
    let names: Vec<String> = (1..=6).map(|at| format!("n{at}")).collect();
    add_nodes(&cluster, &names.iter().map(String::as_str).collect::<Vec<_>>());
    // Five fit on a card, so one of the 31 waits.
    let pods: String = (0..31).map(|at| pod(&format!("p{at}"), TEN, "")).collect();
    cluster.apply(&(template("ten", "{memory: 10Gi, compute: 200m}") + &pods)).unwrap();
    let bound = || {
        let text = cluster
            .kubectl(&["get", "pods", "-o", "jsonpath={range .items[*]}{.spec.nodeName} {end}"])
            .unwrap();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut times = 0;
    cluster
        .until("30 pods bound", |_| {
            let mut running = controller(&cluster);
            // Long enough to begin, each time a little longer.
            times += 1;
            std::thread::sleep(std::time::Duration::from_millis(150 + 25 * times));
            running.0.kill().unwrap();
            (bound().len() >= 30).then_some(())
        })
        .unwrap();
    let mut counts = std::collections::BTreeMap::new();
    bound().into_iter().for_each(|node| *counts.entry(node).or_insert(0) += 1);
    assert_eq!(counts.len(), 6, "{counts:?}");
    assert!(counts.values().all(|count| *count == 5), "{counts:?}");
    let _controller = controller(&cluster);
    let waits =
        cluster.kubectl(&["get", "pods", "--field-selector=spec.nodeName=", "-o", "name"]).unwrap();
    let waits = waits.trim().trim_start_matches("pod/");
    assert_eq!(until_told(&cluster, waits), "compute: asks 200/1000, free 0/1000");
}
