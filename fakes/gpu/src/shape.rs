//! What a place has, as the machine's state tells it: memory and multiprocessors.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use fake_machine::{Gpu, Machine, MemoryLimit, State, compute_profiles};

use crate::Place;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Multiprocessors of a GPU whose model is not known: an A100's.
const SMS: u32 = 108;

/// What one place has.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    instance: Option<(u32, u32)>,
    bytes: u64,
    sms: u32,
}

/// What there is of a place for processes that are known to the books.
pub(crate) struct Room {
    /// All but what the driver keeps and what processes hold that were put on it by a test; 0 if there is
    /// no such place.
    pub(crate) bytes: u64,
    state: Arc<State>,
    gpu: u32,
}

impl Room {
    /// Bytes that the memory limits of its cgroups leave to a process; `u64::MAX` if there are none.
    ///
    /// * `held` — bytes of the GPU that some processes hold by the books.
    pub(crate) fn left_by_limits(&self, pid: u32, held: impl Fn(&BTreeSet<u32>) -> u64) -> u64 {
        let Some(gpu) = self.state.gpus.get(self.gpu as usize) else { return u64::MAX };
        let hard = gpu.memory_limits.iter().filter(|limit| limit.hard_bytes != MemoryLimit::NONE);
        let left = hard.filter_map(|limit| {
            let pids = limit.pids();
            let used = || held(&pids) + gpu.used_mib_by(&pids) * MIB;
            pids.contains(&pid).then(|| limit.hard_bytes.saturating_sub(used()))
        });
        left.min().unwrap_or(u64::MAX)
    }
}

/// What all places of one version of the state have. Keeping the state keeps its address from being
/// used again, so that an equal address means the same version.
struct Shapes {
    state: Arc<State>,
    gpus: Vec<Vec<Part>>,
}

/// The shapes of a machine, worked out once for each version of its state.
pub(crate) struct Shape {
    machine: Machine,
    last: Mutex<Option<Arc<Shapes>>>,
}

impl Shape {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, last: Mutex::new(None) }
    }

    /// When the machine was made, in ms since 1970.
    pub(crate) fn created_ms(&self) -> u64 {
        self.machine.read().created_ms
    }

    fn now(&self) -> Arc<Shapes> {
        let state = self.machine.read();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(shapes) if Arc::ptr_eq(&shapes.state, &state) => Arc::clone(shapes),
            _ => {
                let gpus = state.gpus.iter().map(parts).collect();
                let shapes = Arc::new(Shapes { state, gpus });
                *last = Some(Arc::clone(&shapes));
                shapes
            }
        }
    }

    /// What there is of a place.
    pub(crate) fn room(&self, place: Place) -> Room {
        let shapes = self.now();
        let bytes = shapes.bytes(place);
        Room { bytes, state: Arc::clone(&shapes.state), gpu: place.gpu }
    }

    /// Multiprocessors of a place if its GPU had `whole`; 0 stands for as many as the model has.
    pub(crate) fn sms(&self, place: Place, whole: u32) -> u32 {
        let shapes = self.now();
        let all = shapes.part(Place { instance: None, ..place }).map_or(SMS, |part| part.sms);
        let own = shapes.part(place).map_or(all, |part| part.sms);
        if whole == 0 {
            return own;
        }
        let part = u64::from(own) * u64::from(whole) / u64::from(all.max(1));
        u32::try_from(part).unwrap_or(u32::MAX).max(1)
    }
}

impl Shapes {
    fn part(&self, place: Place) -> Option<&Part> {
        let parts = self.gpus.get(place.gpu as usize)?;
        parts.iter().find(|part| part.instance == place.instance)
    }

    /// Bytes of a place for processes that are known to the books.
    fn bytes(&self, place: Place) -> u64 {
        let Some(part) = self.part(place) else { return 0 };
        let gpu = self.state.gpus.get(place.gpu as usize);
        let injected = gpu.filter(|gpu| !gpu.processes.is_empty());
        let used = injected.map_or(0, |gpu| gpu.used_mib(place.instance.map(|(id, _)| id)));
        part.bytes.saturating_sub(used * MIB)
    }
}

/// The GPU itself, then its compute instances. The memory of a GPU instance is all of its compute
/// instances'.
fn parts(gpu: &Gpu) -> Vec<Part> {
    let whole = gpu.facts().map_or(Part { sms: SMS, ..Part::default() }, |facts| {
        let (total, reserved) = facts.memory_mib();
        Part { instance: None, bytes: total.saturating_sub(reserved) * MIB, sms: facts.sms }
    });
    let devices = gpu.mig_devices().into_iter().filter_map(|(instance, compute)| {
        let profile = gpu.profile(instance.profile_id).ok()?;
        let inside = compute_profiles(profile).into_iter().find(|p| p.id == compute.profile_id)?;
        let instance = Some((instance.id, compute.id));
        Some(Part { instance, bytes: profile.memory_mib * MIB, sms: inside.sms })
    });
    std::iter::once(whole).chain(devices).collect()
}
