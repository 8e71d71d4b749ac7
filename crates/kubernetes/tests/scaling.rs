//! An autoscaler by what pods use of their shares: a real node, the real control plane and its autoscaler.
#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use kubernetes_lab::hotpot::CLASS;
use kubernetes_lab::{Cluster, Options};
use live::client::{self, MACHINE, edits};
use live::{Folder, Running, account, built, controller};
use serde_json::Value;

/// All that the metrics server may do in the cluster.
const RIGHTS: &str = include_str!("metrics-rights.yaml");
/// The server's place, and a Deployment with an autoscaler.
const SCALED: &str = include_str!("scaling.yaml");
/// The node's agent, as whoever reads metrics reaches it.
const AGENT: &str = "http://10.200.0.10:9400/metrics";
/// The server, without the API server between.
const SERVER: &str = "https://10.200.0.1:7443";
const API: &str = "/apis/external.metrics.k8s.io/v1beta1";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Starts the node's agent with metrics.
fn agent(cluster: &Cluster) -> Running {
    let extra = cluster.folder().join("etc/extra.json");
    fs::write(&extra, format!("{{\"containerEdits\": {}}}", edits())).unwrap();
    let log = File::create(cluster.folder().join("log/agent-n1.log")).unwrap();
    let mut command = cluster.on_node("n1", built("hotpot")).unwrap();
    command.args(["kubernetes", "agent", "--node", "n1", "--driver-root", "/run/nvidia/driver"]);
    command.args(["--metrics-listen", "0.0.0.0:9400", "--metrics-token-file"]);
    command.arg(token_file(cluster)).arg("--extra").arg(extra);
    command.env("HOTPOT_FAKE_MACHINE", MACHINE);
    Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

fn token_file(cluster: &Cluster) -> PathBuf {
    let path = cluster.folder().join("keys/metrics.token");
    fs::write(&path, TOKEN).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// Starts the server as its own account.
fn server(cluster: &Cluster) -> Running {
    let log = File::create(cluster.folder().join("log/metrics.log")).unwrap();
    let mut command = cluster.command(built("hotpot"));
    command.args(["kubernetes", "metrics", "--namespace", "default", "--listen", "0.0.0.0:7443"]);
    command.args(["--agents", AGENT, "--every", "3", "--token-file"]).arg(token_file(cluster));
    command.env("KUBECONFIG", account(cluster, "hotpot-metrics", RIGHTS));
    Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

/// What curl is told in the cluster's network: status and body.
fn fetched(cluster: &Cluster, words: &[&str]) -> (String, String) {
    let mut command = cluster.command("curl");
    command.args(["--silent", "--insecure", "--max-time", "10", "--write-out", "\n%{http_code}"]);
    let output = command.args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

/// The values of a metric, by pod, as the API server tells them.
fn values(
    cluster: &Cluster,
    namespace: &str,
    metric: &str,
    selector: &str,
) -> Option<Vec<(String, u64)>> {
    let path = format!("{API}/namespaces/{namespace}/{metric}?labelSelector={selector}");
    let told = cluster.kubectl(&["get", "--raw", &path]).ok()?;
    let list: Value = serde_json::from_str(&told).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let value = |item: &Value| item["value"].as_str().unwrap().parse().unwrap();
    let pod = |item: &Value| item["metricLabels"]["pod"].as_str().unwrap().to_owned();
    Some(items.map(|item| (pod(item), value(item))).collect())
}

fn running(cluster: &Cluster) -> Vec<String> {
    let words =
        ["get", "pods", "-l", "app=web", "--field-selector=status.phase=Running", "-o", "name"];
    let names = cluster.kubectl(&words).unwrap_or_default();
    names.lines().filter_map(|name| name.strip_prefix("pod/")).map(str::to_owned).collect()
}

fn until_running(cluster: &Cluster, count: usize) -> Vec<String> {
    let what = format!("{count} replicas running");
    cluster.until(&what, |it| Some(running(it)).filter(|pods| pods.len() == count)).unwrap()
}

/// The node's own metrics: with the token, and by the names of the containers.
fn the_agent_tells_of_containers(cluster: &Cluster, pod: &str) {
    assert_eq!(fetched(cluster, &[AGENT]).0, "401");
    let shown = format!("Authorization: Bearer {TOKEN}");
    let (status, text) = fetched(cluster, &["--header", &shown, AGENT]);
    assert_eq!(status, "200");
    let of_pod = |name: &str| {
        let line = text.lines().find(|line| {
            line.starts_with(name)
                && line.contains(&format!("namespace=\"default\",pod=\"{pod}\",container=\"main\""))
        });
        let value = line.and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value);
        value.unwrap_or_else(|| panic!("no {name} of {pod} in {text}")).parse::<f64>().unwrap()
    };
    assert!((of_pod("hotpot_pod_compute_cap_ratio{") - 0.2).abs() < 1e-9);
    assert!(of_pod("hotpot_pod_memory_cap_bytes{") >= 10_737_418_240.0);
    assert!(of_pod("hotpot_pod_memory_used_bytes{") < 1_073_741_824.0);
    assert!(of_pod("DCGM_FI_DEV_FB_USED{") < 1024.0);
}

/// Nobody but the aggregation layer is answered.
fn the_server_answers_the_api_server_alone(cluster: &Cluster) {
    let url = format!("{SERVER}{API}/namespaces/default/hotpot_gpu_busy_milli");
    let keys = cluster.folder().join("keys");
    let key = |name: &str| keys.join(name).display().to_string();
    let with = |name: &str| {
        let (certificate, key) = (key(&format!("{name}.crt")), key(&format!("{name}.key")));
        fetched(cluster, &["--cert", &certificate, "--key", &key, &url]).0
    };
    let (status, body) = fetched(cluster, &[&url]);
    assert!(status == "401" && body.contains("aggregation layer"), "{status} {body}");
    assert_eq!(with("front"), "200");
    // A certificate of another authority ends the handshake.
    assert_eq!(with("admin"), "000");
    assert_eq!(fetched(cluster, &[&format!("{SERVER}/healthz")]), ("200".into(), "ok\n".into()));
}

#[test]
fn a_deployment_grows_while_its_shares_are_busy_and_shrinks_again() {
    let test = "a_deployment_grows_while_its_shares_are_busy_and_shrinks_again";
    if !kubernetes_lab::can_be_had(test) {
        return;
    }
    let folder = Folder::new("scaling");
    let controllers = vec!["--horizontal-pod-autoscaler-sync-period=2s".to_owned()];
    let options = Options { gpus: 1, controllers, ..Options::default() };
    let cluster = Cluster::up(&folder.0, &options).unwrap();
    cluster.import(&client::image()).unwrap();
    cluster.apply(CLASS).unwrap();
    let _agent = agent(&cluster);
    let _controller = controller(&cluster);
    cluster.apply(SCALED).unwrap();
    let _server = server(&cluster);
    let first = until_running(&cluster, 1).remove(0);
    let idle = |it: &Cluster| {
        let told = values(it, "default", "hotpot_gpu_busy_milli", "app%3Dweb")?;
        (told == [(first.clone(), 0)]).then_some(())
    };
    cluster.until("an idle pod's metric", idle).unwrap();
    the_agent_tells_of_containers(&cluster, &first);
    the_server_answers_the_api_server_alone(&cluster);
    let none = |namespace: &str, selector: &str| {
        values(&cluster, namespace, "hotpot_gpu_memory_used_bytes", selector).unwrap()
    };
    assert_eq!(none("default", "app%3Dother"), []);
    assert_eq!(none("kube-system", ""), []);

    let begun = std::time::Instant::now();
    cluster.kubectl(&["exec", &first, "--", "touch", "/load"]).unwrap();
    let all = until_running(&cluster, 3);
    eprintln!("3 replicas {} s after the load began", begun.elapsed().as_secs());
    let throttled = values(&cluster, "default", "hotpot_gpu_throttled_milli", "app%3Dweb").unwrap();
    assert!(throttled.contains(&(first.clone(), throttled.iter().map(|one| one.1).max().unwrap())));
    assert!(all.contains(&first));
    // It stays so as long as the load lasts.
    for _ in 0..10 {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let told = values(&cluster, "default", "hotpot_gpu_busy_milli", "app%3Dweb");
        assert_eq!(running(&cluster).len(), 3, "{told:?}");
    }
    let begun = std::time::Instant::now();
    cluster.kubectl(&["exec", &first, "--", "rm", "/load"]).unwrap();
    until_running(&cluster, 1);
    eprintln!("1 replica {} s after the load ended", begun.elapsed().as_secs());
}
