//! `cargo xtask kubernetes-mig`: MIG instances asked for in random order, given by the stock scheduler's own allocator and by hotpot:
//! the same requests, the same slices, on real control planes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mig::requests::{MIXES, Mix, Request, Stream, geometry, gpu_slices};
use kubernetes_lab::hotpot::CLASS;
use kubernetes_lab::{Cluster, LabError, ObjectNode, Options, WITHOUT_SIGNS_OF_LIFE};

use crate::Verdict;
use crate::gpu::table::Table;
use crate::kubernetes_bind::{Running, controller};

/// Nodes, each with cards of 80 GiB.
const NODES: [&str; 2] = ["n1", "n2"];
const CARDS: u64 = 4;
/// What is asked for in all, in percent of what there is: all stay, or leave at random times.
const FILL: u64 = 110;
const STEADY: u64 = 110;
/// Seeds in full and with `--quick`.
const SEEDS: [u64; 2] = [3, 1];

/// A run's requests.
#[derive(Clone, Copy)]
enum Load {
    /// None leaves.
    Fill,
    /// Each leaves after a random number of further requests.
    Steady,
}

/// * `quick` — one seed of one mix.
pub(crate) fn run(quick: bool) -> Verdict {
    let program = crate::slurm::built()?.join("hotpot");
    let slices = slices(&program)?;
    let (seeds, mixes) =
        (SEEDS[usize::from(quick)], if quick { &MIXES[2..3] } else { &MIXES[..4] });
    let loads: &[(&str, Load)] = match quick {
        true => &[("fill", Load::Fill)],
        false => &[("fill", Load::Fill), ("steady", Load::Steady)],
    };
    let title = format!(
        "MIG instances accepted on {} A100-80GB, {FILL} % asked for, {seeds} seed(s)",
        NODES.len() as u64 * CARDS
    );
    let mut table = Table::new(&title, &["load, mix", "requests", "stock allocator", "hotpot"]);
    for (name, load) in loads {
        for mix in mixes {
            let mut sums = [0, 0, 0];
            for seed in 1..=seeds {
                let asked = requests(mix, *load, seed);
                sums[0] += asked.len();
                sums[1] += accepted(&slices, &asked, None)?;
                sums[2] += accepted(&slices, &asked, Some(&program))?;
                eprintln!("{name}, {}: {sums:?} so far", mix.name);
            }
            let part =
                |count: usize| format!("{count} ({:.1} %)", count as f64 * 100.0 / sums[0] as f64);
            let row = [
                format!("{name}, {}", mix.name),
                sums[0].to_string(),
                part(sums[1]),
                part(sums[2]),
            ];
            table.row(row.to_vec());
        }
    }
    println!("{}", table.text());
    Ok(())
}

fn requests(mix: &Mix, load: Load, seed: u64) -> Vec<Request> {
    let geometry = geometry();
    let cards = NODES.len() as u64 * CARDS;
    let mut stream = Stream::new(&geometry, mix, seed);
    match load {
        Load::Fill => {
            let (mut all, mut asked) = (Vec::new(), 0);
            while asked * 100 < cards * gpu_slices(&geometry) * FILL {
                let request = stream.next();
                asked += request.slices;
                all.push(request);
            }
            all
        }
        Load::Steady => {
            let stay = stream.leaving(&geometry, cards, STEADY);
            (0..4 * stay).map(|_| stream.next()).collect()
        }
    }
}

/// What agents would publish of the nodes.
fn slices(program: &Path) -> Result<String, String> {
    let mut all = String::new();
    for node in NODES {
        let gpus = format!("a100-80gb:{CARDS}");
        let mut command = Command::new(program);
        command.args(["kubernetes", "agent", "--node", node, "--print", "--simulate-gpus", &gpus]);
        let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        all += &format!("{}---\n", String::from_utf8_lossy(&output.stdout));
    }
    Ok(all)
}

/// How many of the requests are accepted, each at once or never.
fn accepted(slices: &str, asked: &[Request], hotpot: Option<&PathBuf>) -> Result<usize, String> {
    let folder = std::env::temp_dir().join(format!("hotpot-mig-{}", std::process::id()));
    let counted = count(&folder, slices, asked, hotpot).map_err(|error| error.to_string());
    let _ = std::fs::remove_dir_all(&folder);
    counted?
}

fn count(
    folder: &Path,
    slices: &str,
    asked: &[Request],
    hotpot: Option<&PathBuf>,
) -> Result<Result<usize, String>, LabError> {
    let options =
        Options { nodes: 0, controllers: vec![WITHOUT_SIGNS_OF_LIFE.into()], ..Options::default() };
    let cluster = Cluster::up(folder, &options)?;
    let object = |name: &&str| ObjectNode { name: (*name).into(), cpus: 64, memory_mib: 256_000 };
    cluster.add_nodes(&NODES.iter().map(object).collect::<Vec<_>>())?;
    cluster.apply(slices)?;
    cluster.apply(&kinds(hotpot.is_some()))?;
    let _controller: Option<Running> = match hotpot.map(|program| controller(&cluster, program)) {
        Some(Err(why)) => return Ok(Err(why)),
        Some(Ok(running)) => Some(running),
        None => None,
    };
    let mut leaving: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut count = 0;
    for (at, request) in asked.iter().enumerate() {
        for gone in leaving.remove(&at).unwrap_or_default() {
            leave(&cluster, gone)?;
        }
        if is_accepted(&cluster, at, request, hotpot.is_some())? {
            count += 1;
            let until = usize::try_from(request.stays).unwrap_or(usize::MAX).saturating_add(at);
            leaving.entry(until).or_default().push(at);
        } else {
            leave(&cluster, at)?;
        }
    }
    Ok(Ok(count))
}

/// A class and a template for each profile that is asked for.
fn kinds(hotpot: bool) -> String {
    let geometry = geometry();
    let names: BTreeSet<&str> =
        geometry.profiles.iter().map(|profile| profile.name.as_str()).collect();
    let one = |name: &str| {
        let word = name.replace(['.', '+'], "-");
        let (class, config) = match hotpot {
            true => (
                "gpu.hotpot.dev".to_owned(),
                format!(
                    ", config: [{{opaque: {{driver: gpu.hotpot.dev, parameters: {{apiVersion: hotpot.dev/v1, kind: GpuShare, profile: {name:?}}}}}}}]"
                ),
            ),
            false => (format!("stock-{word}"), String::new()),
        };
        let stock = format!(
            "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: stock-{word}}}\nspec:\n  selectors: [{{cel: {{expression: \
             \"device.driver == 'gpu.hotpot.dev' && 'profile' in device.attributes['gpu.hotpot.dev'] && \
             device.attributes['gpu.hotpot.dev'].profile == '{name}'\"}}}}]\n---\n"
        );
        stock
            + &format!(
                "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: {word}}}\nspec: {{spec: {{devices: {{requests: \
             [{{name: gpu, exactly: {{deviceClassName: {class}}}}}]{config}}}}}}}\n---\n"
            )
    };
    CLASS.to_owned() + &names.into_iter().map(one).collect::<String>()
}

/// Asks, and waits until the pod is bound or whoever gives has said that it cannot be.
fn is_accepted(
    cluster: &Cluster,
    at: usize,
    request: &Request,
    hotpot: bool,
) -> Result<bool, LabError> {
    let geometry = geometry();
    let name = geometry.profile(request.profile).map_or("", |profile| profile.name.as_str());
    let template = name.replace(['.', '+'], "-");
    let gate = if hotpot { "\n  schedulingGates: [{name: hotpot.dev/placement}]" } else { "" };
    cluster.apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{at}}}\nspec:{gate}\n  resourceClaims: [{{name: gpu, resourceClaimTemplateName: \
         {template}}}]\n  terminationGracePeriodSeconds: 0\n  containers: [{{name: main, image: none, resources: {{claims: [{{name: gpu}}]}}}}]\n"
    ))?;
    // The scheduler also says that pods are unschedulable whose claims have not been made yet.
    let (kind, says) = match hotpot {
        true => ("hotpot.dev/Placed", "MIG"),
        false => ("PodScheduled", "cannot allocate all claims"),
    };
    let path = format!(
        "jsonpath={{.spec.nodeName}}|{{.status.conditions[?(@.type==\"{kind}\")].message}}"
    );
    cluster.until(&format!("what becomes of p{at}, {name}"), |it| {
        let said = it.kubectl(&["get", "pod", &format!("p{at}"), "-o", &path]).ok()?;
        let (node, why) = said.split_once('|')?;
        if node.is_empty() { why.contains(says).then_some(false) } else { Some(true) }
    })
}

/// Ends a pod, and waits until its claim is gone.
fn leave(cluster: &Cluster, at: usize) -> Result<(), LabError> {
    cluster.kubectl(&["delete", "pod", &format!("p{at}"), "--force", "--grace-period=0"])?;
    let prefix = format!("p{at}-");
    cluster.until(&format!("the claim of p{at} gone"), |it| {
        (!claims(it).ok()?.iter().any(|name| name.starts_with(&prefix))).then_some(())
    })
}

/// Names of all claims.
fn claims(cluster: &Cluster) -> Result<Vec<String>, LabError> {
    let text =
        cluster.kubectl(&["get", "resourceclaims", "-o", "jsonpath={.items[*].metadata.name}"])?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}
