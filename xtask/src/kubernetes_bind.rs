//! `cargo xtask kubernetes-bind`: pods bound per second by the stock scheduler alone, with plain pods, and with hotpot, whose pods hold a
//! share of a card each; on one real control plane, in one run.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use kubernetes_lab::hotpot::{CLASS, slice};
use kubernetes_lab::{Cluster, Daemon, LabError, ObjectNode, Options, WITHOUT_SIGNS_OF_LIFE};

use crate::Verdict;
use crate::gpu::table::Table;

/// Nodes and pods, in full and with `--quick`.
const SIZE: [(u32, u32); 2] = [(100, 500), (20, 100)];
/// What hotpot may cost.
const RATIO_MIN: f64 = 0.95;
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(100);

const TEMPLATE: &str = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: share}\nspec: {spec: {devices: {requests: \
                        [{name: gpu, exactly: {deviceClassName: gpu.hotpot.dev, capacity: {requests: {memory: 10Gi}}}}]}}}\n---\n";

/// * `quick` — 100 pods on 20 nodes instead of 500 on 100.
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
    // Nobody is bound before all are there.
    cluster.stop(&Daemon::Scheduler);
    let made: String = (0..pods).map(|at| pod(at, hotpot.is_some())).collect();
    cluster.kubectl_with(&["create", "-f", "-"], &made).map_err(said)?;
    let _controller = hotpot.map(|program| controller(&cluster, program)).transpose()?;
    cluster.start(&Daemon::Scheduler).map_err(said)?;
    let rate = until_bound(&cluster, pods);
    drop(cluster);
    let _ = std::fs::remove_dir_all(&folder);
    rate
}

fn until_bound(cluster: &Cluster, pods: u32) -> Result<f64, String> {
    let begun = Instant::now();
    let mut first: Option<(Instant, usize)> = None;
    while begun.elapsed() < PATIENCE {
        let words = ["get", "pods", "--field-selector=spec.nodeName!=", "-o", "name"];
        let bound = cluster.kubectl(&words).map_err(|error| error.to_string())?.lines().count();
        let now = Instant::now();
        let (since, before) = *first.get_or_insert((now, bound));
        if bound == 0 {
            first = None;
        } else if bound >= pods as usize {
            return Ok((bound - before) as f64 / (now - since).as_secs_f64().max(0.001));
        }
        std::thread::sleep(POLL);
    }
    Err(format!("not all pods were bound in {} s", PATIENCE.as_secs()))
}

/// The controller, which ends with the run.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn controller(cluster: &Cluster, program: &Path) -> Result<Running, String> {
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
