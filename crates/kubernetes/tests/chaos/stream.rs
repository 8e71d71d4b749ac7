//! Pods that come by seed and go again: shares by resource names and by claims, MIG instances, whole cards, gangs of two, and services
//! of a higher priority.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use model::SplitMix;
use serde_json::{Value, json};

use super::bench::{IMAGE, OBJECTS, REAL};
use super::book::text;
use super::watch::{Shared, is_over};

/// Between two arrivals, on average.
const PAUSE_MS: u64 = 500;
/// None come while so many are there: most of them wait.
const PODS_MAX: usize = 24;
/// How long a container sleeps, in seconds.
const RESTS: [u64; 4] = [1, 3, 5, 8];
const PROFILES: [&str; 4] = ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"];
/// A pod that waits for so long is given up by whoever wants it, in seconds at most.
const WAITS_S: u64 = 40;
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Where kubectl's proxy listens, in the cluster's folder.
pub(crate) const SOCKET: &str = "run/api.sock";
/// A call of the API takes no longer.
const CALL: Duration = Duration::from_secs(5);
/// A variable of all containers of a run, by which their processes are known on the host.
pub(crate) const MARK: &str = "HOTPOT_CHAOS_POD";

/// Templates of claims that pods name, made before the first comes.
pub(crate) fn templates() -> String {
    let one = |name: &str, amounts: &str| {
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: {name}}}\nspec: {{spec: {{devices: \
             {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.hotpot.dev{amounts}}}}}]}}}}}}\n---\n"
        )
    };
    let share = |amounts: &str| format!(", capacity: {{requests: {{{amounts}}}}}");
    one("ten", &share("memory: 10Gi, compute: 200m"))
        + &one("thirty", &share("memory: 30Gi, compute: 500m"))
        + &one("whole", "")
}

/// What is asked for.
struct Ask {
    limits: Value,
    /// Of a claim.
    template: Option<&'static str>,
    /// Of priority.
    class: Option<&'static str>,
    /// Pods that start together.
    members: usize,
}

/// A pod that may have to go.
struct Guest {
    name: String,
    came: Instant,
    /// How long it stays on a node that nobody runs.
    stays: Duration,
    patience: Duration,
}

/// Brings pods and takes them away.
pub(crate) struct Stream {
    folder: PathBuf,
    /// Told in every container's environment beside the pod.
    run: String,
    chance: SplitMix,
    guests: Vec<Guest>,
    /// Pods that have come.
    pub(crate) count: usize,
    /// Those that the API server did not take.
    pub(crate) refused: usize,
    next: Instant,
}

impl Stream {
    pub(crate) fn new(folder: &Path, run: &str, seed: u64) -> Self {
        let (folder, run) = (folder.to_owned(), run.to_owned());
        let (guests, chance, next) = (Vec::new(), SplitMix::new(seed), Instant::now());
        Self { folder, run, chance, guests, count: 0, refused: 0, next }
    }

    /// One look: some come, some go.
    pub(crate) fn turn(&mut self, shared: &Shared, is_open: bool) {
        self.leave(shared);
        if is_open && Instant::now() >= self.next && self.guests.len() < PODS_MAX {
            self.next = Instant::now() + Duration::from_millis(self.chance.below(2 * PAUSE_MS));
            self.come();
        }
    }

    fn come(&mut self) {
        let (gate, ask) = (self.chance.below(2) == 0, self.ask());
        let rest = RESTS[self.chance.position(RESTS.len())];
        let gang = format!("g{}", self.count);
        let at_home = self.chance.below(3) > 0;
        for _ in 0..ask.members {
            let mut pod = pod(&format!("p{}", self.count), &self.run, rest, &ask.limits);
            let spec = &mut pod["spec"];
            if let Some(template) = ask.template {
                spec["resourceClaims"] =
                    json!([{"name": "gpu", "resourceClaimTemplateName": template}]);
                spec["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
            }
            if let Some(class) = ask.class {
                spec["priorityClassName"] = json!(class);
            }
            // A member that comes in without the webhook and without its gate would never start, nor would the other.
            if ask.template.is_some() && (gate || ask.members > 1) {
                spec["schedulingGates"] = json!([{"name": "hotpot.dev/placement"}]);
            }
            // Else most shares go where no card can be divided, and no container would show whether its share is held.
            if ask.members == 1 && at_home {
                spec["nodeSelector"] = json!({"kubernetes.io/hostname": REAL});
            }
            if ask.members > 1 {
                let size = ask.members.to_string();
                pod["metadata"]["labels"] =
                    json!({"hotpot.dev/gang": gang, "hotpot.dev/gang-size": size});
            }
            self.create(&pod, Duration::from_secs(rest));
        }
    }

    fn ask(&mut self) -> Ask {
        let memory = 4096 * (1 + self.chance.below(8));
        let cores = 10 + 10 * self.chance.below(4);
        let share =
            json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory, "nvidia.com/gpucores": cores});
        let by_names = |limits| Ask { limits, template: None, class: None, members: 1 };
        let by_claim =
            |name| Ask { limits: json!({}), template: Some(name), class: None, members: 1 };
        match self.chance.below(12) {
            0..3 => by_names(share),
            3 | 4 => by_claim("ten"),
            5 => by_claim("thirty"),
            6 => by_names(json!({"nvidia.com/gpu": 1})),
            7..10 => {
                let profile = PROFILES[self.chance.position(PROFILES.len())];
                by_names(json!({format!("nvidia.com/mig-{profile}"): 1}))
            }
            10 => Ask { members: 2, ..by_claim(["ten", "whole"][self.chance.position(2)]) },
            _ => Ask { class: Some("service"), ..by_names(share) },
        }
    }

    fn create(&mut self, pod: &Value, stays: Duration) {
        let name = text(&pod["metadata"]["name"]).to_owned();
        let patience = Duration::from_secs(10 + self.chance.below(WAITS_S - 10));
        self.count += 1;
        if raw(&self.folder, "POST", PODS, Some(pod)).is_none() {
            self.refused += 1;
        }
        // Also one whose answer was lost may be there.
        self.guests.push(Guest { name, came: Instant::now(), stays, patience });
    }

    /// Pods that are over, that nobody runs, or that have waited long enough.
    fn leave(&mut self, shared: &Shared) {
        let pods = shared.seen().pods.clone();
        let folder = self.folder.clone();
        self.guests.retain(|guest| {
            let Some(pod) = pods.get(&guest.name) else {
                return guest.came.elapsed() < Duration::from_secs(10);
            };
            let node = text(&pod["spec"]["nodeName"]);
            let is_object = OBJECTS.contains(&node);
            let is_due = is_over(pod)
                || (is_object && guest.came.elapsed() > guest.stays)
                || (node.is_empty() && guest.came.elapsed() > guest.patience);
            // Without grace only where nobody runs it: on a real node it would be forgotten while it still runs.
            let grace = if is_object { "?gracePeriodSeconds=0" } else { "" };
            let path = format!("{PODS}/{}{grace}", guest.name);
            !(is_due && raw(&folder, "DELETE", &path, None).is_some())
        });
    }
}

/// Deletes all pods that are there, those of the real node with their grace.
pub(crate) fn clear(folder: &Path, shared: &Shared) {
    let pods = shared.seen().pods.clone();
    for (name, pod) in &pods {
        let node = text(&pod["spec"]["nodeName"]);
        let is_told = !text(&pod["metadata"]["deletionTimestamp"]).is_empty();
        let grace = if OBJECTS.contains(&node) { "?gracePeriodSeconds=0" } else { "" };
        if !is_told || !grace.is_empty() {
            raw(folder, "DELETE", &format!("{PODS}/{name}{grace}"), None);
        }
    }
}

/// Asks for a card of the real node, or for a share of one, and rests there for some seconds.
pub(crate) fn ask_at_home(folder: &Path, name: &str, run: &str, is_share: bool) {
    let (rest, limits) = match is_share {
        true => (10, json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8192})),
        false => (1, json!({"nvidia.com/gpu": 1})),
    };
    let mut pod = pod(name, run, rest, &limits);
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": REAL});
    raw(folder, "POST", PODS, Some(&pod));
}

fn pod(name: &str, run: &str, rest: u64, limits: &Value) -> Value {
    let env = json!([{"name": MARK, "value": format!("{run}/{name}")}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/rest", rest.to_string()],
            "env": env, "resources": {"limits": limits}}]}})
}

/// One call of the API, by a proxy of kubectl's, which is there for the whole run: a process for each call would take most of the time.
fn raw(folder: &Path, verb: &str, path: &str, body: Option<&Value>) -> Option<()> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut socket = UnixStream::connect(folder.join(SOCKET)).ok()?;
    socket.set_read_timeout(Some(CALL)).ok()?;
    let head =
        format!("{verb} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
    let head = format!("{head}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    socket.write_all((head + &body).as_bytes()).ok()?;
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).ok()?;
    line.split(' ').nth(1)?.starts_with('2').then_some(())
}
