//! Looks on from outside: every change of pods, claims and slices in the order in which the API server made it, each followed by a check
//! of all that has been given.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::bench::signal;
use super::book::{Catalogue, list, results, text};

const GATE: &str = "hotpot.dev/placement";
/// Changes that a violation is told with.
const CHANGES_KEPT: usize = 60;
const PAUSE: Duration = Duration::from_millis(200);

/// The resources that are followed.
pub(crate) const PATHS: [(Kind, &str); 3] = [
    (Kind::Claim, "/apis/resource.k8s.io/v1/resourceclaims"),
    (Kind::Pod, "/api/v1/namespaces/default/pods"),
    (Kind::Slice, "/apis/resource.k8s.io/v1/resourceslices"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Claim,
    Pod,
    Slice,
}

/// What has been seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) claims: BTreeMap<String, Value>,
    pub(crate) pods: BTreeMap<String, Value>,
    pub(crate) catalogue: Catalogue,
    /// Checks of all that has been given.
    pub(crate) checks: u64,
    pub(crate) violations: Vec<String>,
    /// Pods that were bound, and the longest that one waited for that.
    pub(crate) bound: BTreeMap<String, Duration>,
    since: BTreeMap<String, Instant>,
    changes: VecDeque<String>,
    /// Processes to kill as soon as a claim has devices and its pod is still at the gate; and the pods of that moment.
    pub(crate) aim: Vec<u32>,
    pub(crate) hit: Option<String>,
}

/// What threads share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    seen: Mutex<Seen>,
    pub(crate) over: AtomicBool,
    watches: Mutex<Vec<Arc<Mutex<Child>>>>,
}

impl Shared {
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends all that follow.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        for child in self.watches.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = child.lock().unwrap_or_else(PoisonError::into_inner).kill();
        }
    }
}

impl Seen {
    /// What was seen last, for whoever looks into a violation.
    pub(crate) fn history(&self) -> String {
        self.changes.iter().map(|line| format!("  {line}\n")).collect()
    }

    pub(crate) fn violated(&mut self, what: String) {
        if !self.violations.contains(&what) {
            self.violations.push(what);
        }
    }

    fn enter(&mut self, kind: Kind, change: &str, object: Value) {
        let name = text(&object["metadata"]["name"]).to_owned();
        let is_gone = change == "DELETED";
        if kind == Kind::Slice {
            // A claim may outlive it.
            if !is_gone {
                self.catalogue.enter(&object);
            }
            return;
        }
        self.note(kind, change, &name, &object);
        if kind == Kind::Pod {
            self.waits(&name, &object);
        }
        let is_given = kind == Kind::Claim && results(&object).next().is_some();
        let owner = text(&object["metadata"]["ownerReferences"][0]["name"]).to_owned();
        let all = if kind == Kind::Claim { &mut self.claims } else { &mut self.pods };
        if is_gone {
            all.remove(&name)
        } else {
            all.insert(name, object)
        };
        if is_given && !is_gone {
            self.strike(&owner);
        }
        if kind == Kind::Claim {
            self.check();
        }
    }

    fn check(&mut self) {
        self.checks += 1;
        for wrong in self.catalogue.wrong(self.claims.values()) {
            self.violated(wrong);
        }
    }

    fn strike(&mut self, pod: &str) {
        if !self.aim.is_empty() && self.pods.get(pod).is_some_and(is_gated) {
            let aim = std::mem::take(&mut self.aim);
            aim.into_iter().for_each(|pid| signal("-KILL", pid));
            self.hit = Some(pod.to_owned());
        }
    }

    fn waits(&mut self, name: &str, pod: &Value) {
        let since = *self.since.entry(name.to_owned()).or_insert_with(Instant::now);
        if is_bound(pod) && !self.bound.contains_key(name) {
            self.bound.insert(name.to_owned(), since.elapsed());
        }
    }

    fn note(&mut self, kind: Kind, change: &str, name: &str, object: &Value) {
        let devices: Vec<&str> = results(object).map(|it| text(&it["device"])).collect();
        let status = text(&object["status"]["phase"]);
        let node = text(&object["spec"]["nodeName"]);
        let version = text(&object["metadata"]["resourceVersion"]);
        let gated = if is_gated(object) { " gated" } else { "" };
        let line = format!("{version} {kind:?} {name} {change} {status}{gated} {node} {devices:?}");
        self.changes.push_back(line);
        if self.changes.len() > CHANGES_KEPT {
            self.changes.pop_front();
        }
    }
}

pub(crate) fn is_gated(pod: &Value) -> bool {
    list(&pod["spec"]["schedulingGates"]).iter().any(|gate| gate["name"] == GATE)
}

pub(crate) fn is_bound(pod: &Value) -> bool {
    !text(&pod["spec"]["nodeName"]).is_empty()
}

pub(crate) fn is_over(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"]))
}

/// Why a pod waits, if it has been told.
pub(crate) fn told(pod: &Value) -> Option<&str> {
    let placed = |it: &&Value| it["type"] == "hotpot.dev/Placed" && it["status"] == "False";
    let found = list(&pod["status"]["conditions"]).iter().find(placed)?;
    Some(text(&found["message"])).filter(|message| !message.is_empty())
}

/// Follows a resource until all is over: a list, then changes from there, and from the start if the server has forgotten them.
pub(crate) fn follow(folder: &Path, kind: Kind, path: &str, shared: &Shared) {
    let mut version = None;
    while !shared.is_over() {
        version = match version {
            None => relist(folder, kind, path, shared),
            Some(version) => changes(folder, kind, (path, version), shared),
        };
        std::thread::sleep(if version.is_some() { Duration::ZERO } else { PAUSE });
    }
}

fn kubectl(folder: &Path, path: &str) -> Option<Child> {
    let mut command = kubernetes_lab::inside(folder, None, "kubectl").ok()?;
    command.args(["get", "--raw", path]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()
}

fn relist(folder: &Path, kind: Kind, path: &str, shared: &Shared) -> Option<String> {
    let mut child = kubectl(folder, &format!("{path}?timeoutSeconds=5"))?;
    let mut said = String::new();
    child.stdout.take()?.read_to_string(&mut said).ok()?;
    let status = child.wait().ok()?;
    let found: Value = serde_json::from_str(&said).ok().filter(|_| status.success())?;
    let mut seen = shared.seen();
    match kind {
        Kind::Claim => seen.claims.clear(),
        Kind::Pod => seen.pods.clear(),
        Kind::Slice => {}
    }
    // Together, for a claim alone may stand beside one that is gone.
    for object in list(&found["items"]) {
        let name = text(&object["metadata"]["name"]).to_owned();
        match kind {
            Kind::Slice => seen.catalogue.enter(object),
            Kind::Claim => drop(seen.claims.insert(name, object.clone())),
            Kind::Pod => {
                seen.waits(&name, object);
                seen.pods.insert(name, object.clone());
            }
        }
    }
    seen.check();
    Some(text(&found["metadata"]["resourceVersion"]).to_owned())
}

/// Follows changes; the version to go on from, or nothing if the server knows it no more.
fn changes(
    folder: &Path,
    kind: Kind,
    (path, version): (&str, String),
    shared: &Shared,
) -> Option<String> {
    let path = format!("{path}?watch=1&timeoutSeconds=300&resourceVersion={version}");
    let mut child = kubectl(folder, &path)?;
    let out = child.stdout.take()?;
    let child = Arc::new(Mutex::new(child));
    shared.watches.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&child));
    let (mut version, began) = (Some(version), Instant::now());
    let mut count = 0;
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        let Ok(mut change) = serde_json::from_str::<Value>(&line) else { break };
        let object = change["object"].take();
        if change["type"] == "ERROR" {
            version = None;
            break;
        }
        version = Some(text(&object["metadata"]["resourceVersion"]).to_owned());
        shared.seen().enter(kind, text(&change["type"]), object);
        count += 1;
    }
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = child.kill();
    let _ = child.wait();
    // One that ends at once was refused.
    version.filter(|_| count > 0 || began.elapsed() > Duration::from_secs(2))
}
