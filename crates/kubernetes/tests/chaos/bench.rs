//! A cluster with one real node and two that are objects alone, and hotpot's programs on it as the chart would have them: with its
//! accounts, its rights and its policies, but each a process that can be killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kubernetes_lab::hotpot::slice;
use kubernetes_lab::{
    Cluster, Daemon, Image, LabError, ObjectNode, Options, WITHOUT_SIGNS_OF_LIFE,
};
use serde_json::Value;

use super::book::{list, text};
use super::stream::SOCKET;

/// The node that is real; the others.
pub(crate) const REAL: &str = "n1";
pub(crate) const OBJECTS: [&str; 2] = ["o1", "o2"];
/// What pods run: it sleeps, and is linked dynamically, so that a limiter is loaded into it.
pub(crate) const IMAGE: &str = "localhost/lab/rest:1";
const NAMESPACE: &str = "hotpot";
/// A leader that is not heard of for so long is followed by another.
pub(crate) const LEASE_S: u64 = 3;
/// The chart's parts that are objects alone.
const PARTS: [&str; 5] = ["accounts", "roles", "roles-own", "class", "policies"];
const WEBHOOK: &str = include_str!("../webhook.yaml");
const PRIORITY: &str = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: service}\nvalue: 1000\n---\n";
/// What is programmed to end by itself is started anew after this, as the kubelet would.
const AGAIN: Duration = Duration::from_secs(1);
/// libfaketime, as Debian installs it.
pub(crate) const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// A program of hotpot's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    /// One of two.
    Controller(u8),
    Webhook,
    Agent,
}

/// All of them.
pub(crate) const PROGRAMS: [Program; 4] =
    [Program::Controller(0), Program::Controller(1), Program::Webhook, Program::Agent];

/// The cluster, and what runs on it.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    /// Where hotpot was built.
    programs: PathBuf,
    running: BTreeMap<Program, Running>,
    /// kubectl's, for calls of the API.
    proxy: Option<Running>,
    /// Those that are to be started anew, and when.
    due: BTreeMap<Program, Instant>,
    /// Whether the real node is switched on.
    pub(crate) is_on: bool,
    /// How often programs have ended by themselves, and how.
    pub(crate) ended: Vec<String>,
}

#[derive(Debug)]
struct Running {
    /// What leads into the node's namespaces, or the program itself.
    child: Child,
    pid: u32,
}

impl Drop for Running {
    fn drop(&mut self) {
        // The number of one that has been reaped may be another's.
        if matches!(self.child.try_wait(), Ok(None)) {
            signal("-KILL", self.pid);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal, as `-KILL`. Who is gone already gets none.
pub(crate) fn signal(name: &str, pid: u32) {
    let mut kill = Command::new("kill");
    let _ = kill.args([name, &pid.to_string()]).stderr(Stdio::null()).status();
}

impl Bench {
    /// * `folder` — of the cluster; `programs` — where hotpot was built; `project` — its root.
    pub(crate) fn up(folder: &Path, programs: &Path, project: &Path) -> Result<Self, String> {
        let options =
            Options { controllers: vec![WITHOUT_SIGNS_OF_LIFE.into()], ..Options::default() };
        let cluster = Cluster::up(folder, &options).map_err(said)?;
        let (running, due) = (BTreeMap::new(), BTreeMap::new());
        let (programs, proxy, ended) = (programs.to_owned(), None, Vec::new());
        let mut bench = Self { cluster, programs, running, proxy, due, is_on: true, ended };
        bench.nodes().map_err(said)?;
        bench.proxy()?;
        bench.install(project)?;
        PROGRAMS.into_iter().try_for_each(|program| bench.start(program))?;
        bench.until_ready().map_err(said)?;
        Ok(bench)
    }

    fn nodes(&self) -> Result<(), LabError> {
        let cluster = &self.cluster;
        let new = "node.kubernetes.io/not-ready:NoSchedule-";
        let mut image = Image::new(IMAGE);
        image = image.program("/bin/rest", "/usr/bin/sleep")?;
        // With the libraries that the limiter is linked with (docs/caps.md): without them nothing starts that has a share.
        image = image.program("/usr/lib/limiter.so", self.programs.join("libhotpot_limiter.so"))?;
        cluster.import(&image)?;
        // Who takes it off is away with the signs of life of nodes that are objects.
        let _may_be_gone = cluster.kubectl(&["taint", "node", REAL, new]);
        let object =
            |name: &&str| ObjectNode { name: (*name).into(), cpus: 64, memory_mib: 64_000 };
        cluster.add_nodes(&OBJECTS.iter().map(object).collect::<Vec<_>>())?;
        // Before the policies are there: nobody is the agent of these.
        cluster.apply(&OBJECTS.map(slice).concat()).map(drop)
    }

    fn proxy(&mut self) -> Result<(), String> {
        let mut command = self.cluster.command("kubectl");
        let socket = self.cluster.folder().join(SOCKET);
        command.arg("proxy").arg(format!("--unix-socket={}", socket.display()));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("kubectl proxy: {error}"))?;
        self.proxy = Some(Running { pid: child.id(), child });
        self.cluster.until("kubectl's proxy", |_| socket.exists().then_some(())).map_err(said)
    }

    fn install(&self, project: &Path) -> Result<(), String> {
        let mut helm = kubernetes_lab::program("helm").map_err(said)?;
        helm.args(["template", "hotpot"]).arg(project.join("deploy/chart/hotpot"));
        helm.args(["--namespace", NAMESPACE]);
        for part in PARTS {
            helm.args(["--show-only", &format!("templates/{part}.yaml")]);
        }
        let done = helm.output().map_err(|error| format!("helm: {error}"))?;
        if !done.status.success() {
            return Err(format!("helm: {}", String::from_utf8_lossy(&done.stderr)));
        }
        let objects = String::from_utf8_lossy(&done.stdout).into_owned();
        let apply = || -> Result<(), LabError> {
            self.cluster.kubectl(&["create", "namespace", NAMESPACE])?;
            self.cluster.apply(&objects)?;
            self.cluster.apply(WEBHOOK)?;
            self.cluster.apply(PRIORITY)?;
            let node = ["--bound-object-kind=Node", "--bound-object-name", REAL];
            for (account, more) in [("controller", &[][..]), ("webhook", &[]), ("agent", &node)] {
                self.account(account, more)?;
            }
            Ok(())
        };
        apply().map_err(said)
    }

    /// Writes how to reach the API server with the rights of one of the chart's accounts.
    fn account(&self, account: &str, more: &[&str]) -> Result<(), LabError> {
        let (cluster, name) = (&self.cluster, format!("hotpot-{account}"));
        let words = ["-n", NAMESPACE, "create", "token", &name, "--duration=6h"];
        let token = cluster.kubectl(&[&words[..], more].concat())?;
        let server = ["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"];
        let server = cluster.kubectl(&server)?;
        let ca = cluster.folder().join("keys/ca.crt");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\ncontexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n\
             clusters: [{{name: it, cluster: {{server: \"{server}\", certificate-authority: \"{}\"}}}}]\n\
             users: [{{name: it, user: {{token: {}}}}}]\n",
            ca.display(),
            token.trim()
        );
        let path = self.access(account);
        fs::write(&path, text).map_err(|error| LabError::Failed {
            line: path.display().to_string(),
            why: error.to_string(),
        })
    }

    fn access(&self, account: &str) -> PathBuf {
        self.cluster.folder().join(format!("keys/hotpot-{account}.kubeconfig"))
    }

    fn until_ready(&self) -> Result<(), LabError> {
        let probe = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: probe}}\nspec: {{containers: [{{name: main, image: {IMAGE}, resources: \
             {{limits: {{nvidia.com/gpu: 1}}}}}}]}}\n"
        );
        let words =
            ["create", "--dry-run=server", "-o", "jsonpath={.spec.schedulingGates}", "-f", "-"];
        self.cluster.until("webhook and slices", |it| {
            let slices = it.kubectl(&["get", "resourceslices", "-o", "json"]).ok()?;
            let slices: Value = serde_json::from_str(&slices).ok()?;
            let of = |node: &str| {
                list(&slices["items"]).iter().any(|it| text(&it["spec"]["nodeName"]) == node)
            };
            let gated = it.kubectl_with(&words, &probe).ok()?.contains("hotpot.dev/placement");
            (gated && of(REAL)).then_some(())
        })
    }
}

/// hotpot's programs.
impl Bench {
    pub(crate) fn start(&mut self, program: Program) -> Result<(), String> {
        self.start_at(program, None)
    }

    /// * `skew` — what its clock is wrong by, as `+10m`.
    pub(crate) fn start_at(&mut self, program: Program, skew: Option<&str>) -> Result<(), String> {
        self.kill(program);
        let mut command = self.command(program).map_err(said)?;
        if let Some(skew) = skew {
            let wrong =
                [("LD_PRELOAD", FAKETIME), ("FAKETIME", skew), ("DONT_FAKE_MONOTONIC", "1")];
            command.envs(wrong).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let log = self.log(program);
        let out = File::options().create(true).append(true).open(&log);
        let out = out.map_err(|error| format!("{}: {error}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(out).spawn();
        let child = child.map_err(|error| format!("{program:?}: {error}"))?;
        let pid = if program == Program::Agent { led_to(child.id()) } else { child.id() };
        self.running.insert(program, Running { child, pid });
        Ok(())
    }

    /// Kills it; it stays away until it is started.
    pub(crate) fn kill(&mut self, program: Program) {
        self.due.remove(&program);
        self.running.remove(&program);
    }

    pub(crate) fn pid(&self, program: Program) -> Option<u32> {
        self.running.get(&program).map(|running| running.pid)
    }

    /// Starts those anew that have ended, a second later; and the kubelet at once, which ends where containerd is not ready yet.
    pub(crate) fn supervise(&mut self) -> Result<(), String> {
        let kubelet = Daemon::Kubelet(REAL.into());
        if self.is_on && self.cluster.process(&kubelet).is_none() {
            self.cluster.start(&kubelet).map_err(said)?;
        }
        let ended = self.running.iter_mut().filter_map(|(program, running)| {
            let status = running.child.try_wait().ok().flatten()?;
            Some((*program, status.to_string()))
        });
        for (program, status) in ended.collect::<Vec<_>>() {
            self.running.remove(&program);
            self.due.insert(program, Instant::now() + AGAIN);
            if !status.contains("SIGKILL")
                && !status.contains("signal: 9")
                && !status.contains("137")
            {
                self.ended.push(format!("{program:?}: {status}"));
            }
        }
        let now = Instant::now();
        let due: Vec<Program> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(program, _)| *program).collect();
        due.into_iter().try_for_each(|program| self.start(program))
    }

    /// The controller whose lease it is, if that can be found out.
    pub(crate) fn leader(&self) -> Option<Program> {
        let path =
            format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/hotpot-controller");
        let lease = self.cluster.kubectl(&["get", "--raw", &path, "--request-timeout=3s"]).ok()?;
        let lease: Value = serde_json::from_str(&lease).ok()?;
        let number = text(&lease["spec"]["holderIdentity"]).strip_prefix('c')?.parse().ok()?;
        Some(Program::Controller(number)).filter(|it| self.running.contains_key(it))
    }

    pub(crate) fn log(&self, program: Program) -> PathBuf {
        let name = match program {
            Program::Controller(number) => format!("hotpot-controller-{number}"),
            Program::Webhook => "hotpot-webhook".into(),
            Program::Agent => "hotpot-agent".into(),
        };
        self.cluster.folder().join(format!("log/{name}.log"))
    }

    fn command(&self, program: Program) -> Result<Command, LabError> {
        let built = self.programs.join("hotpot");
        let mut command = match program {
            Program::Agent => self.cluster.on_node(REAL, built)?,
            Program::Controller(_) | Program::Webhook => self.cluster.command(built),
        };
        let (words, account) = match program {
            Program::Controller(number) => (
                format!(
                    "controller --namespace {NAMESPACE} --identity c{number} --lease-seconds {LEASE_S}"
                ),
                "controller",
            ),
            Program::Webhook => (
                format!(
                    "webhook --namespace {NAMESPACE} --also-named 127.0.0.1 --listen 127.0.0.1:9443"
                ),
                "webhook",
            ),
            Program::Agent => (
                format!(
                    "agent --node {REAL} --driver-root /run/nvidia/driver --runtime /run/containerd/containerd.sock"
                ),
                "agent",
            ),
        };
        command.arg("kubernetes").args(words.split(' ')).env("KUBECONFIG", self.access(account));
        command.env("HOTPOT_FAKE_MACHINE", "/run/nvidia/driver/machine");
        command.env("HOTPOT_NVML", "/run/nvidia/driver/lib/libnvidia-ml.so.1");
        Ok(command)
    }
}

pub(crate) fn said(error: LabError) -> String {
    error.to_string()
}

/// The process that `nsenter` has made, once it is there.
fn led_to(pid: u32) -> u32 {
    let children = format!("/proc/{pid}/task/{pid}/children");
    for _ in 0..1000 {
        let text = fs::read_to_string(&children).unwrap_or_default();
        if let Some(child) = text.split_whitespace().next().and_then(|it| it.parse().ok()) {
            return child;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    pid
}
