//! The webhook on a real control plane: resource names that people have, claims and what can never run.
#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use std::process::{Command, Stdio};

use kubernetes_lab::Cluster;
use live::{
    Folder, Running, account, add_nodes, built, control_plane, controller, node_of, pod, template,
    until_bound, until_told,
};

const ADDRESS: &str = "127.0.0.1:9443";

/// What the chart installs, but that the server is at an address and not behind a Service.
const CONFIGURATION: &str = include_str!("webhook.yaml");

/// All that the webhook may do in the cluster.
const RIGHTS: &str = include_str!("webhook-rights.yaml");

/// A small class with a resource of its own.
const SMALL: &str = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: small}\nspec:\n  \
                     extendedResourceName: hotpot.dev/small\n  \
                     selectors: [{cel: {expression: \"device.driver == 'gpu.hotpot.dev' && false\"}}]\n  \
                     config: [{opaque: {driver: gpu.hotpot.dev, parameters: {apiVersion: hotpot.dev/v1, kind: GpuShare, memoryMiB: 10240, computeMilli: 300}}}]\n---\n";

/// Starts the webhook as users do, and waits until it is trusted.
fn webhook(cluster: &Cluster) -> Running {
    let running = replica(cluster, ADDRESS, "webhook.log");
    cluster.until("the webhook", |it| mutates(it).then_some(())).unwrap();
    running
}

fn replica(cluster: &Cluster, address: &str, log: &str) -> Running {
    let log = std::fs::File::create(cluster.folder().join("log").join(log)).unwrap();
    let mut command = cluster.command(built("hotpot"));
    command.args(["kubernetes", "webhook", "--namespace", "default", "--also-named", "127.0.0.1"]);
    command.args(["--listen", address]).stdout(Stdio::null()).stderr(log);
    command.env("KUBECONFIG", cluster.folder().join("keys/hotpot-webhook.kubeconfig"));
    Running(command.spawn().unwrap())
}

/// Waits until a replica has said something.
fn until_said(cluster: &Cluster, log: &str, text: &str) {
    let path = cluster.folder().join("log").join(log);
    let said = |_: &Cluster| std::fs::read_to_string(&path).ok()?.contains(text).then_some(());
    cluster.until(&format!("`{text}` in {log}"), said).unwrap();
}

/// Whether a pod comes through the webhook, tried out without making it.
fn mutates(cluster: &Cluster) -> bool {
    let pod = asking("probe", "nvidia.com/gpu: 1");
    let words = ["create", "--dry-run=server", "-o", "jsonpath={.spec.schedulingGates}", "-f", "-"];
    cluster.kubectl_with(&words, &pod).is_ok_and(|text| text.contains("hotpot.dev/placement"))
}

/// A pod that asks by resource names.
fn asking(name: &str, limits: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  \
         containers: [{{name: main, image: none, resources: {{limits: {{{limits}}}}}}}]\n---\n"
    )
}

/// A control plane with three nodes, controller and webhook.
fn cluster_with_webhook(test: &str, folder: &Folder) -> Option<(Cluster, Running, Running)> {
    let cluster = control_plane(test, folder)?;
    add_nodes(&cluster, &["n1", "n2", "n3"]);
    cluster.apply(SMALL).unwrap();
    cluster.apply(CONFIGURATION).unwrap();
    account(&cluster, "hotpot-webhook", RIGHTS);
    let controller = controller(&cluster);
    let webhook = webhook(&cluster);
    Some((cluster, controller, webhook))
}

/// What the only claim of a pod has been given: memory and compute.
fn given(cluster: &Cluster, pod: &str) -> String {
    let path = "jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}";
    let claim = cluster.kubectl(&["get", "pod", pod, "-o", path]).unwrap();
    let path = "jsonpath={.status.allocation.devices.results[0].consumedCapacity}";
    cluster.kubectl(&["get", "resourceclaim", claim.trim(), "-o", path]).unwrap()
}

#[test]
fn one_ask_in_three_dialects_is_given_the_same_and_its_template_comes_and_goes() {
    let test = "one_ask_in_three_dialects_is_given_the_same_and_its_template_comes_and_goes";
    let folder = Folder::new("dialects");
    let Some((cluster, _controller, _webhook)) = cluster_with_webhook(test, &folder) else {
        return;
    };
    let limits = "nvidia.com/gpu: 1, nvidia.com/gpumem: 10240, nvidia.com/gpucores: 30";
    let claim = pod("claim", "resourceClaimTemplateName: ten", "");
    let claim = claim.replace("  schedulingGates: [{name: hotpot.dev/placement}]\n", "");
    let manifest = template("ten", "{memory: 10Gi, compute: 300m}")
        + &claim
        + &asking("names", limits)
        + &asking("class", "hotpot.dev/small: 1")
        + &asking("implicit", "deviceclass.resource.kubernetes.io/small: 1");
    let begun = std::time::Instant::now();
    cluster.apply(&manifest).unwrap();
    // With the CUDA context, which is booked on top.
    let amounts = r#"{"compute":"300m","memory":"10690Mi"}"#;
    for name in ["claim", "names", "class", "implicit"] {
        until_bound(&cluster, name);
        assert_eq!(given(&cluster, name), amounts, "{name}");
    }
    eprintln!("four pods bound after {} ms", begun.elapsed().as_millis());
    let gates = ["get", "pods", "-o", "jsonpath={.items[*].spec.schedulingGates}"];
    assert_eq!(cluster.kubectl(&gates).unwrap(), "");
    let made = ["get", "resourceclaimtemplates", "-l", "hotpot.dev/ask", "-o", "name"];
    let all = cluster.kubectl(&made).unwrap();
    assert!(all.contains("/hotpot-1x10240mib-300m\n") && all.lines().count() == 2, "{all}");
    cluster.kubectl(&["delete", "pod", "--all", "--force", "--grace-period=0"]).unwrap();
    let is_gone = |it: &Cluster| it.kubectl(&made).is_ok_and(|text| text.is_empty()).then_some(());
    cluster.until("no template of ours", is_gone).unwrap();
    assert!(cluster.kubectl(&["get", "resourceclaimtemplate", "ten"]).is_ok());
}

#[test]
fn a_deployment_that_asks_by_names_is_bound_and_what_can_never_run_is_refused() {
    let test = "a_deployment_that_asks_by_names_is_bound_and_what_can_never_run_is_refused";
    let folder = Folder::new("refused");
    let Some((cluster, _controller, _webhook)) = cluster_with_webhook(test, &folder) else {
        return;
    };
    let limits = "{nvidia.com/gpu: 1, nvidia.com/gpumem: 10240}";
    let deployment = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: 2\n  \
         selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    \
         spec: {{containers: [{{name: main, image: none, resources: {{limits: {limits}}}}}]}}\n"
    );
    cluster.apply(&deployment).unwrap();
    let nodes = ["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"];
    let both =
        |it: &Cluster| (it.kubectl(&nodes).ok()?.split_whitespace().count() == 2).then_some(());
    cluster.until("both replicas bound", both).unwrap();

    let refused = |manifest: &str| cluster.apply(manifest).unwrap_err().to_string();
    // 450 MiB of a card are a CUDA context's.
    let large = refused(&asking("large", "nvidia.com/gpumem: 204800"));
    assert!(
        large
            .contains("asks 204800 MiB, free 81920 MiB; ask at most 81470 MiB of a card, or whole"),
        "{large}"
    );
    let percent = refused(&asking("percent", "nvidia.com/gpumem-percentage: 50"));
    assert!(percent.contains("ask MiB of each card by nvidia.com/gpumem"), "{percent}");
    let config = "config: [{opaque: {driver: gpu.hotpot.dev, parameters: {apiVersion: hotpot.dev/v1, kind: GpuShare, turbo: true}}}]";
    let unsound = template("unsound", "{memory: 1Gi}")
        .replace("{devices: {", &format!("{{devices: {{{config}, "));
    let unsound = refused(&unsound);
    assert!(unsound.contains("unknown field `turbo`"), "{unsound}");
}

#[test]
fn without_the_webhook_pods_come_in_and_those_that_ask_are_told_and_keys_are_made_anew() {
    let test =
        "without_the_webhook_pods_come_in_and_those_that_ask_are_told_and_keys_are_made_anew";
    let folder = Folder::new("down");
    let Some((cluster, _controller, mut first)) = cluster_with_webhook(test, &folder) else {
        return;
    };
    let mut other = replica(&cluster, "127.0.0.1:9444", "replica.log");
    until_said(&cluster, "replica.log", "serving");
    let secret = ["get", "secret", "hotpot-webhook", "-o", "jsonpath={.data.tls\\.crt}"];
    let before = cluster.kubectl(&secret).unwrap();
    cluster.kubectl(&["delete", "secret", "hotpot-webhook"]).unwrap();
    let new = |it: &Cluster| it.kubectl(&secret).ok().filter(|now| *now != before);
    let new = cluster.until("new keys", new).unwrap();
    // Also while the new certificate is on its way: the old one is trusted until it is served no more.
    for _ in 0..50 {
        assert!(mutates(&cluster));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    for log in ["webhook.log", "replica.log"] {
        until_said(&cluster, log, "serving with a new certificate");
    }
    assert_eq!(cluster.kubectl(&secret).unwrap(), new, "both have the same");

    for running in [&mut first, &mut other] {
        Command::new("kill").arg(running.0.id().to_string()).status().unwrap();
        assert!(running.0.wait().unwrap().success(), "it ends in good order");
    }
    cluster.apply(&(asking("plain", "cpu: 1") + &asking("asks", "nvidia.com/gpumem: 10"))).unwrap();
    until_bound(&cluster, "plain");
    let told = until_told(&cluster, "asks");
    assert_eq!(
        told,
        "it came in while hotpot's webhook was not there: delete it and create it again"
    );
    assert_eq!(node_of(&cluster, "asks"), "");
    let _webhook = webhook(&cluster);
    cluster.kubectl(&["delete", "pod", "asks", "--force", "--grace-period=0"]).unwrap();
    cluster.apply(&asking("asks", "nvidia.com/gpumem: 1024")).unwrap();
    until_bound(&cluster, "asks");
}

#[test]
fn a_pod_that_came_in_while_the_controller_was_down_is_bound_as_soon_as_that_is_back() {
    let test = "a_pod_that_came_in_while_the_controller_was_down_is_bound_as_soon_as_that_is_back";
    let folder = Folder::new("back");
    let Some((cluster, running, _webhook)) = cluster_with_webhook(test, &folder) else { return };
    drop(running);
    cluster.apply(&asking("early", "nvidia.com/gpu: 1")).unwrap();
    // By now whoever makes claims of templates looks again only after a long pause.
    std::thread::sleep(std::time::Duration::from_secs(25));
    let begun = std::time::Instant::now();
    let _controller = controller(&cluster);
    until_bound(&cluster, "early");
    let waited = begun.elapsed();
    eprintln!("bound {} ms after the controller was back", waited.as_millis());
    assert!(waited.as_secs() < 10, "{waited:?}");
}
