//! A real node: pods hold shares of one simulated card, and each is held to its own.
#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use std::path::Path;
use std::process::Stdio;

use fake_machine::Machine;
use kubernetes::names;
use kubernetes_lab::hotpot::CLASS;
use kubernetes_lab::{Cluster, Options};
use live::client::{self, ESCAPES, IMAGE, MACHINE, TAKES_ALL, edits, traces, until_said, value};
use live::{Folder, Running, built, controller, template};

/// Starts the agent on a node as its service would.
///
/// * `more` — more options of it.
fn agent(cluster: &Cluster, node: &str, more: &[&str]) -> Running {
    let extra = cluster.folder().join("etc/extra.json");
    std::fs::write(&extra, format!("{{\"containerEdits\": {}}}", edits())).unwrap();
    let log =
        std::fs::File::create(cluster.folder().join(format!("log/agent-{node}.log"))).unwrap();
    let mut command = cluster.on_node(node, built("hotpot")).unwrap();
    command
        .args([
            "kubernetes",
            "agent",
            "--node",
            node,
            "--driver-root",
            "/run/nvidia/driver",
            "--extra",
        ])
        .arg(extra);
    command.args(["--runtime", "/run/containerd/containerd.sock"]).args(more);
    command.env("HOTPOT_FAKE_MACHINE", MACHINE);
    command.env("HOTPOT_NVML", "/run/nvidia/driver/lib/libnvidia-ml.so.1");
    Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

/// A pod that takes all the memory it can have of its card, says how much, and stays.
fn pod(name: &str, claim: &str) -> String {
    let client = format!("{TAKES_ALL}; sleep 600");
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  schedulingGates: [{{name: hotpot.dev/placement}}]\n  \
         resourceClaims: [{{name: gpu, {claim}}}]\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {IMAGE}\n    \
         imagePullPolicy: Never\n    command: [sh, -c, {client:?}]\n    resources: {{claims: [{{name: gpu}}]}}\n---\n"
    )
}

#[test]
fn two_pods_on_one_card_are_each_held_to_their_share_and_leave_no_trace() {
    let test = "two_pods_on_one_card_are_each_held_to_their_share_and_leave_no_trace";
    if !kubernetes_lab::can_be_had(test) {
        return;
    }
    let folder = Folder::new("node");
    let cluster = Cluster::up(&folder.0, &Options { gpus: 1, ..Options::default() }).unwrap();
    cluster.import(&client::image()).unwrap();
    cluster.apply(CLASS).unwrap();
    let _agent = agent(&cluster, "n1", &[]);
    let _controller = controller(&cluster);
    let amounts = "{memory: 10Gi, compute: 300m}";
    cluster
        .apply(
            &(template("ten", amounts)
                + &pod("one", "resourceClaimTemplateName: ten")
                + &pod("two", "resourceClaimTemplateName: ten")),
        )
        .unwrap();
    for name in ["one", "two"] {
        let said = until_said(&cluster, name);
        assert_eq!(value(&said, "held "), 10 << 30, "{said}");
        assert_eq!(value(&said, "code "), 2, "out of memory: {said}");
    }
    // A user of the pod cannot take the cap off by the environment.
    let said = cluster.kubectl(&["exec", "one", "--", "sh", "-c", ESCAPES]).unwrap();
    assert!(value(&said, "held ") <= 10 << 30, "{said}");
    cluster.kubectl(&["delete", "pod", "one", "two"]).unwrap();
    let gone = |it: &Cluster| traces(it, "n1").is_empty().then_some(());
    cluster.until("no trace", gone).unwrap();
    assert!(Path::new(&cluster.machine("n1")).exists());
}

#[test]
fn three_pods_take_turns_on_two_cards_by_the_manifest_that_means_it() {
    let test = "three_pods_take_turns_on_two_cards_by_the_manifest_that_means_it";
    if !kubernetes_lab::can_be_had(test) {
        return;
    }
    let folder = Folder::new("turns");
    let cluster = Cluster::up(&folder.0, &Options { gpus: 2, ..Options::default() }).unwrap();
    cluster.import(&client::image()).unwrap();
    cluster.apply(CLASS).unwrap();
    let _agent = agent(&cluster, "n1", &[]);
    let _controller = controller(&cluster);
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes/taking-turns.yaml");
    let example = std::fs::read_to_string(example).unwrap();
    // The lab has no registry: its own image works on each card for a while, and says so.
    let (image, does) = ("nvidia/cuda:12.9.1-base-ubuntu24.04", "nvidia-smi; sleep infinity");
    assert!(example.contains(image) && example.contains(does));
    let example = example
        .replace(image, &format!("{IMAGE}\n          imagePullPolicy: Never"))
        .replace(does, "client gpu-client about; echo | client gpu-client idle; echo cards $CUDA_VISIBLE_DEVICES; echo over; trap exit TERM; sleep 600 & wait");
    cluster.apply(&example).unwrap();
    let running = |it: &Cluster| {
        let words = [
            "get",
            "pods",
            "-o",
            "jsonpath={range .items[*]}{.metadata.name}={.status.phase} {end}",
        ];
        let text = it.kubectl(&words).ok()?;
        let up: Vec<String> = text
            .split_whitespace()
            .filter_map(|pod| pod.strip_suffix("=Running"))
            .map(str::to_owned)
            .collect();
        (up.len() == 3).then_some(up)
    };
    for pod in cluster.until("three pods that run", running).unwrap() {
        let said = until_said(&cluster, &pod);
        let cards = said.lines().find_map(|line| line.strip_prefix("cards ")).unwrap_or_default();
        assert_eq!(cards.split(',').filter(|uuid| uuid.starts_with("GPU-")).count(), 2, "{said}");
        assert!(said.contains("holding"), "it had a context: {said}");
    }
    let claim = cluster.kubectl(&["get", "resourceclaim", "two-a100", "-o", "json"]).unwrap();
    assert_eq!(claim.matches("\"resource\": \"pods\"").count(), 3, "{claim}");
    cluster.kubectl(&["delete", "deployment", "taking-turns"]).unwrap();
    let gone = |it: &Cluster| traces(it, "n1").is_empty().then_some(());
    cluster.until("no trace", gone).unwrap();
}

/// The pods of a deployment that run, each with the device that its claim holds.
fn seated(cluster: &Cluster) -> Option<Vec<(String, String)>> {
    let path = "jsonpath={range .items[*]}{.status.reservedFor[0].name}={.status.allocation.devices.results[0].device} {end}";
    let seats = cluster.kubectl(&["get", "resourceclaims", "-o", path]).ok()?;
    let running = [
        "get",
        "pods",
        "--field-selector=status.phase=Running",
        "-o",
        "jsonpath={range .items[*]}{.metadata.name} {end}",
    ];
    let running = cluster.kubectl(&running).ok()?;
    let seat = |pod: &str| {
        let found = seats.split_whitespace().filter_map(|seat| seat.split_once('='));
        found.into_iter().find(|(name, _)| *name == pod).map(|(_, device)| device.to_owned())
    };
    running.split_whitespace().map(|pod| Some((pod.to_owned(), seat(pod)?))).collect()
}

#[test]
fn a_pod_leaves_a_card_that_is_lost_and_goes_on_at_another() {
    let test = "a_pod_leaves_a_card_that_is_lost_and_goes_on_at_another";
    if !kubernetes_lab::can_be_had(test) {
        return;
    }
    let folder = Folder::new("lost");
    let cluster = Cluster::up(&folder.0, &Options { gpus: 2, ..Options::default() }).unwrap();
    cluster.import(&client::image()).unwrap();
    cluster.apply(CLASS).unwrap();
    let _agent = agent(&cluster, "n1", &["--evict"]);
    let _controller = controller(&cluster);
    let one = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: stays}}\nspec:\n  selector: {{matchLabels: {{app: stays}}}}\n  template:\n    \
         metadata: {{labels: {{app: stays}}}}\n    spec:\n      schedulingGates: [{{name: hotpot.dev/placement}}]\n      \
         resourceClaims: [{{name: gpu, resourceClaimTemplateName: ten}}]\n      terminationGracePeriodSeconds: 1\n      containers:\n      \
         - {{name: main, image: {IMAGE}, imagePullPolicy: Never, command: [sleep, \"600\"], resources: {{claims: [{{name: gpu}}]}}}}\n"
    );
    cluster.apply(&(template("ten", "{memory: 10Gi}") + &one)).unwrap();
    let seat = |it: &Cluster| seated(it)?.pop();
    let (first, lost) = cluster.until("a pod that runs", seat).unwrap();
    let machine = Machine::open(cluster.machine("n1")).unwrap();
    let is_lost = |at: &u32| names::card(&machine.read().gpu(*at).unwrap().uuid) == lost;
    let at = (0..2).find(is_lost).unwrap();
    machine
        .edit(|state| {
            state.gpu_mut(at)?.lost = true;
            Ok(())
        })
        .unwrap();
    let elsewhere =
        |it: &Cluster| seat(it).filter(|(pod, device)| *pod != first && *device != lost);
    cluster.until("the pod's successor at the other card", elsewhere).unwrap();
    let is_one = |it: &Cluster| {
        let held = it.kubectl(&["get", "resourceclaims", "-o", "name"]).ok()?;
        (held.lines().count() == 1).then_some(())
    };
    cluster.until("the lost card's claim gone", is_one).unwrap();
}
