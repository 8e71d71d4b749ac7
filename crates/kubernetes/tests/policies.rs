//! Who may write what once the chart is installed: the API server's own answers, on a real control plane.
#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use kubernetes_lab::hotpot::slice;
use kubernetes_lab::{Cluster, ObjectNode, Options, WITHOUT_SIGNS_OF_LIFE};
use live::Folder;
use live::chart::{NAMESPACE, chart, file, helm, said};

/// Who somebody is to the API server.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// A cluster's administrator.
    Admin,
    Scheduler,
    /// A component of hotpot, with no more than its own rights.
    Hotpot(&'static str),
    /// The agent by a token of a node, with all rights: only policies can keep it from anything.
    AgentOf(&'static str),
}

impl Who {
    fn words(self) -> Vec<String> {
        let account = |name: &str| format!("--as=system:serviceaccount:{NAMESPACE}:hotpot-{name}");
        match self {
            Self::Admin => Vec::new(),
            Self::Scheduler => vec!["--as=system:kube-scheduler".into()],
            Self::Hotpot(name) => vec![account(name)],
            Self::AgentOf(node) => vec![
                account("agent"),
                "--as-group=system:masters".into(),
                format!("--as-user-extra=authentication.kubernetes.io/node-name={node}"),
            ],
        }
    }
}

/// A control plane with hotpot's objects, but none of its programs.
fn installed(test: &str, folder: &Folder) -> Option<Cluster> {
    if !kubernetes_lab::can_be_had(test) {
        return None;
    }
    let controllers = vec![WITHOUT_SIGNS_OF_LIFE.to_owned()];
    let options = Options { nodes: 0, controllers, ..Options::default() };
    let cluster = Cluster::up(&folder.0, &options).unwrap();
    let nodes =
        ["n1", "n2"].map(|name| ObjectNode { name: name.into(), cpus: 8, memory_mib: 8000 });
    cluster.add_nodes(&nodes).unwrap();
    let chart = chart().display().to_string();
    helm(&cluster, &["install", "hotpot", &chart, "--create-namespace"]).unwrap();
    // The API server takes a policy some moments after it has stored it.
    let is_in_force = |it: &Cluster| {
        let tried =
            kubectl(it, Who::Admin, &["create", "--dry-run=server", "-f", "-"], &slice("n1"));
        tried.is_err().then_some(())
    };
    cluster.until("policies in force", is_in_force).unwrap();
    Some(cluster)
}

fn kubectl(cluster: &Cluster, who: Who, words: &[&str], input: &str) -> Result<String, String> {
    let path = cluster.folder().join("run/asked");
    std::fs::write(&path, input).unwrap();
    let mut command = cluster.command("kubectl");
    command.stdin(std::fs::File::open(path).unwrap());
    said(command.args(words).args(who.words()))
}

/// Fails unless the answer is as wanted: `None` for yes, else a part of what is said.
fn check(answer: Result<String, String>, wanted: Option<&str>, what: &str) {
    match (answer, wanted) {
        (Ok(_), None) => {}
        (Err(text), Some(wanted)) => assert!(text.contains(wanted), "{what}: {text}"),
        (answer, wanted) => panic!("{what}: {answer:?}, wanted {wanted:?}"),
    }
}

/// A claim's status with a device of a driver, decided in a term.
fn allocation(driver: &str, term: Option<i64>) -> String {
    let epoch = term.map(|term| format!(", \"epoch\": {term}")).unwrap_or_default();
    let parameters =
        format!("{{\"apiVersion\": \"hotpot.dev/v1\", \"kind\": \"GpuShare\"{epoch}}}");
    let result = format!(
        "{{\"request\": \"gpu\", \"driver\": \"{driver}\", \"pool\": \"n1\", \"device\": \"gpu-n1\"}}"
    );
    format!(
        "{{\"status\": {{\"allocation\": {{\"devices\": {{\"results\": [{result}], \"config\": [{{\"source\": \"FromClass\", \
         \"requests\": [\"gpu\"], \"opaque\": {{\"driver\": \"{driver}\", \"parameters\": {parameters}}}}}]}}, \"nodeSelector\": \
         {{\"nodeSelectorTerms\": [{{\"matchFields\": [{{\"key\": \"metadata.name\", \"operator\": \"In\", \"values\": [\"n1\"]}}]}}]}}}}}}}}"
    )
}

/// kubectl reads what it patches, by the same way.
const READING: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reading}\nrules: \
    [{apiGroups: [resource.k8s.io], resources: [resourceclaims/status], verbs: [get]}, \
    {apiGroups: [\"\"], resources: [pods/status], verbs: [get]}]\n---\n\
    apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: reading}\nroleRef: \
    {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reading}\nsubjects: \
    [{kind: ServiceAccount, namespace: hotpot, name: hotpot-controller}, {kind: ServiceAccount, namespace: hotpot, name: hotpot-agent}, \
    {kind: ServiceAccount, namespace: hotpot, name: hotpot-webhook}]\n---\n";
const RESERVED: &str =
    r#"{"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "UID"}]}}"#;
const FREE: &str = r#"{"status": {"allocation": null, "reservedFor": null}}"#;
const READY: &str = r#"{"status": {"devices": [{"driver": "gpu.hotpot.dev", "pool": "n1", "device": "gpu-n1",
    "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]}}"#;
const UNSAID: &str = r#"{"status": {"devices": null}}"#;

fn patch(cluster: &Cluster, who: Who, claim: &str, status: &str) -> Result<String, String> {
    let words = ["patch", "resourceclaim", claim, "--subresource=status", "--type=merge", "-p"];
    kubectl(cluster, who, &[&words[..], &[status]].concat(), "")
}

fn claim(name: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nspec: {{devices: {{requests: \
         [{{name: gpu, exactly: {{deviceClassName: gpu.hotpot.dev}}}}]}}}}\n---\n"
    )
}

#[test]
fn slices_are_written_by_the_agent_of_their_node_alone() {
    let test = "slices_are_written_by_the_agent_of_their_node_alone";
    let folder = Folder::new("slices");
    let Some(cluster) = installed(test, &folder) else { return };
    let alone = Some("are written by hotpot's agent alone");
    let of_n2 = Some("the agent of node `n2` writes slices and pools of that node alone");
    let of_none = Some("the agent of node `` writes");
    let other = slice("n1").replace("gpu.hotpot.dev", "gpu.example.com").replace("n1-gpu", "other");
    let lent = slice("n1").replace("pool: {name: n1", "pool: {name: n2");
    let create = ["create", "-f", "-"];
    for (who, what, wanted) in [
        (Who::Admin, &slice("n1"), alone),
        (Who::Hotpot("agent"), &slice("n1"), of_none),
        (Who::AgentOf("n2"), &slice("n1"), of_n2),
        (Who::AgentOf("n1"), &lent, Some("the agent of node `n1` writes")),
        (Who::AgentOf("n1"), &slice("n1"), None),
        (Who::Admin, &other, None),
        // With all rights, an agent still writes nothing for other drivers.
        (
            Who::AgentOf("n1"),
            &other.replace("name: other", "name: more"),
            Some("writes slices and pools of that node alone"),
        ),
    ] {
        check(kubectl(&cluster, who, &create, what), wanted, &format!("{who:?} creates {what}"));
    }
    let more = slice("n1").replace("generation: 1", "generation: 2");
    let delete = ["delete", "resourceslice", "n1-gpu"];
    for (who, words, input, wanted) in [
        (Who::Admin, &["replace", "-f", "-"][..], &more, alone),
        (Who::AgentOf("n2"), &["replace", "-f", "-"][..], &more, of_n2),
        (Who::AgentOf("n1"), &["replace", "-f", "-"][..], &more, None),
        (Who::AgentOf("n2"), &delete[..], &more, of_n2),
        // As the kubelet and the garbage collector do.
        (Who::Admin, &delete[..], &more, None),
    ] {
        let what = format!("{who:?} {words:?}");
        check(kubectl(&cluster, who, words, input), wanted, &what);
    }
}

#[test]
fn devices_are_given_by_the_controller_in_its_term_alone() {
    let test = "devices_are_given_by_the_controller_in_its_term_alone";
    let folder = Folder::new("claims");
    let Some(cluster) = installed(test, &folder) else { return };
    cluster.apply(&(READING.to_owned() + &claim("ours") + &claim("theirs"))).unwrap();
    let lease = ["-n", NAMESPACE, "patch", "lease", "hotpot-controller", "--type=merge", "-p"];
    let third = r#"{"spec": {"leaseTransitions": 3, "holderIdentity": "a"}}"#;
    kubectl(&cluster, Who::Hotpot("controller"), &[&lease[..], &[third]].concat(), "").unwrap();
    let ours = |term| allocation("gpu.hotpot.dev", term);
    let seen = |it: &Cluster| {
        let early = patch(it, Who::Hotpot("controller"), "ours", &ours(Some(2)));
        early.err().filter(|text| text.contains("is at term 3"))
    };
    cluster.until("the lease seen by the policy", seen).unwrap();
    let controller = Who::Hotpot("controller");
    let alone = Some("are given by hotpot's controller alone");
    let unsaid = Some("carries the number of its term, and this does not");
    let agent = Some("is said by the agent of their node alone");
    // Whom a claim is reserved for and is not there, the controller manager strikes out.
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default}\n";
    let _made_by_the_controllers = cluster.apply(account);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {schedulingGates: [{name: other}], containers: [{name: main, image: none}]}\n";
    cluster.apply(pod).unwrap();
    let uid = cluster.kubectl(&["get", "pod", "p", "-o", "jsonpath={.metadata.uid}"]).unwrap();
    let mut is_held = false;
    for (who, status, wanted) in [
        (Who::Admin, ours(Some(3)), alone),
        (Who::Scheduler, ours(Some(3)), alone),
        (Who::AgentOf("n1"), ours(Some(3)), alone),
        // RBAC comes first.
        (Who::Hotpot("agent"), ours(Some(3)), Some("cannot patch resource")),
        (Who::Hotpot("webhook"), ours(Some(3)), Some("cannot patch resource")),
        (controller, ours(None), unsaid),
        (controller, ours(Some(3)).replace("\"epoch\": 3", "\"epoch\": \"3\""), unsaid),
        (controller, ours(Some(0)), Some("is at term 3, and this was decided in an earlier one")),
        (controller, ours(Some(3)), None),
        (Who::Scheduler, RESERVED.to_owned(), None),
        (Who::AgentOf("n2"), READY.to_owned(), agent),
        (Who::Admin, READY.to_owned(), agent),
        (Who::AgentOf("n1"), READY.to_owned(), None),
        (Who::Admin, UNSAID.to_owned(), agent),
        (Who::Scheduler, FREE.to_owned(), None),
        (controller, ours(Some(4)), None),
        (controller, FREE.to_owned(), None),
    ] {
        let written = status.replace("UID", &uid);
        check(patch(&cluster, who, "ours", &written), wanted, &format!("{who:?}: {status}"));
        is_held = match wanted {
            None if status == RESERVED => true,
            None if status == FREE => false,
            _ => is_held,
        };
        let delete = ["delete", "resourceclaim", "ours", "--dry-run=server"];
        let wanted = is_held.then_some("hold devices of gpu.hotpot.dev by this claim: p; delete");
        check(kubectl(&cluster, Who::Admin, &delete, ""), wanted, "deletes the claim");
    }
    // Claims of other drivers are none of our business, whatever has become of our Lease.
    cluster.kubectl(&["-n", NAMESPACE, "delete", "lease", "hotpot-controller"]).unwrap();
    for status in [allocation("gpu.example.com", None), RESERVED.to_owned(), FREE.to_owned()] {
        check(patch(&cluster, Who::Scheduler, "theirs", &status), None, &status);
    }
}

#[test]
fn what_the_programs_have_written_outlives_an_upgrade() {
    let test = "what_the_programs_have_written_outlives_an_upgrade";
    let folder = Folder::new("upgrade");
    let Some(cluster) = installed(test, &folder) else { return };
    let own = ["-n", NAMESPACE];
    let parts = [
        ("secret", "hotpot-webhook", r#"{"data": {"key": "c2VjcmV0"}}"#, "{.data.key}"),
        (
            "lease",
            "hotpot-controller",
            r#"{"spec": {"leaseTransitions": 7}}"#,
            "{.spec.leaseTransitions}",
        ),
        (
            "mutatingwebhookconfiguration",
            "hotpot",
            r#"{"webhooks": [{"name": "pods.hotpot.dev", "clientConfig": {"caBundle": "LS0tLS1="}}]}"#,
            "{.webhooks[0].clientConfig.caBundle}",
        ),
    ];
    let written = || {
        parts.map(|(kind, name, _, path)| {
            let path = format!("jsonpath={path}");
            let read = [&own[..], &["get", kind, name, "-o", &path]].concat();
            cluster.kubectl(&read).unwrap()
        })
    };
    for (kind, name, text, _) in parts {
        let patch = [&own[..], &["patch", kind, name, "--type=strategic", "-p", text]].concat();
        cluster.kubectl(&patch).unwrap();
    }
    let before = written();
    assert!(before.iter().all(|text| !text.is_empty()), "{before:?}");
    let chart = chart().display().to_string();
    helm(&cluster, &["upgrade", "hotpot", &chart, "--set", "agent.evict=true"]).unwrap();
    assert_eq!(written(), before);
    // The plain manifests are taken too.
    let plain = file("deploy/kubernetes/hotpot.yaml").display().to_string();
    let words = ["apply", "--dry-run=server", "--force-conflicts", "--server-side", "-f", &plain];
    cluster.kubectl(&words).unwrap();
}

#[test]
fn each_component_may_do_what_it_must_and_no_more() {
    let test = "each_component_may_do_what_it_must_and_no_more";
    let folder = Folder::new("rights");
    let Some(cluster) = installed(test, &folder) else { return };
    let cases = [
        ("controller", "patch pods --subresource=status", true),
        ("controller", "create pods --subresource=eviction", true),
        ("controller", "patch resourceclaims --subresource=binding", true),
        ("controller", "delete pods", false),
        ("controller", "create pods", false),
        ("controller", "update leases/hotpot-controller -n hotpot", true),
        ("controller", "update leases/other -n hotpot", false),
        ("controller", "create leases -n default", false),
        ("controller", "get secrets -n hotpot", false),
        ("controller", "create resourceslices", false),
        ("agent", "create resourceslices", true),
        ("agent", "get resourceclaims", true),
        ("agent", "list resourceclaims", false),
        ("agent", "list pods", false),
        ("agent", "list nodes", false),
        ("agent", "patch nodes", false),
        ("agent", "get secrets -n hotpot", false),
        ("webhook", "update secrets/hotpot-webhook -n hotpot", true),
        ("webhook", "get secrets/other -n hotpot", false),
        ("webhook", "list secrets -n hotpot", false),
        ("webhook", "patch mutatingwebhookconfigurations/hotpot", true),
        ("webhook", "patch mutatingwebhookconfigurations/other", false),
        ("webhook", "get resourceclaims", true),
        ("webhook", "list resourceclaims", false),
        ("webhook", "list pods", false),
        ("webhook", "patch resourceclaims --subresource=status", false),
    ];
    for (component, may, wanted) in cases {
        let words: Vec<&str> = ["auth", "can-i"].into_iter().chain(may.split(' ')).collect();
        // It fails for a no.
        let answer = kubectl(&cluster, Who::Hotpot(component), &words, "");
        assert_eq!(answer.is_ok(), wanted, "{component}: {may}: {answer:?}");
    }
}

#[test]
fn the_controller_opens_gates_of_pods_and_changes_nothing_else_of_them() {
    let test = "the_controller_opens_gates_of_pods_and_changes_nothing_else_of_them";
    let folder = Folder::new("pods");
    let Some(cluster) = installed(test, &folder) else { return };
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {app: a}}\nspec: {schedulingGates: [{name: hotpot.dev/placement}, {name: other}], \
               containers: [{name: main, image: none}]}\n";
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default}\n";
    let _made_by_the_controllers = cluster.apply(account);
    cluster.apply(&(READING.to_owned() + pod)).unwrap();
    let controller = Who::Hotpot("controller");
    let (nothing, gates, placed) = (
        Some("changes nothing else of them"),
        Some("leaves others alone"),
        Some("and nothing else"),
    );
    let in_force = |it: &Cluster| {
        let words = ["label", "pod", "p", "app=b", "--overwrite", "--dry-run=server"];
        kubectl(it, controller, &words, "").is_err().then_some(())
    };
    cluster.until("the policy in force", in_force).unwrap();
    for (patch, status, wanted) in [
        (r#"{"metadata": {"labels": {"app": "b"}}}"#, false, nothing),
        (r#"{"spec": {"containers": [{"name": "main", "image": "mine"}]}}"#, false, nothing),
        (r#"{"spec": {"nodeSelector": {"a": "b"}}}"#, false, nothing),
        (r#"{"spec": {"schedulingGates": [{"name": "other", "$patch": "delete"}]}}"#, false, gates),
        (r#"{"status": {"phase": "Succeeded"}}"#, true, placed),
        (r#"{"status": {"podIPs": [{"ip": "10.0.0.1"}]}}"#, true, placed),
        (
            r#"{"status": {"conditions": [{"type": "PodScheduled", "$patch": "delete"}]}}"#,
            true,
            placed,
        ),
        (r#"{"status": {"nominatedNodeName": "n1"}}"#, true, None),
        (r#"{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}"#, true, placed),
        (
            r#"{"status": {"conditions": [{"type": "hotpot.dev/Placed", "status": "False", "reason": "Waiting"}]}}"#,
            true,
            None,
        ),
        (
            r#"{"spec": {"schedulingGates": [{"name": "hotpot.dev/placement", "$patch": "delete"}]}}"#,
            false,
            None,
        ),
    ] {
        let kind = if status { "--subresource=status" } else { "--subresource=" };
        let words = ["patch", "pod", "p", kind, "--type=strategic", "-p", patch];
        check(kubectl(&cluster, controller, &words, ""), wanted, patch);
    }
}
