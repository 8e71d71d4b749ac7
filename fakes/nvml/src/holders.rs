//! Processes that use the simulated GPUs by CUDA, shown as if they were in the machine's state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fake_gpu::{Gpus, Held, Place};
use fake_machine::{Code, Machine, Process, ProcessKind, State};

use crate::calls::PERIOD_US;
use crate::memory::MIB;

/// How old what is shown of them may be.
const FRESH: Duration = Duration::from_millis(10);

/// A process and its GPU's index.
type Holder = (u32, Process);

/// What this process has seen of them.
#[derive(Default)]
pub(crate) struct Holders {
    looked: Option<Instant>,
    gpus: Option<Gpus>,
    meters: BTreeMap<Key, Meter>,
    seen: Vec<Holder>,
    /// A state, and the same with the processes in it.
    merged: Option<(Arc<State>, Arc<State>)>,
}

/// A process on a place.
type Key = (u32, u32, Option<(u32, u32)>);

/// GPU time of a process when its use was last worked out, and the use that came out.
#[derive(Clone, Copy)]
struct Meter {
    at_ns: u64,
    busy_ns: u64,
    percent: u32,
}

impl Holders {
    pub(crate) const NONE: Self =
        Self { looked: None, gpus: None, meters: BTreeMap::new(), seen: Vec::new(), merged: None };

    /// The state with the processes in it.
    pub(crate) fn shown(&mut self, machine: &Machine, state: Arc<State>) -> Arc<State> {
        if self.looked.is_none_or(|looked| looked.elapsed() >= FRESH) {
            self.look(machine, state.created_ms);
        }
        if self.seen.is_empty() {
            return state;
        }
        match &self.merged {
            Some((plain, merged)) if Arc::ptr_eq(plain, &state) => Arc::clone(merged),
            _ => {
                let mut merged = State::clone(&state);
                self.seen.iter().for_each(|holder| add(&mut merged, holder));
                let merged = Arc::new(merged);
                self.merged = Some((state, Arc::clone(&merged)));
                merged
            }
        }
    }

    /// The processes as they are now.
    pub(crate) fn fresh(&mut self, machine: &Machine) -> Vec<Holder> {
        self.look(machine, machine.read().created_ms);
        self.seen.clone()
    }

    fn look(&mut self, machine: &Machine, created_ms: u64) {
        self.looked = Some(Instant::now());
        if self.gpus.as_ref().is_none_or(|gpus| gpus.created_ms() != created_ms) {
            // A file that cannot be used now is tried again at the next look.
            self.gpus = Gpus::open_existing(machine).ok().flatten();
            self.meters.clear();
        }
        let seen = match &self.gpus {
            None => Vec::new(),
            Some(gpus) => {
                measure(&mut self.meters, gpus);
                let held = gpus.held();
                held.iter().map(|held| (held.place.gpu, process(held, &self.meters))).collect()
            }
        };
        if seen != self.seen {
            (self.seen, self.merged) = (seen, None);
        }
    }
}

/// Works out the use of all whose last period is over.
fn measure(meters: &mut BTreeMap<Key, Meter>, gpus: &Gpus) {
    let mut busy: BTreeMap<Key, u64> = BTreeMap::new();
    for (pid, place, ns) in gpus.busy_ns() {
        *busy.entry(key(pid, place)).or_default() += ns;
    }
    meters.retain(|key, _| busy.contains_key(key));
    let now_ns = gpus.now_ns();
    for (key, busy_ns) in busy {
        let start = Meter { at_ns: now_ns, busy_ns, percent: 0 };
        let meter = meters.entry(key).or_insert(start);
        if now_ns < meter.at_ns {
            *meter = start;
        }
        let passed_ns = now_ns - meter.at_ns;
        if passed_ns >= u64::from(PERIOD_US) * 1000 {
            let had_ns = busy_ns.saturating_sub(meter.busy_ns).min(passed_ns);
            let percent = (had_ns * 100 + passed_ns / 2) / passed_ns;
            *meter = Meter { at_ns: now_ns, busy_ns, percent: percent as u32 };
        }
    }
}

fn key(pid: u32, place: Place) -> Key {
    (pid, place.gpu, place.instance)
}

fn process(held: &Held, meters: &BTreeMap<Key, Meter>) -> Process {
    let bytes: u64 = held.bytes.iter().sum();
    let percent = meters.get(&key(held.pid, held.place)).map_or(0, |meter| meter.percent);
    let instance = held.place.instance;
    // That it lives was asked already.
    Process { instance, ..Process::compute(held.pid, bytes.div_ceil(MIB)).busy(percent).phantom() }
}

/// Adds a process to its GPU, or to what the state has of the same process there.
fn add(state: &mut State, (gpu, process): &Holder) {
    let Some(gpu) = state.gpus.get_mut(*gpu as usize) else { return };
    let same = |other: &&mut Process| {
        let kind = other.kind == ProcessKind::Compute;
        kind && other.pid == process.pid && other.instance == process.instance
    };
    match gpu.processes.iter_mut().find(same) {
        Some(other) => {
            other.memory_mib += process.memory_mib;
            other.sm_percent += process.sm_percent;
        }
        None => gpu.add(process.clone()),
    }
}

/// Carries out a change of the state with the processes in it, which stand in the way of some; they do
/// not stay in it.
pub(crate) fn with<T>(
    state: &mut State,
    holders: &[Holder],
    change: impl FnOnce(&mut State) -> Result<T, Code>,
) -> Result<T, Code> {
    for (gpu, process) in holders {
        if let Ok(gpu) = state.gpu_mut(*gpu) {
            gpu.add(process.clone());
        }
    }
    let done = change(state)?;
    for (gpu, process) in holders {
        if let Ok(gpu) = state.gpu_mut(*gpu) {
            gpu.processes.retain(|other| other != process);
        }
    }
    Ok(done)
}
