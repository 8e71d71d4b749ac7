//! GPU use while a run goes on, measured on a thread of its own: a driver that is slow to answer must
//! not hold up tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use node::driver::Driver;
use node::sample::Sample;
use node::sampler::Sampler;
use node::tenant::{Tenant, Tenants};

use crate::devices::{Devices, Trouble};

/// Time between two measurements.
const PERIOD: Duration = Duration::from_secs(1);

/// Errors after which a GPU cannot be trusted until it is reset: double-bit ECC, fallen off the bus,
/// uncontained ECC, GSP firmware (NVIDIA Xid catalogue).
const FATAL_XIDS: [u64; 5] = [48, 79, 95, 119, 120];

/// What has been measured last.
#[derive(Debug, Default)]
struct Latest {
    /// Part of the last period in which each GPU of the run was busy, summed; and over how many.
    busy: Option<(f64, usize)>,
    taken: Option<Instant>,
    troubles: Vec<(u8, Trouble)>,
    /// Tasks that had a process on a GPU: the GPU's UUID, run and task.
    seen: BTreeSet<(String, String, String)>,
}

/// The use of a run's GPUs.
#[derive(Debug)]
pub(crate) struct Gauge {
    latest: Arc<Mutex<Latest>>,
    over: Arc<AtomicBool>,
    counted: Option<Instant>,
}

impl Gauge {
    /// Begins to measure; without GPUs there is nothing to be measured.
    pub(crate) fn start(devices: &Devices, state: PathBuf) -> Self {
        let latest = Arc::new(Mutex::new(Latest::default()));
        let over = Arc::new(AtomicBool::new(false));
        let places: BTreeMap<String, u8> = devices.uuids().into_iter().zip(0..).collect();
        if !places.is_empty() {
            let (latest, over) = (Arc::clone(&latest), Arc::clone(&over));
            let thread = std::thread::Builder::new().name("gauge".to_string());
            // A machine that is out of threads runs tasks all the same, unmeasured.
            let _ = thread.spawn(move || measure(&places, &state, &latest, &over));
        }
        Self { latest, over, counted: None }
    }

    /// GPUs' busy parts summed, if they have been measured since the last call, and the ms that they
    /// stand for.
    pub(crate) fn read(&mut self) -> (Option<f64>, u64) {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((busy, taken)) = latest.busy.zip(latest.taken) else { return (None, 0) };
        let since = match self.counted {
            Some(counted) if counted >= taken => return (None, 0),
            Some(counted) => taken.duration_since(counted),
            None => PERIOD,
        };
        self.counted = Some(taken);
        (Some(busy.0), u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Mean over the run's GPUs, as last measured.
    pub(crate) fn busy_ratio(&self) -> Option<f64> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.busy.map(|(sum, gpus)| sum / gpus.max(1) as f64)
    }

    /// Whether the driver has shown a process of a task on a GPU.
    pub(crate) fn has_seen(&self, gpu: &str, (run, task): (&str, &str)) -> bool {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.seen.contains(&(gpu.to_owned(), run.to_owned(), task.to_owned()))
    }

    /// What has gone wrong since the last call, by GPU in the engine's order.
    pub(crate) fn troubles(&mut self) -> Vec<(u8, Trouble)> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut latest.troubles)
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn measure(
    places: &BTreeMap<String, u8>,
    state: &std::path::Path,
    latest: &Mutex<Latest>,
    over: &AtomicBool,
) {
    let Ok(driver) = Driver::open() else { return };
    let Ok(mut sampler) = Sampler::new(&driver, Tenants::new(state)) else { return };
    let mut known = BTreeMap::new();
    while !over.load(Ordering::Relaxed) {
        if let Ok(sample) = sampler.sample() {
            let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
            latest.busy = busy(places, &sample);
            latest.taken = Some(Instant::now());
            latest.seen.extend(seen(places, &sample));
            latest.troubles.extend(troubles(places, &sample, &mut known));
        }
        std::thread::sleep(PERIOD);
    }
}

/// The busy parts of the run's GPUs; `None` if not one could be measured (such as in MIG mode).
fn busy(places: &BTreeMap<String, u8>, sample: &Sample) -> Option<(f64, usize)> {
    let ours = sample.gpus.iter().filter(|gpu| places.contains_key(&gpu.uuid));
    let measured: Vec<f64> = ours.filter_map(|gpu| gpu.busy_ratio).collect();
    (!measured.is_empty()).then(|| (measured.iter().sum(), measured.len()))
}

/// Whose processes are on the run's GPUs: the GPU's UUID, run and task.
fn seen(places: &BTreeMap<String, u8>, sample: &Sample) -> Vec<(String, String, String)> {
    let ours = sample.gpus.iter().filter(|gpu| places.contains_key(&gpu.uuid));
    let processes = ours.flat_map(|gpu| gpu.processes.iter().map(|process| (&gpu.uuid, process)));
    let of_task = processes.filter_map(|(uuid, process)| match &process.tenant {
        Tenant::Task { run, task } => Some((uuid.clone(), run.clone(), task.clone())),
        Tenant::SlurmJob(_)
        | Tenant::Pod(_)
        | Tenant::Claim(_)
        | Tenant::User(_)
        | Tenant::Unknown => None,
    });
    of_task.collect()
}

/// Each trouble once.
fn troubles(
    places: &BTreeMap<String, u8>,
    sample: &Sample,
    known: &mut BTreeMap<u8, (bool, u64)>,
) -> Vec<(u8, Trouble)> {
    let mut found = Vec::new();
    for gpu in &sample.gpus {
        let Some(at) = places.get(&gpu.uuid) else { continue };
        let (was_lost, last_xid) = known.get(at).copied().unwrap_or_default();
        let xid = gpu.xid.unwrap_or(0);
        if gpu.lost && !was_lost {
            found.push((
                *at,
                Trouble::Lost("the driver no longer reaches it; it needs a reset".into()),
            ));
        } else if FATAL_XIDS.contains(&xid) && xid != last_xid {
            found.push((*at, Trouble::Lost(format!("Xid {xid}; it needs a reset"))));
        } else if xid != 0 && xid != last_xid {
            let text =
                format!("Xid {xid}: an error of a program, or of the GPU; see NVIDIA's Xid list");
            found.push((*at, Trouble::Noted(text)));
        }
        known.insert(*at, (gpu.lost, xid));
    }
    found
}
