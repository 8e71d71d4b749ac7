//! What a place has, as the machine's state tells it: memory and multiprocessors.

use std::sync::{Arc, Mutex, PoisonError};

use fake_machine::{Gpu, Machine, State, compute_profiles};

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

    /// Bytes of a place that processes known to these books may hold: all but what the driver keeps
    /// and what processes hold that were put on it by a test. None if there is no such place.
    pub(crate) fn room(&self, place: Place) -> u64 {
        let shapes = self.now();
        let Some(part) = shapes.part(place) else { return 0 };
        let gpu = shapes.state.gpus.get(place.gpu as usize);
        let injected = gpu.filter(|gpu| !gpu.processes.is_empty());
        let used = injected.map_or(0, |gpu| gpu.used_mib(place.instance.map(|(id, _)| id)));
        part.bytes.saturating_sub(used * MIB)
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
