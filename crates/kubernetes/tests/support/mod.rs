//! A node with simulated GPUs, claims in memory in the place of an API server, and a kubelet that speaks to the plugin by
//! its sockets as the real one does.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::collections::BTreeMap;
use std::future::Future;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake_machine::{GpuSpec, MACHINE_VARIABLE, Machine as Simulated, layout};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kubernetes::names;
use kubernetes::plugin::claims::{ClaimError, Claims};
use kubernetes::plugin::proto::v1::dra_plugin_client::DraPluginClient;
use kubernetes::plugin::proto::v1::{
    Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
};
use kubernetes::plugin::{Options, serve};
use node::journal::{Hold, Journal};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

/// The node's name.
pub(crate) const NODE: &str = "n1";
const NAMESPACE: &str = "team";
/// Names the folder to the test's own process.
const FOLDER_VARIABLE: &str = "HOTPOT_TEST_FOLDER";

/// Where the parts of the simulated driver are built.
fn parts() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let parts = program.parent().and_then(Path::parent).unwrap().to_owned();
    let missing = layout::missing(&parts);
    assert!(
        missing.is_empty(),
        "{missing:?} are missing: cargo build -p fake-nvml -p fake-cuda -p fake-tools"
    );
    parts
}

/// Runs `body` in a process of its own on a node with these GPUs: which machine a driver shows, the environment says.
///
/// * `test` — the calling test's name.
pub(crate) fn on_node<F: Future<Output = ()>>(
    test: &str,
    gpus: &str,
    body: impl FnOnce(Node) -> F,
) {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(body(Node::at(folder.into())));
    }
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = place.join(format!("hp-{}-{}", std::process::id(), short(test)));
    let _left_over = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    layout::lay_out(&folder.join("root"), &GpuSpec::list(gpus).unwrap(), &parts()).unwrap();
    layout::make_whole(&folder.join("root")).unwrap();
    let output = again(test, &folder).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let _ = std::fs::remove_dir_all(&folder);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Sockets' addresses are short.
fn short(test: &str) -> String {
    test.split('_').filter_map(|word| word.chars().next()).collect()
}

/// This test program again, for one test, on a node.
pub(crate) fn again(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--include-ignored"]);
    let root = folder.join("root");
    command.env(FOLDER_VARIABLE, folder);
    command.env(MACHINE_VARIABLE, root.join(layout::STATE));
    command.env("HOTPOT_NVML", layout::nvml(&root));
    // GPUs of all simulated machines are called the same.
    command.env("HOTPOT_LOCK_DIR", folder);
    command.env("HOTPOT_LIMITER", parts().join("libhotpot_limiter.so"));
    command.env("HOTPOT_MPS_CONTROL", root.join("bin/nvidia-cuda-mps-control"));
    command.env("HOTPOT_NVIDIA_SMI", root.join("bin/nvidia-smi"));
    command
}

/// The claims that the API server would have.
#[derive(Clone, Default)]
pub(crate) struct Known {
    claims: Arc<Mutex<BTreeMap<String, ResourceClaim>>>,
    down: Arc<AtomicBool>,
}

impl Claims for Known {
    async fn read(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ClaimError> {
        let name = format!("{namespace}/{name}");
        if self.down.load(Ordering::Relaxed) {
            let source = Box::new(kube::Error::LinesCodecMaxLineLengthExceeded);
            return Err(ClaimError::Server { name, source });
        }
        let found = self.claims.lock().unwrap().get(&name).cloned();
        found.ok_or(ClaimError::Absent(name))
    }
}

impl Known {
    /// Says that a claim was given these devices, and gives its UID.
    pub(crate) fn allocate(&self, name: &str, results: Value, config: Value) -> String {
        let number = name.bytes().fold(0_u64, |sum, byte| sum * 31 + u64::from(byte));
        let uid = format!("00000000-0000-0000-0000-{:012x}", number & 0xffff_ffff_ffff);
        let devices = json!({"results": results, "config": config});
        let claim = json!({
            "metadata": {"namespace": NAMESPACE, "name": name, "uid": uid},
            "spec": {},
            "status": {"allocation": {"devices": devices}},
        });
        let claim = serde_json::from_value(claim).unwrap();
        self.claims.lock().unwrap().insert(format!("{NAMESPACE}/{name}"), claim);
        uid
    }

    /// A claim on a part of a card.
    pub(crate) fn part(&self, name: &str, device: &str, memory_mib: u64) -> String {
        let result = json!({
            "request": "gpu", "driver": names::DRIVER, "pool": NODE, "device": device, "shareID": format!("s-{name}"),
            "consumedCapacity": {"memory": format!("{memory_mib}Mi"), "compute": "0"},
        });
        self.allocate(name, json!([result]), json!([]))
    }

    /// A claim on a device, with what the controller says of it.
    ///
    /// * `booked` — of the device's capacity; null for a device as a whole.
    pub(crate) fn given(&self, name: &str, device: &str, booked: &Value, share: &Value) -> String {
        let mut result =
            json!({"request": "gpu", "driver": names::DRIVER, "pool": NODE, "device": device});
        if !booked.is_null() {
            result["consumedCapacity"] = booked.clone();
        }
        let opaque = json!({"driver": names::DRIVER, "parameters": share});
        let config = json!([{"source": "FromClass", "requests": ["gpu"], "opaque": opaque}]);
        self.allocate(name, json!([result]), config)
    }

    pub(crate) fn is_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }
}

/// What the controller says of a share.
pub(crate) fn share(more: Value) -> Value {
    let mut share = json!({"apiVersion": "hotpot.dev/v1", "kind": "GpuShare"});
    share.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    share
}

/// A node.
pub(crate) struct Node {
    pub(crate) folder: PathBuf,
    pub(crate) simulated: Simulated,
    pub(crate) claims: Known,
}

impl Node {
    fn at(folder: PathBuf) -> Self {
        let simulated = Simulated::open(folder.join("root").join(layout::STATE)).unwrap();
        Self { folder, simulated, claims: Known::default() }
    }

    pub(crate) fn uuid(&self, gpu: u32) -> String {
        self.simulated.read().gpu(gpu).unwrap().uuid.clone()
    }

    /// The device of a card.
    pub(crate) fn card(&self, gpu: u32) -> String {
        names::card(&self.uuid(gpu))
    }

    /// The driver reaches a card no more.
    pub(crate) fn lose(&self, gpu: u32) {
        let lost = self.simulated.edit(|state| {
            state.gpu_mut(gpu)?.lost = true;
            Ok(())
        });
        lost.unwrap();
    }

    pub(crate) fn options(&self, instance: &str) -> Options {
        let below = |part: &str| self.folder.join(part);
        Options {
            kubelet: below("kubelet"),
            cdi: below("cdi"),
            state: below("state"),
            host_root: below("root"),
            look_every: Duration::from_millis(50),
            ..Options::new(NODE, instance, |text| eprintln!("notice: {text}"))
        }
    }

    /// Starts a plugin, and waits until it can be called.
    pub(crate) async fn plugin(&self, instance: &str) -> Plugin {
        let (options, claims) = (self.options(instance), self.claims.clone());
        let socket = options.kubelet.join(format!("plugins/{}/{instance}.sock", names::DRIVER));
        let door =
            options.kubelet.join(format!("plugins_registry/{}-{instance}-reg.sock", names::DRIVER));
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or_default() };
            serve(&options, claims, stopped).await.map_err(|error| error.to_string())
        });
        while !door.exists() {
            assert!(!serving.is_finished(), "{:?}", serving.await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Plugin { socket, door, stop, serving }
    }

    /// What Kubernetes holds by the machine's journal: claim and number.
    pub(crate) fn holds(&self) -> Vec<Hold> {
        Journal::open(&self.folder.join("state")).unwrap().holds().unwrap()
    }

    /// Which files a claim's account is in: made anew, they are others.
    pub(crate) fn books(&self, uid: &str) -> Vec<u64> {
        let folder = self.folder.join("state/caps/kubernetes").join(uid);
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut numbers: Vec<u64> = entries.map(|entry| entry.ino()).collect();
        numbers.sort_unstable();
        numbers
    }

    pub(crate) fn cdi_file(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("cdi/hotpot-{uid}.json"))
    }

    /// A claim's CDI file.
    pub(crate) fn cdi(&self, uid: &str) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.cdi_file(uid)).unwrap()).unwrap()
    }
}

/// A plugin that runs.
pub(crate) struct Plugin {
    pub(crate) socket: PathBuf,
    pub(crate) door: PathBuf,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), String>>,
}

impl Plugin {
    pub(crate) async fn kubelet(&self) -> Kubelet {
        Kubelet::at(&self.socket).await
    }

    /// Ends it, as SIGTERM does.
    pub(crate) async fn end(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap().unwrap();
        assert!(!self.socket.exists() && !self.door.exists(), "sockets stay");
    }
}

pub(crate) async fn channel(socket: &Path) -> Channel {
    Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect().await.unwrap()
}

/// What the kubelet asks.
pub(crate) struct Kubelet(DraPluginClient<Channel>);

impl Kubelet {
    pub(crate) async fn at(socket: &Path) -> Self {
        Self(DraPluginClient::new(channel(socket).await))
    }

    /// One claim; exactly it must be answered.
    pub(crate) async fn prepare(&mut self, name: &str, uid: &str) -> Result<Vec<Device>, String> {
        self.prepare_claim(claim(name, uid)).await
    }

    pub(crate) async fn prepare_claim(&mut self, claim: Claim) -> Result<Vec<Device>, String> {
        let uid = claim.uid.clone();
        let request = NodePrepareResourcesRequest { claims: vec![claim] };
        let mut answer = self.0.node_prepare_resources(request).await.unwrap().into_inner().claims;
        assert_eq!(answer.len(), 1);
        let answer = answer.remove(&uid).expect("every claim has its entry");
        if answer.error.is_empty() { Ok(answer.devices) } else { Err(answer.error) }
    }

    pub(crate) async fn unprepare(&mut self, name: &str, uid: &str) -> Result<(), String> {
        let request = NodeUnprepareResourcesRequest { claims: vec![claim(name, uid)] };
        let mut answer =
            self.0.node_unprepare_resources(request).await.unwrap().into_inner().claims;
        let error = answer.remove(uid).expect("every claim has its entry").error;
        if error.is_empty() { Ok(()) } else { Err(error) }
    }
}

pub(crate) fn claim(name: &str, uid: &str) -> Claim {
    Claim { namespace: NAMESPACE.into(), uid: uid.into(), name: name.into() }
}

/// The environment of a claim's containers.
pub(crate) fn variable(cdi: &Value, name: &str) -> Option<String> {
    let env = cdi["containerEdits"]["env"].as_array().unwrap().iter();
    let found =
        env.filter_map(|one| one.as_str()?.split_once('=')).find(|(known, _)| *known == name);
    found.map(|(_, value)| value.to_owned())
}

/// What lies on the machine for a place in a claim's containers, and whether it can be written there.
pub(crate) fn mount(cdi: &Value, place: &str) -> Option<(PathBuf, bool)> {
    let mounts = cdi["containerEdits"]["mounts"].as_array().unwrap().iter();
    let found = mounts.into_iter().find(|mount| mount["containerPath"] == place)?;
    let options = found["options"].as_array().unwrap();
    Some((found["hostPath"].as_str().unwrap().into(), options.contains(&json!("rw"))))
}
