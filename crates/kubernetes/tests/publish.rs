//! The whole plugin at a real API server, and at one whose gates for devices are off.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod support;

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node as ApiNode;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kubernetes::names;
use kubernetes::plugin::proto::v1::Claim;
use kubernetes::plugin::run;
use kubernetes_lab::{Cluster, Options};
use serde_json::{Value, json};
use support::{Kubelet, NODE, Node, on_node};

/// Says that the test's process is in a cluster's network, whose file KUBECONFIG names.
const INSIDE: &str = "HOTPOT_TEST_INSIDE";
/// What Kubernetes 1.34 and 1.35 have switched off.
const WITHOUT: &str = "--feature-gates=DRAConsumableCapacity=false,DRAPartitionableDevices=false,DRADeviceTaints=false";

/// Runs `body` on a node with these GPUs, in a process of its own in the network of a control plane.
///
/// * `test` — the calling test's name; `apiserver` — more words for the API server.
fn at_server<F: Future<Output = ()>>(
    test: &str,
    gpus: &str,
    apiserver: &[&str],
    body: impl FnOnce(Node) -> F,
) {
    if std::env::var_os(INSIDE).is_some() {
        return on_node(test, gpus, body);
    }
    if !kubernetes_lab::can_be_had(test) {
        return;
    }
    let folder = std::env::temp_dir().join(format!("k8s-{}-publish", std::process::id()));
    let folder = folder.with_extension(apiserver.len().to_string());
    let apiserver = apiserver.iter().map(ToString::to_string).collect();
    let options = Options { nodes: 0, apiserver, ..Options::default() };
    let cluster = Cluster::up(&folder, &options).unwrap();
    let mut again = cluster.command(std::env::current_exe().unwrap());
    let output = again.args([test, "--exact", "--nocapture"]).env(INSIDE, "yes").output().unwrap();
    drop(cluster);
    let _ = std::fs::remove_dir_all(&folder);
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// An API server with the node, and without any slices.
async fn emptied(client: &kube::Client) -> Api<ResourceSlice> {
    let (api, nodes): (Api<ResourceSlice>, Api<ApiNode>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    let own = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
    let _there = nodes.create(&PostParams::default(), &own).await;
    for slice in slices(&api).await {
        api.delete(&slice.metadata.name.unwrap(), &DeleteParams::default()).await.unwrap();
    }
    api
}

/// A claim with an allocation of one device, as an allocator writes it; its UID.
async fn allocated(client: &kube::Client, name: &str, more: Value) -> String {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), "default");
    let _left_over = claims.delete(name, &DeleteParams::default()).await;
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "hotpot"}});
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}});
    let claim = serde_json::from_value(claim).unwrap();
    let mut claim: ResourceClaim = claims.create(&PostParams::default(), &claim).await.unwrap();
    let mut result = json!({"request": "gpu", "driver": names::DRIVER, "pool": NODE});
    result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let status = json!({"allocation": {"devices": {"results": [result]}}});
    claim.status = Some(serde_json::from_value(status).unwrap());
    let stored = claims.replace_status(name, &PostParams::default(), &claim).await.unwrap();
    stored.metadata.uid.unwrap()
}

fn claim(name: &str, uid: &str) -> Claim {
    Claim { namespace: "default".into(), uid: uid.into(), name: name.into() }
}

async fn slices(api: &Api<ResourceSlice>) -> Vec<ResourceSlice> {
    let mut found = api.list(&ListParams::default()).await.unwrap().items;
    found.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    found
}

/// Waits until the slices are as wanted, and gives them.
async fn until(
    api: &Api<ResourceSlice>,
    wanted: impl Fn(&[ResourceSlice]) -> bool,
) -> Vec<ResourceSlice> {
    for _ in 0..200 {
        let found = slices(api).await;
        if wanted(&found) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{:#?}", slices(api).await);
}

fn generations(found: &[ResourceSlice]) -> Vec<i64> {
    found.iter().map(|slice| slice.spec.pool.generation).collect()
}

fn taints(found: &[ResourceSlice]) -> usize {
    let devices = found.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    devices.filter(|device| device.taints.is_some()).count()
}

#[test]
fn devices_are_published_and_kept_published() {
    at_server(
        "devices_are_published_and_kept_published",
        "h100-80gb:2,t4",
        &[],
        |node: Node| async move {
            let client = kubernetes::client().await.unwrap();
            let api = emptied(&client).await;
            let options = node.options("p1");
            let socket = options.kubelet.join(format!("plugins/{}/p1.sock", names::DRIVER));
            let plugin = tokio::spawn(run(options, client.clone()));
            let first = until(&api, |found| found.len() == 4).await;
            assert_eq!(generations(&first), [1; 4]);
            let counters =
                first.iter().filter(|slice| slice.spec.shared_counters.is_some()).count();
            assert_eq!((counters, taints(&first)), (1, 0));
            let part = json!({
                "device": node.card(0), "shareID": "11111111-2222-3333-4444-555555555555",
                "consumedCapacity": {"memory": "2Gi", "compute": "250m"},
            });
            let uid = allocated(&client, "part", part).await;
            let devices =
                Kubelet::at(&socket).await.prepare_claim(claim("part", &uid)).await.unwrap();
            assert_eq!(
                devices[0].share_id.as_deref(),
                Some("11111111-2222-3333-4444-555555555555")
            );
            node.lose(2);
            let marked = until(&api, |found| taints(found) == 1).await;
            assert_eq!(generations(&marked), [1; 4], "one slice alone has changed");
            // As the kubelet does when it starts.
            for slice in &marked {
                let name = slice.metadata.name.as_ref().unwrap();
                api.delete(name, &DeleteParams::default()).await.unwrap();
            }
            let again = until(&api, |found| found.len() == 4).await;
            assert_eq!(taints(&again), 1);
            tokio::time::sleep(Duration::from_millis(800)).await;
            let still = slices(&api).await;
            tokio::time::sleep(Duration::from_millis(800)).await;
            assert_eq!(still, slices(&api).await, "and then there is peace");
            terminate();
            plugin.await.unwrap().unwrap();
            assert_eq!(slices(&api).await.len(), 4, "whoever comes next finds them");
        },
    );
}

#[test]
fn a_server_that_drops_the_parts_of_devices_is_told_of_whole_cards_only() {
    let test = "a_server_that_drops_the_parts_of_devices_is_told_of_whole_cards_only";
    at_server(test, "h100-80gb:2,t4", &[WITHOUT], |node: Node| async move {
        let client = kubernetes::client().await.unwrap();
        let api = emptied(&client).await;
        let options = node.options("p1");
        let socket = options.kubelet.join(format!("plugins/{}/p1.sock", names::DRIVER));
        let plugin = tokio::spawn(run(options, client.clone()));
        let cards = |found: &[ResourceSlice]| {
            found.iter().flat_map(|one| one.spec.devices.iter().flatten()).count()
        };
        let first = until(&api, |found| cards(found) == 3).await;
        assert_eq!((first.len(), generations(&first)), (1, vec![1]));
        let uid = allocated(&client, "whole", json!({"device": node.card(0)})).await;
        Kubelet::at(&socket).await.prepare_claim(claim("whole", &uid)).await.unwrap();
        assert_eq!(node.holds()[0].share, Some(model::Share::Exclusive));
        node.lose(2);
        until(&api, |found| cards(found) == 2).await;
        terminate();
        plugin.await.unwrap().unwrap();
    });
}

/// What systemd and kubelets send.
fn terminate() {
    let own = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &own]).status().unwrap().success());
}
