//! Placement on a real control plane: the stock scheduler binds where hotpot has given devices.
#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use std::process::Command;

use kubernetes_lab::Cluster;
use live::{
    Folder, add_nodes, built, control_plane, controller, controller_as, node_of, pod, template,
    until_bound, until_told,
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
    // Room that is held for whoever has no devices any more is let go.
    let nominated = "{\"status\": {\"nominatedNodeName\": \"n1\"}}";
    let patch = ["patch", "pod", "late", "--subresource=status", "--type=merge", "-p", nominated];
    cluster.kubectl(&patch).unwrap();
    let path = "jsonpath={.status.nominatedNodeName}";
    let is_let_go = |it: &Cluster| {
        it.kubectl(&["get", "pod", "late", "-o", path]).ok().filter(String::is_empty)
    };
    cluster.until("the room let go", is_let_go).unwrap();
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
    let mut times = 0;
    cluster
        .until("30 pods bound", |_| {
            let mut running = controller(&cluster);
            // Long enough to begin, each time a little longer.
            times += 1;
            std::thread::sleep(std::time::Duration::from_millis(150 + 25 * times));
            running.0.kill().unwrap();
            (bound(&cluster).len() >= 30).then_some(())
        })
        .unwrap();
    let mut counts = std::collections::BTreeMap::new();
    bound(&cluster).into_iter().for_each(|node| *counts.entry(node).or_insert(0) += 1);
    assert_eq!(counts.len(), 6, "{counts:?}");
    assert!(counts.values().all(|count| *count == 5), "{counts:?}");
    let _controller = controller(&cluster);
    let waits =
        cluster.kubectl(&["get", "pods", "--field-selector=spec.nodeName=", "-o", "name"]).unwrap();
    let waits = waits.trim().trim_start_matches("pod/");
    assert_eq!(until_told(&cluster, waits), "compute: asks 200/1000, free 0/1000");
}

#[test]
fn a_gang_is_bound_whole_or_not_at_all() {
    let test = "a_gang_is_bound_whole_or_not_at_all";
    let folder = Folder::new("gang");
    let Some(cluster) = control_plane(test, &folder) else { return };
    add_nodes(&cluster, &["n1", "n2"]);
    let _controller = controller(&cluster);
    let labels = "labels: {hotpot.dev/gang: ring, hotpot.dev/gang-size: \"3\"}";
    let whole = "resourceClaimTemplateName: whole";
    let member =
        |name: &str| pod(name, whole, "").replacen("}\nspec", &format!(", {labels}}}\nspec"), 1);
    let two: String = ["r1", "r2"].map(member).concat();
    cluster.apply(&(template("whole", "{}") + &two)).unwrap();
    assert_eq!(until_told(&cluster, "r1"), "gang ring: 2 of 3 members are here and can start");
    cluster.apply(&member("r3")).unwrap();
    let told = cluster.until("the gang is told what is missing", |it| {
        let path = "jsonpath={.status.conditions[?(@.type==\"hotpot.dev/Placed\")].message}";
        it.kubectl(&["get", "pod", "r3", "-o", path]).ok().filter(|text| text.contains("gang"))
    });
    assert!(told.as_ref().unwrap().contains("2 of 3"), "{told:?}");
    assert!(["r1", "r2", "r3"].iter().all(|name| node_of(&cluster, name).is_empty()));
    let asked = explained(&cluster, "r1");
    assert!(asked.contains("gang") && asked.contains("2 of 3"), "{asked}");
    add_nodes(&cluster, &["n3"]);
    let mut nodes = ["r1", "r2", "r3"].map(|name| until_bound(&cluster, name));
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n3"]);
    let events = cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).unwrap();
    assert!(events.contains("Waiting") && events.contains("Given"), "{events}");
}

#[test]
fn what_was_given_of_a_gang_that_cannot_start_goes_back() {
    let test = "what_was_given_of_a_gang_that_cannot_start_goes_back";
    let folder = Folder::new("goes-back");
    let Some(cluster) = control_plane(test, &folder) else { return };
    add_nodes(&cluster, &["n1", "n2"]);
    let labels = "labels: {hotpot.dev/gang: ring, hotpot.dev/gang-size: \"3\"}";
    let member = |name: &str| {
        pod(name, "resourceClaimTemplateName: whole", "").replacen(
            "}\nspec",
            &format!(", {labels}}}\nspec"),
            1,
        )
    };
    cluster.apply(&(template("whole", "{}") + &["r1", "r2", "r3"].map(member).concat())).unwrap();
    let of_pod = |it: &Cluster, path: &str| {
        it.kubectl(&["get", "pod", "r1", "-o", &format!("jsonpath={path}")])
            .ok()
            .filter(|text| !text.is_empty())
    };
    let claim = cluster
        .until("the claim of r1", |it| {
            of_pod(it, "{.status.resourceClaimStatuses[0].resourceClaimName}")
        })
        .unwrap();
    let uid = of_pod(&cluster, "{.metadata.uid}").unwrap();
    // As a controller leaves it that has died after its first write.
    let status = format!(
        r#"{{"status": {{"reservedFor": [{{"resource": "pods", "name": "r1", "uid": "{uid}"}}], "allocation": {{"allocationTimestamp": "2026-01-01T00:00:00Z",
        "devices": {{"results": [{{"request": "gpu", "driver": "gpu.hotpot.dev", "pool": "n1", "device": "gpu-n1",
        "shareID": "11111111-2222-3333-4444-555555555555", "consumedCapacity": {{"memory": "80Gi", "compute": "1"}}}}]}},
        "nodeSelector": {{"nodeSelectorTerms": [{{"matchFields": [{{"key": "metadata.name", "operator": "In", "values": ["n1"]}}]}}]}}}}}}}}"#
    );
    let words =
        ["patch", "resourceclaim", &claim, "--subresource=status", "--type=merge", "-p", &status];
    cluster.kubectl(&words).unwrap();
    let _controller = controller(&cluster);
    cluster
        .until("it goes back", |it| {
            let path = "jsonpath={.status.allocation}{.status.reservedFor}";
            let text = it.kubectl(&["get", "resourceclaim", &claim, "-o", path]).ok()?;
            text.is_empty().then_some(())
        })
        .unwrap();
    add_nodes(&cluster, &["n3"]);
    let mut nodes = ["r1", "r2", "r3"].map(|name| until_bound(&cluster, name));
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n3"]);
}

/// What `hotpot explain` says of a pod.
fn explained(cluster: &Cluster, pod: &str) -> String {
    let mut command = cluster.command(built("hotpot"));
    let output = command.args(["explain", &format!("pod/{pod}")]).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn who_holds_a_card_is_said_to_whoever_waits_for_it() {
    let test = "who_holds_a_card_is_said_to_whoever_waits_for_it";
    let folder = Folder::new("said");
    let Some(cluster) = control_plane(test, &folder) else { return };
    add_nodes(&cluster, &["n1"]);
    let _controller = controller(&cluster);
    let big = "resourceClaimTemplateName: big";
    let pods = pod("first", big, "") + &pod("second", big, "");
    cluster.apply(&(template("big", "{memory: 60Gi}") + &pods)).unwrap();
    let bound = cluster.until("one of them is bound", |it| {
        ["first", "second"].into_iter().find(|name| !node_of(it, name).is_empty())
    });
    let (bound, waits) =
        if bound.unwrap() == "first" { ("first", "second") } else { ("second", "first") };
    until_told(&cluster, waits);
    let said = explained(&cluster, waits);
    let gpu = said.lines().find(|line| line.contains("gpu0")).unwrap_or_default();
    assert!(
        gpu.contains("GPU memory: asks") && gpu.contains(&format!("held by {bound}")),
        "{said}"
    );
    let said = explained(&cluster, bound);
    assert!(said.contains("holds on n1: gpu0 memory-capped"), "{said}");
    let said = explained(&cluster, "nobody");
    assert!(said.contains("there is no pod nobody in namespace default"), "{said}");
}

#[test]
fn a_controller_that_sleeps_is_followed_by_another_and_does_no_harm_when_it_wakes() {
    let test = "a_controller_that_sleeps_is_followed_by_another_and_does_no_harm_when_it_wakes";
    let folder = Folder::new("leading");
    let Some(cluster) = control_plane(test, &folder) else { return };
    add_nodes(&cluster, &["n1", "n2"]);
    let first = controller_as(&cluster, "first");
    cluster
        .apply(&(template("ten", "{memory: 10Gi, compute: 200m}") + &pod("a", TEN, "")))
        .unwrap();
    until_bound(&cluster, "a");
    let second = controller_as(&cluster, "second");
    let signal = |name: &str, pid: u32| {
        assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
    };
    signal("-STOP", first.0.id());
    let pods: String = (0..12).map(|at| pod(&format!("p{at}"), TEN, "")).collect();
    cluster.apply(&pods).unwrap();
    cluster.until("nine more are bound", |it| (bound(it).len() == 10).then_some(())).unwrap();
    signal("-CONT", first.0.id());
    cluster
        .until("the first knows that its term is over", |it| {
            let log =
                std::fs::read_to_string(it.folder().join("log/controller-first.log")).unwrap();
            log.contains("the term is over").then_some(())
        })
        .unwrap();
    let mut nodes = bound(&cluster);
    nodes.sort();
    assert_eq!(nodes, [vec!["n1"; 5], vec!["n2"; 5]].concat());
    // Who gives the lease up is followed at once, though it lasts.
    signal("-TERM", second.0.id());
    cluster.kubectl(&["delete", "pod", "a", "--force", "--grace-period=0"]).unwrap();
    cluster.until("the first leads again", |it| (bound(it).len() == 10).then_some(())).unwrap();
}

/// The nodes of all pods that have one.
fn bound(cluster: &Cluster) -> Vec<String> {
    let path = "jsonpath={range .items[*]}{.spec.nodeName} {end}";
    let text = cluster.kubectl(&["get", "pods", "-o", path]).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn every_example_is_taken_by_a_server_that_forgives_no_field() {
    let test = "every_example_is_taken_by_a_server_that_forgives_no_field";
    let folder = Folder::new("examples");
    let Some(cluster) = control_plane(test, &folder) else { return };
    let examples =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes");
    let mut count = 0;
    for entry in std::fs::read_dir(&examples).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let words = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        cluster.kubectl_with(&words, &text).unwrap();
        count += 1;
    }
    assert!(count >= 6, "{count}");
    // What the folk manifest says is no field of anything.
    let folk = "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClaim\nmetadata: {name: folk}\nspec:\n  gpu-type: a100-80gb\n  \
                count: 2\n  sharing: {strategy: time-slice, interval: 100ms}\n";
    assert!(cluster.apply(folk).is_err());
    assert!(cluster.apply(&folk.replace("v1alpha2", "v1")).is_err());
}
