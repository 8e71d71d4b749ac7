//! `cargo xtask kubernetes-bind`: pods bound per second by the stock scheduler alone, with plain pods, and with hotpot, whose pods hold a
//! share of a card each; on one real control plane, in one run.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use kubernetes_lab::hotpot::{CLASS, slice};
use kubernetes_lab::{Cluster, Daemon, LabError, ObjectNode, Options, WITHOUT_SIGNS_OF_LIFE};

use crate::Verdict;
use crate::gpu::table::Table;

/// Nodes and pods, in full and with `--quick`.
const SIZE: [(u32, u32); 2] = [(100, 500), (40, 200)];
/// What hotpot may cost.
const RATIO_MIN: f64 = 0.95;
const PATIENCE: Duration = Duration::from_secs(300);

const TEMPLATE: &str = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: share}\nspec: {spec: {devices: {requests: \
                        [{name: gpu, exactly: {deviceClassName: gpu.hotpot.dev, capacity: {requests: {memory: 10Gi}}}}]}}}\n---\n";

/// * `quick` — 200 pods on 40 nodes instead of 500 on 100.
pub(crate) fn run(quick: bool) -> Verdict {
    let (nodes, pods) = SIZE[usize::from(quick)];
    let program = crate::slurm::built()?.join("hotpot");
    let rates = [false, true]
        .map(|with_hotpot| rate(nodes, pods, with_hotpot.then_some(program.as_path())));
    let [alone, ours] = rates;
    let (alone, ours) = (alone?, ours?);
    let mut table =
        Table::new(&format!("{pods} pods on {nodes} nodes"), &["", "pods bound per second"]);
    table.row(vec!["stock scheduler, plain pods".into(), format!("{alone:.1}")]);
    table.row(vec!["with hotpot, a share each".into(), format!("{ours:.1}")]);
    println!("{}", table.text());
    let ratio = ours / alone;
    println!("ratio {ratio:.3}, wanted {RATIO_MIN}");
    if ratio < RATIO_MIN { Err(format!("missed: {ratio:.3}")) } else { Ok(()) }
}

/// Pods bound per second, from the first that is bound to the last.
///
/// * `hotpot` — the program; without it pods are plain.
fn rate(nodes: u32, pods: u32, hotpot: Option<&Path>) -> Result<f64, String> {
    let said = |error: LabError| error.to_string();
    let folder = std::env::temp_dir().join(format!("hotpot-bind-{}", std::process::id()));
    let options =
        Options { nodes: 0, controllers: vec![WITHOUT_SIGNS_OF_LIFE.into()], ..Options::default() };
    let cluster = Cluster::up(&folder, &options).map_err(said)?;
    let names: Vec<String> = (0..nodes).map(|at| format!("n{at:03}")).collect();
    let object = |name: &String| ObjectNode { name: name.clone(), cpus: 16, memory_mib: 64_000 };
    cluster.add_nodes(&names.iter().map(object).collect::<Vec<_>>()).map_err(said)?;
    let slices: String = names.iter().map(|name| slice(name)).collect();
    cluster.apply(&([CLASS, TEMPLATE, &slices].concat())).map_err(said)?;
    // Nobody is bound before all are there, pods and claims alike: what kube-controller-manager makes of a template in a second its own limit
    // says, for whatever driver.
    cluster.stop(&Daemon::Scheduler);
    let made: String = (0..pods).map(|at| pod(at, hotpot.is_some())).collect();
    cluster.kubectl_with(&["create", "-f", "-"], &made).map_err(said)?;
    let wanted = if hotpot.is_some() { pods as usize } else { 0 };
    cluster
        .until("claims made from the template", |it| {
            let all = it.kubectl(&["get", "resourceclaims", "-o", "name"]).ok()?;
            (all.lines().count() >= wanted).then_some(())
        })
        .map_err(said)?;
    // The scheduler is there first: what hotpot takes is part of the rate.
    if hotpot.is_some() {
        cluster.start(&Daemon::Scheduler).map_err(said)?;
    }
    let watch = watch(&cluster)?;
    let _controller = hotpot.map(|program| controller(&cluster, program)).transpose()?;
    if hotpot.is_none() {
        cluster.start(&Daemon::Scheduler).map_err(said)?;
    }
    let rate = until_bound(watch, pods as usize);
    drop(cluster);
    let _ = std::fs::remove_dir_all(&folder);
    rate
}

/// Tells of every pod that is bound, and of every change of one, a line each.
fn watch(cluster: &Cluster) -> Result<Running, String> {
    let path = "/api/v1/namespaces/default/pods?watch=1&timeoutSeconds=3600&fieldSelector=spec.nodeName!%3D";
    let mut command = cluster.command("kubectl");
    command.args(["get", "--raw", path]).stdout(Stdio::piped());
    command.spawn().map(Running).map_err(|error| format!("kubectl: {error}"))
}

/// The pod that a line tells of.
fn named(line: &str) -> Option<String> {
    let change: serde_json::Value = serde_json::from_str(line).ok()?;
    Some(change["object"]["metadata"]["name"].as_str()?.to_owned())
}

fn until_bound(mut watch: Running, pods: usize) -> Result<f64, String> {
    let lines = watch.0.stdout.take().map(BufReader::new).ok_or("kubectl has no output")?;
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            let Some(pod) = named(&line) else { continue };
            if sender.send((pod, Instant::now())).is_err() {
                return;
            }
        }
    });
    let (mut seen, mut first) = (BTreeSet::new(), None);
    while let Ok((pod, at)) = receiver.recv_timeout(PATIENCE) {
        let since = *first.get_or_insert(at);
        seen.insert(pod);
        if seen.len() == pods {
            return Ok((pods - 1) as f64 / (at - since).as_secs_f64().max(0.001));
        }
    }
    Err(format!(
        "{} of {pods} pods were bound, and then none for {} s",
        seen.len(),
        PATIENCE.as_secs()
    ))
}

/// The controller, which ends with the run.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts hotpot's controller in a cluster.
pub(crate) fn controller(cluster: &Cluster, program: &Path) -> Result<Running, String> {
    let path = cluster.folder().join("log/controller.log");
    let log =
        std::fs::File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut command = cluster.command(program);
    let started =
        command.args(["kubernetes", "controller"]).stdout(Stdio::null()).stderr(log).spawn();
    started.map(Running).map_err(|error| format!("{}: {error}", program.display()))
}

fn pod(at: u32, with_share: bool) -> String {
    let (gate, claims) = if with_share {
        let gate = "  schedulingGates: [{name: hotpot.dev/placement}]\n  resourceClaims: [{name: gpu, resourceClaimTemplateName: share}]\n";
        (gate, "claims: [{name: gpu}], ")
    } else {
        ("", "")
    };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{at:04}}}\nspec:\n{gate}  terminationGracePeriodSeconds: 0\n  containers: \
         [{{name: main, image: none, resources: {{{claims}requests: {{cpu: 100m}}}}}}]\n---\n"
    )
}
