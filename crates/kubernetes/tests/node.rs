//! A real node: pods hold shares of one simulated card, and each is held to its own.
#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use std::path::Path;
use std::process::Stdio;

use kubernetes_lab::hotpot::CLASS;
use kubernetes_lab::{Cluster, Image, Options};
use live::{Folder, Running, built, controller, template};

const IMAGE: &str = "localhost/lab/client:1";
/// What containers need beside the driver's files to find a simulated card.
const EXTRA: &str = r#"{"containerEdits": {"env": ["HOTPOT_FAKE_MACHINE=/run/nvidia/driver/machine"],
    "mounts": [{"hostPath": "/run/nvidia/driver/machine", "containerPath": "/run/nvidia/driver/machine", "options": ["rbind", "rw"]}]}}"#;

/// Starts the agent on a node as its service would.
fn agent(cluster: &Cluster, node: &str) -> Running {
    let extra = cluster.folder().join("etc/extra.json");
    std::fs::write(&extra, EXTRA).unwrap();
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
    command.args(["--runtime", "/run/containerd/containerd.sock"]);
    command.env("HOTPOT_FAKE_MACHINE", "/run/nvidia/driver/machine");
    command.env("HOTPOT_NVML", "/run/nvidia/driver/lib/libnvidia-ml.so.1");
    Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

/// A pod that takes all the memory it can have of its card, says how much, and stays.
fn pod(name: &str, claim: &str) -> String {
    let client = "for i in 1 2 3; do echo; done | client gpu-client allocate way=plain piece=268435456; echo over; sleep 600";
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  schedulingGates: [{{name: hotpot.dev/placement}}]\n  \
         resourceClaims: [{{name: gpu, {claim}}}]\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {IMAGE}\n    \
         imagePullPolicy: Never\n    command: [sh, -c, {client:?}]\n    resources: {{claims: [{{name: gpu}}]}}\n---\n"
    )
}

fn until_said(cluster: &Cluster, pod: &str) -> String {
    let said = |it: &Cluster| it.kubectl(&["logs", pod]).ok().filter(|text| text.contains("over"));
    cluster.until(&format!("what {pod} says"), said).unwrap()
}

/// A line `name value` of what a pod has said.
fn value(said: &str, name: &str) -> u64 {
    let found = said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in: {said}"))
}

#[test]
fn two_pods_on_one_card_are_each_held_to_their_share_and_leave_no_trace() {
    let test = "two_pods_on_one_card_are_each_held_to_their_share_and_leave_no_trace";
    if !kubernetes_lab::can_be_had(test) {
        return;
    }
    let folder = Folder::new("node");
    let cluster = Cluster::up(&folder.0, &Options { gpus: 1, ..Options::default() }).unwrap();
    let image =
        Image::new(IMAGE).busybox().unwrap().program("/bin/client", built("xtask")).unwrap();
    cluster.import(&image).unwrap();
    cluster.apply(CLASS).unwrap();
    let _agent = agent(&cluster, "n1");
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
    let escape = "printf '\\n\\n\\n' | env -i HOTPOT_FAKE_MACHINE=/run/nvidia/driver/machine /bin/client gpu-client allocate way=plain piece=268435456";
    let said = cluster.kubectl(&["exec", "one", "--", "sh", "-c", escape]).unwrap();
    assert!(value(&said, "held ") <= 10 << 30, "{said}");
    cluster.kubectl(&["delete", "pod", "one", "two"]).unwrap();
    let files = |it: &Cluster| {
        let words = ["-c", "ls /run/cdi; ls /var/lib/hotpot/caps 2>/dev/null"];
        let listed = it.on_node("n1", "sh").unwrap().args(words).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).into_owned()
    };
    cluster.until("no trace", |it| files(it).trim().is_empty().then_some(())).unwrap();
    assert!(Path::new(&cluster.machine("n1")).exists());
}
