//! The chart: what it makes of values, and on a real node all of hotpot's life in a cluster, from its installation to its removal.
#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use kubernetes_lab::{Cluster, Options};
use live::chart::{IMAGE, NAMESPACE, chart, file, helm, image, said};
use live::client::{self, ESCAPES, MACHINE, TAKES_ALL, traces, until_said, value};
use live::{Folder, template};

/// What stands at the head of the plain manifests.
const HEAD: &str = "\
# hotpot on Kubernetes without Helm: what the chart in deploy/chart/hotpot makes of its values as they stand. Put your image in the
# place of `hotpot:0.1.0`, and see docs/kubernetes.md. Made by `UPDATE_EXPECT=1 cargo test -p kubernetes --test chart`.
apiVersion: v1
kind: Namespace
metadata:
  name: hotpot
  labels:
    pod-security.kubernetes.io/enforce: privileged
";

fn render(words: &[&str]) -> Result<String, String> {
    let mut helm = kubernetes_lab::program("helm").unwrap();
    helm.args(["template", "hotpot"]).arg(chart()).args(["--namespace", NAMESPACE]);
    said(helm.args(words))
}

#[test]
fn the_plain_manifests_are_what_the_chart_makes() {
    if !kubernetes_lab::can_be_had("the_plain_manifests_are_what_the_chart_makes") {
        return;
    }
    let rendered = render(&[]).unwrap();
    let lines = rendered.lines().map(str::trim_end);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("# Source: "));
    let wanted: String = HEAD.lines().chain(lines).flat_map(|line| [line, "\n"]).collect();
    let path = file("deploy/kubernetes/hotpot.yaml");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "deploy/kubernetes/hotpot.yaml: UPDATE_EXPECT=1, and read the diff");
}

#[test]
fn values_that_make_no_sense_are_refused() {
    if !kubernetes_lab::can_be_had("values_that_make_no_sense_are_refused") {
        return;
    }
    for (value, told) in [
        ("controller.replicas=0", "/controller/replicas"),
        ("agent.driverRoot=run/nvidia/driver", "/agent/driverRoot"),
        ("agent.evicts=true", "evicts"),
        ("image.repository=", "/image/repository"),
        ("webhook.replicas=0", "/webhook/replicas"),
    ] {
        let refused = render(&["--set", value]).expect_err(value);
        assert!(refused.contains(told), "{value}: {refused}");
    }
}

#[test]
fn what_is_switched_off_leaves_nothing_behind() {
    if !kubernetes_lab::can_be_had("what_is_switched_off_leaves_nothing_behind") {
        return;
    }
    let all = render(&["--set", "policy=x"]).unwrap();
    for (values, gone) in [("webhook.enabled=false", "hotpot-webhook"), ("policy=", "--policy")] {
        assert!(all.contains(gone), "{gone}");
        let rendered = render(&["--set", "policy=x", "--set", values]).unwrap();
        assert!(!rendered.contains(gone), "{values}: {gone}");
    }
}

#[test]
fn metrics_are_served_with_a_token_and_told_to_autoscalers_unless_another_does() {
    let test = "metrics_are_served_with_a_token_and_told_to_autoscalers_unless_another_does";
    if !kubernetes_lab::can_be_had(test) {
        return;
    }
    let (agent, server) = ("--metrics-token-file=", "v1beta1.external.metrics.k8s.io");
    let off = render(&[]).unwrap();
    assert!(!off.contains(agent) && !off.contains(server));
    let on = render(&["--set", "metrics.enabled=true"]).unwrap();
    assert!(on.contains(agent) && on.contains(server) && on.contains("/pod-resources"));
    let alone = ["--set", "metrics.enabled=true", "--set", "metrics.autoscaling=false"];
    let alone = render(&alone).unwrap();
    assert!(
        alone.contains(agent) && !alone.contains(server) && !alone.contains("hotpot-metrics\n")
    );
}

/// The lab's values: what it takes to find a simulated card.
fn values(cluster: &Cluster) -> String {
    let text = format!(
        "image: {{repository: {}, tag: \"{}\", pullPolicy: Never}}\nagent:\n  driverRoot: /run/nvidia/driver\n  extraEnv: [{{name: HOTPOT_FAKE_MACHINE, value: \
         {MACHINE}}}]\n  extraEdits: {}\n",
        IMAGE.rsplit_once(':').unwrap().0,
        IMAGE.rsplit_once(':').unwrap().1,
        client::edits()
    );
    let path = cluster.folder().join("etc/values.yaml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Two pods of a Deployment, which ask by familiar names, and one of a Job, which asks by a claim: each for 10 GiB of a card.
fn work() -> String {
    let pod = |policy: &str, of_pod: &str, asks: &str, then: &str| {
        let line = format!("{TAKES_ALL}{then}");
        format!(
            "{{{of_pod}restartPolicy: {policy}, terminationGracePeriodSeconds: 1, containers: [{{name: main, image: \"{}\", \
             imagePullPolicy: Never, command: [sh, -c, {line:?}], resources: {{{asks}}}}}]}}",
            client::IMAGE
        )
    };
    let names = "limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 10240, nvidia.com/gpucores: 20}";
    let service = pod("Always", "", names, "; sleep 600");
    let claim = "schedulingGates: [{name: hotpot.dev/placement}], resourceClaims: [{name: gpu, resourceClaimTemplateName: ten}], ";
    let batch = pod("Never", claim, "claims: [{name: gpu}]", "");
    template("ten", "{memory: 10Gi, compute: 200m}")
        + &format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: service}}\nspec: {{replicas: 2, selector: {{matchLabels: \
             {{app: service}}}}, template: {{metadata: {{labels: {{app: service}}}}, spec: {service}}}}}\n---\n\
             apiVersion: batch/v1\nkind: Job\nmetadata: {{name: batch}}\nspec: {{template: {{spec: {batch}}}}}\n---\n"
        )
}

/// Pods of the Deployment: name, UID and how often it was started anew.
fn service(cluster: &Cluster) -> Vec<String> {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[0].restartCount}{\"\\n\"}{end}";
    let said = cluster.kubectl(&["get", "pods", "-l", "app=service", "-o", path]).unwrap();
    said.lines().map(str::to_owned).collect()
}

/// What of hotpot is in the cluster.
fn left(cluster: &Cluster) -> String {
    let kinds = "deviceclasses,resourceslices,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let of_cluster = ["get", kinds, "-o", "name"];
    let all = cluster.kubectl(&of_cluster).unwrap();
    let kinds =
        "all,serviceaccounts,configmaps,secrets,leases,roles,rolebindings,poddisruptionbudgets";
    let own = cluster.kubectl(&["-n", NAMESPACE, "get", kinds, "-o", "name"]).unwrap();
    let ours = all.lines().filter(|line| line.contains("hotpot") || line.contains("resourceslice"));
    let usual = ["serviceaccount/default", "configmap/kube-root-ca.crt"];
    ours.chain(own.lines().filter(|line| !usual.contains(line))).collect::<Vec<_>>().join("\n")
}

#[test]
fn hotpot_is_installed_shares_a_card_is_upgraded_under_its_tenants_and_goes_without_a_trace() {
    let test =
        "hotpot_is_installed_shares_a_card_is_upgraded_under_its_tenants_and_goes_without_a_trace";
    if !kubernetes_lab::can_be_had(test) {
        return;
    }
    let folder = Folder::new("chart");
    let cluster = Cluster::up(&folder.0, &Options { gpus: 1, ..Options::default() }).unwrap();
    cluster.import(&client::image()).unwrap();
    cluster.import(&image()).unwrap();
    cluster.kubectl(&["label", "node", "n1", "hotpot.dev/gpu=true"]).unwrap();
    let (values, chart) = (values(&cluster), chart().display().to_string());
    let install = ["--create-namespace", "--values", &values, "--wait", "--timeout=120s"];
    helm(&cluster, &[&["install", "hotpot", &chart], &install[..]].concat()).unwrap();
    cluster.apply(&work()).unwrap();
    cluster.until("two pods", |it| (service(it).len() == 2).then_some(())).unwrap();
    let pods: Vec<String> = service(&cluster)
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .chain(["job/batch".to_owned()])
        .collect();
    for pod in &pods {
        let said = until_said(&cluster, pod);
        assert_eq!(value(&said, "held "), 10 << 30, "{pod}: {said}");
        assert_eq!(value(&said, "code "), 2, "out of memory: {said}");
    }
    let before = service(&cluster);
    let secret = [
        "create",
        "secret",
        "generic",
        "hotpot-metrics-token",
        "--from-literal=token=0123456789abcdef",
    ];
    cluster.kubectl(&[&["-n", NAMESPACE], &secret[..]].concat()).unwrap();
    let upgrade = ["--set", "agent.evict=true", "--set", "metrics.enabled=true"];
    let upgrade = [&install[..], &upgrade[..]].concat();
    helm(&cluster, &[&["upgrade", "hotpot", &chart], &upgrade[..]].concat()).unwrap();
    assert_eq!(service(&cluster), before, "pods that ran run on");
    autoscalers_are_told_of_both(&cluster);
    let escape = ["exec", &pods[0], "--", "sh", "-c", ESCAPES];
    let said = cluster.kubectl(&escape).unwrap();
    assert_eq!(value(&said, "held "), 10 << 30, "its share, and no more: {said}");
    cluster.kubectl(&["delete", "pod", &pods[1]]).unwrap();
    let again = |it: &Cluster| {
        let now = service(it);
        let known = |line: &String| before.contains(line);
        (now.len() == 2).then(|| now.into_iter().find(|line| !known(line)))?
    };
    let again = cluster.until("a pod in its place", again).unwrap();
    let said = until_said(&cluster, again.split(' ').next().unwrap());
    assert_eq!(value(&said, "held "), 10 << 30, "by the new agent: {said}");
    cluster
        .kubectl(&["delete", "deployment/service", "job/batch", "--cascade=foreground"])
        .unwrap();
    let gone = |it: &Cluster| traces(it, "n1").is_empty().then_some(());
    cluster.until("no trace on the node", gone).unwrap();
    a_daemon_of_mps_outlives_the_agent_and_ends_with_its_tenant(&cluster);
    helm(&cluster, &["uninstall", "hotpot", "--wait"]).unwrap();
    cluster.kubectl(&["-n", NAMESPACE, "delete", "secret", "hotpot-metrics-token"]).unwrap();
    cluster.until("nothing in the cluster", |it| left(it).is_empty().then_some(())).unwrap();
    let sockets = "find /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry -name '*hotpot*' -type s; ls /run/cdi";
    let found = said_on(&cluster, sockets);
    assert_eq!(found, "", "on the node");
}

/// Both pods, as the API server's external metrics have them; what they have allocated they have given back by now.
fn autoscalers_are_told_of_both(cluster: &Cluster) {
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/hotpot_gpu_memory_used_bytes?labelSelector=app%3Dservice";
    let told = |it: &Cluster| {
        let list = it.kubectl(&["get", "--raw", path]).ok()?;
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        let values: Vec<u64> =
            items.map(|item| item["value"].as_str().unwrap().parse().unwrap()).collect();
        (values == [0, 0]).then_some(())
    };
    cluster.until("what both pods hold", told).unwrap();
}

/// One that died with the agent's container would take its tenants' GPU with it.
fn a_daemon_of_mps_outlives_the_agent_and_ends_with_its_tenant(cluster: &Cluster) {
    let config = "config: [{opaque: {driver: gpu.hotpot.dev, parameters: {apiVersion: hotpot.dev/v1, kind: GpuShare, \
                  sharing: mps}}}], requests: [{name: gpu";
    let by_mps =
        template("mps", "{memory: 10Gi, compute: 300m}").replace("requests: [{name: gpu", config);
    assert!(by_mps.contains("sharing: mps"), "{by_mps}");
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: by-mps}}\nspec: {{schedulingGates: [{{name: hotpot.dev/placement}}], \
         terminationGracePeriodSeconds: 1, resourceClaims: [{{name: gpu, resourceClaimTemplateName: mps}}], containers: [{{name: main, \
         image: \"{}\", imagePullPolicy: Never, command: [sleep, \"600\"], resources: {{claims: [{{name: gpu}}]}}}}]}}\n",
        client::IMAGE
    );
    cluster.apply(&(by_mps + &pod)).unwrap();
    let words = ["wait", "--for=condition=Ready", "pod/by-mps", "--timeout=60s"];
    cluster.kubectl(&words).unwrap();
    let daemon = "cat /run/hotpot/mps/*/pipe/nvidia-cuda-mps-control.pid";
    let before = said_on(cluster, daemon);
    let agent = ["-n", NAMESPACE, "delete", "pod", "-l", "app.kubernetes.io/component=agent"];
    cluster.kubectl(&agent).unwrap();
    cluster.kubectl(&["-n", NAMESPACE, "rollout", "status", "daemonset/hotpot-agent"]).unwrap();
    assert_eq!(said_on(cluster, daemon), before);
    said_on(cluster, &format!("grep -q mps-control /proc/{}/cmdline", before.trim()));
    cluster.kubectl(&["delete", "pod/by-mps"]).unwrap();
    let ended = |it: &Cluster| {
        (said_on(it, "ls /run/hotpot/mps") + &traces(it, "n1")).is_empty().then_some(())
    };
    cluster.until("the end of the daemon", ended).unwrap();
}

fn said_on(cluster: &Cluster, line: &str) -> String {
    said(cluster.on_node("n1", "sh").unwrap().args(["-c", line])).unwrap()
}
