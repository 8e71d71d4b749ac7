//! Looks at the real node from outside: what containers there have got, what the simulated driver has made, and what is left on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fake_machine::Machine;
use rusqlite::Connection;
use serde_json::Value;

use super::bench::REAL;
use super::book::{amount, device, list, results, text};
use super::stream::MARK;
use super::watch::{Seen, Shared};

const LIMITER: &str = "libhotpot_limiter";
const PROGRAM: &str = "rest";

/// A container's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pid: u32,
    pod: String,
    has_limiter: bool,
    /// Its caps, as it sees them.
    caps: Option<String>,
    visible: String,
}

/// Where the node's things are on this host.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    folder: PathBuf,
    machine: PathBuf,
    run: String,
    /// Containers that were judged, and those of them that have shares of a card.
    pub(crate) checks: u64,
    pub(crate) shares: u64,
    /// The pod's containers that were found wrong at the last look: one that has just begun may not have loaded anything yet.
    doubtful: BTreeSet<(u32, String)>,
}

impl Outside {
    /// * `machine` — the node's simulated GPUs; `run` — marks this run's containers.
    pub(crate) fn new(folder: &Path, machine: PathBuf, run: &str) -> Self {
        let (folder, run) = (folder.to_owned(), run.to_owned());
        Self { folder, machine, run, checks: 0, shares: 0, doubtful: BTreeSet::new() }
    }

    /// Judges all containers that run now.
    pub(crate) fn look(&mut self, shared: &Shared) {
        let tenants = tenants(&self.run);
        let instances = self.instances();
        let mut seen = shared.seen();
        let mut doubtful = BTreeSet::new();
        for tenant in &tenants {
            let Some(claim) = claim(tenant, &seen) else { continue };
            self.shares += u64::from(results(claim).any(|it| !is_whole(it, &seen)));
            self.checks += 1;
            let Some(why) = wrong(tenant, &tenants, &instances, &seen) else { continue };
            let doubt = (tenant.pid, why);
            if self.doubtful.contains(&doubt) {
                seen.violated(format!("pod {} on {REAL}: {}\n    {tenant:?}", tenant.pod, doubt.1));
            }
            doubtful.insert(doubt);
        }
        self.doubtful = doubtful;
    }

    /// UUIDs of all MIG devices that the simulated driver has.
    pub(crate) fn instances(&self) -> BTreeSet<String> {
        let Ok(machine) = Machine::open(&self.machine) else { return BTreeSet::new() };
        let state = machine.read();
        let devices = state.gpus.iter().flat_map(|gpu| gpu.mig_devices());
        devices.map(|(_, compute)| compute.uuid.clone()).collect()
    }

    /// Whatever is there for claims that are gone: a line each.
    pub(crate) fn left(&self) -> Vec<String> {
        let state = self.folder.join(format!("state/{REAL}/lib/hotpot"));
        let mut left = Vec::new();
        let first = fs::read_to_string(self.folder.join(format!("run/{REAL}.process")));
        let first = first.unwrap_or_default();
        let pid = first.split(' ').next().unwrap_or_default();
        left.extend(names(&PathBuf::from(format!("/proc/{pid}/root/run/cdi")), "CDI file"));
        left.extend(names(&state.join("caps"), "caps of"));
        match holds(&self.folder, &state) {
            Ok(holds) => left.extend(holds.into_iter().map(|who| format!("hold of {who}"))),
            Err(why) => left.push(why),
        }
        let claims = fs::read_to_string(state.join("claims.json")).unwrap_or_default();
        let claims: Value = serde_json::from_str(&claims).unwrap_or_default();
        let known = claims["claims"].as_object().into_iter().flatten();
        left.extend(known.map(|(uid, _)| format!("checkpoint of claim {uid}")));
        left
    }
}

fn names(folder: &Path, what: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| format!("{what} {}", entry.file_name().display())).collect()
}

/// Who holds something by the machine's journal, read from a copy: nobody's turn is waited for.
fn holds(folder: &Path, state: &Path) -> Result<Vec<String>, String> {
    let copy = folder.join("run/journal");
    let _ = fs::remove_dir_all(&copy);
    let failed = |error: std::io::Error| format!("{}: {error}", copy.display());
    fs::create_dir_all(&copy).map_err(failed)?;
    for name in ["state.db", "state.db-wal"] {
        if state.join(name).exists() {
            fs::copy(state.join(name), copy.join(name)).map_err(failed)?;
        }
    }
    let read = || -> rusqlite::Result<Vec<String>> {
        let connection = Connection::open(copy.join("state.db"))?;
        let mut holds = connection.prepare("SELECT who FROM hold")?;
        holds.query_map([], |row| row.get(0))?.collect()
    };
    read().map_err(|error| format!("a copy of the journal: {error}"))
}

/// All containers of a run.
fn tenants(run: &str) -> Vec<Tenant> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| tenant(pid, run)).collect()
}

fn tenant(pid: u32, run: &str) -> Option<Tenant> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    if fs::read_to_string(proc.join("comm")).ok()?.trim() != PROGRAM {
        return None;
    }
    let environ = fs::read(proc.join("environ")).ok()?;
    let environ = String::from_utf8_lossy(&environ).into_owned();
    let variable =
        |name: &str| environ.split('\0').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    let pod = variable(MARK)?.strip_prefix(run)?.strip_prefix('/')?.to_owned();
    let has_limiter = fs::read_to_string(proc.join("maps")).ok()?.contains(LIMITER);
    let caps = fs::read_to_string(proc.join("root/run/hotpot/caps")).ok();
    let visible = variable("CUDA_VISIBLE_DEVICES").unwrap_or_default().to_owned();
    Some(Tenant { pid, pod, has_limiter, caps, visible })
}

/// The claim of a container's pod, as far as it has been seen.
fn claim<'a>(tenant: &Tenant, seen: &'a Seen) -> Option<&'a Value> {
    let pod = seen.pods.get(&tenant.pod)?;
    let name = list(&pod["status"]["resourceClaimStatuses"]).first()?;
    seen.claims.get(text(&name["resourceClaimName"]))
}

/// Whether a result is all of a card, or an instance.
fn is_whole(result: &Value, seen: &Seen) -> bool {
    ["memory", "compute"].into_iter().all(|of| {
        let given = &result["consumedCapacity"][of];
        given.is_null() || Some(amount(given)) >= seen.catalogue.capacity(&device(result), of)
    })
}

/// What is wrong with a container, if something is.
fn wrong(
    tenant: &Tenant,
    all: &[Tenant],
    instances: &BTreeSet<String>,
    seen: &Seen,
) -> Option<String> {
    let Some(result) = results(claim(tenant, seen)?).next() else {
        return Some("it runs, and its claim has no devices".into());
    };
    let Some(_) = Some(&tenant.visible).filter(|visible| !visible.is_empty()) else {
        return Some("it is told of no device".into());
    };
    if tenant.visible.starts_with("MIG-") {
        let others = all.iter().filter(|it| it.visible == tenant.visible && it.pod != tenant.pod);
        return match others.map(|it| it.pod.as_str()).collect::<Vec<_>>() {
            others if !others.is_empty() => {
                Some(format!("its instance is also that of {others:?}"))
            }
            _ if !instances.contains(&tenant.visible) => Some("its instance is not there".into()),
            _ => None,
        };
    }
    held(tenant, result, seen).or_else(|| crowded(tenant, all, result, seen))
}

/// A share of a card is capped by the limiter, and not above what was given.
fn held(tenant: &Tenant, result: &Value, seen: &Seen) -> Option<String> {
    if is_whole(result, seen) {
        return None;
    }
    let given = amount(&result["consumedCapacity"]["memory"]);
    if !tenant.has_limiter {
        return Some("it has a share, and no limiter".into());
    }
    let memory = memory(tenant);
    match memory.values().next() {
        None => Some("its caps say nothing of memory".into()),
        Some(cap) if cap * 1000 > given => {
            Some(format!("its cap of {cap} bytes is more than it was given"))
        }
        Some(_) => None,
    }
}

/// The caps of all who run on its card are no more than the card has.
fn crowded(tenant: &Tenant, all: &[Tenant], result: &Value, seen: &Seen) -> Option<String> {
    let by_pod: BTreeMap<&str, &Tenant> = all.iter().map(|it| (it.pod.as_str(), it)).collect();
    let of = tenant.visible.as_str();
    let sum: i128 = by_pod.values().filter_map(|it| memory(it).get(of).copied()).sum();
    let most = seen.catalogue.capacity(&device(result), "memory")?;
    (sum * 1000 > most).then(|| format!("caps of {sum} bytes on {of}, which has {}", most / 1000))
}

/// Memory caps in bytes by card, as a tenant reads them.
fn memory(tenant: &Tenant) -> BTreeMap<String, i128> {
    let (mut gpu, mut caps) = (String::new(), BTreeMap::new());
    for line in tenant.caps.iter().flat_map(|text| text.lines()) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            gpu = name.to_owned();
        } else if let Some(bytes) = line.strip_prefix("memory = ").and_then(|it| it.parse().ok()) {
            caps.insert(gpu.clone(), bytes);
        }
    }
    caps
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Pods `a` and `b` with a share of 1 GiB each on a card of 4 GiB.
    fn seen() -> Seen {
        let mut seen = Seen::default();
        seen.catalogue.enter(&json!({"spec": {"driver": "gpu.hotpot.dev", "pool": {"name": "n1"}, "devices": [
            {"name": "gpu-x", "capacity": {"memory": {"value": "4Gi"}, "compute": {"value": "1"}}}]}}));
        for name in ["a", "b"] {
            let result = json!({"driver": "gpu.hotpot.dev", "pool": "n1", "device": "gpu-x",
                "consumedCapacity": {"memory": "1Gi", "compute": "0"}});
            let claim = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
            seen.claims.insert(format!("c-{name}"), claim);
            let of = json!({"resourceClaimStatuses": [{"resourceClaimName": format!("c-{name}")}]});
            seen.pods.insert(name.into(), json!({"status": of}));
        }
        seen
    }

    fn tenant(pod: &str, visible: &str, memory: u64) -> Tenant {
        let caps = Some(format!("[GPU-x]\nmemory = {memory}\n"));
        Tenant { pid: 1, pod: pod.into(), has_limiter: true, caps, visible: visible.into() }
    }

    #[test]
    fn a_container_is_told_from_one_that_is_not_held_to_its_share() {
        let told = |tenant: &Tenant| {
            wrong(tenant, std::slice::from_ref(tenant), &BTreeSet::new(), &seen())
        };
        let fine = tenant("a", "GPU-x", 1 << 30);
        assert_eq!(told(&fine), None);
        let more = tenant("a", "GPU-x", (1 << 30) + 1);
        assert!(told(&more).is_some_and(|why| why.contains("more than it was given")));
        let free = Tenant { has_limiter: false, ..fine.clone() };
        assert!(told(&free).is_some_and(|why| why.contains("no limiter")));
        let without = Tenant { caps: None, ..fine };
        assert!(told(&without).is_some_and(|why| why.contains("say nothing")));
    }

    #[test]
    fn two_on_one_instance_and_one_on_none_are_found() {
        let both = ["a", "b"].map(|pod| tenant(pod, "MIG-1", 0));
        let there = BTreeSet::from(["MIG-1".to_owned()]);
        assert_eq!(wrong(&both[0], &both[..1], &there, &seen()), None);
        let twice = wrong(&both[0], &both, &there, &seen());
        assert!(twice.is_some_and(|why| why.contains("also that of")));
        let gone = wrong(&both[0], &both[..1], &BTreeSet::new(), &seen());
        assert!(gone.is_some_and(|why| why.contains("is not there")));
    }
}
