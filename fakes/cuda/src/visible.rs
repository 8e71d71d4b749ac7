//! Which GPUs and MIG devices a process sees: `CUDA_VISIBLE_DEVICES`.

use fake_gpu::Place;
use fake_machine::{ComputeInstance, Gpu, GpuInstance, ModelFacts, State, facts};

/// A device as the process sees it; its number is its place in the list.
pub(crate) struct Device {
    pub(crate) place: Place,
    /// `GPU-…` of the GPU.
    pub(crate) gpu_uuid: String,
    /// `MIG-…`, in MIG mode.
    pub(crate) mig_uuid: Option<String>,
    pub(crate) name: String,
    pub(crate) bus: u32,
    pub(crate) numa_node: u32,
    pub(crate) facts: &'static ModelFacts,
    /// Memory that clients can take, in bytes.
    pub(crate) memory: u64,
}

/// The environment variable with the list of devices.
const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// The devices that a process with this environment sees, in its order.
pub(crate) fn visible(state: &State) -> Vec<Device> {
    let all: Vec<Device> =
        state.gpus.iter().enumerate().flat_map(|(at, gpu)| of(at, gpu)).collect();
    let mut chosen = match std::env::var(VARIABLE) {
        Err(_) => all,
        Ok(list) => named(all, &list),
    };
    // "only one MIG device can be used": MIG user guide, section on CUDA_VISIBLE_DEVICES. GPUs that
    // are not in MIG mode are not seen beside it.
    if let Some(first) = chosen.iter().position(|device| device.mig_uuid.is_some()) {
        let first = chosen.swap_remove(first);
        chosen = vec![first];
    }
    chosen
}

/// What a list names, up to the first name that means nothing or something for a second time.
fn named(mut all: Vec<Device>, list: &str) -> Vec<Device> {
    // Numbers count GPUs, not MIG devices: a GPU in MIG mode stands for its first MIG device.
    let mut found: Vec<Place> = Vec::new();
    for name in list.split(',').map(str::trim) {
        let mut matching = all.iter().filter(|device| is_named(device, name));
        let Some(first) = matching.next() else { break };
        let same_gpu = |other: &Device| other.place.gpu == first.place.gpu;
        let ambiguous = matching.any(|other| !same_gpu(other) || name.starts_with("MIG-"));
        if ambiguous || found.contains(&first.place) {
            break;
        }
        found.push(first.place);
    }
    let take = |place: &Place| {
        let at = all.iter().position(|device| device.place == *place)?;
        Some(all.swap_remove(at))
    };
    found.iter().filter_map(take).collect()
}

fn is_named(device: &Device, name: &str) -> bool {
    if let Ok(number) = name.parse::<u32>() {
        return device.place.gpu == number;
    }
    let begins = |uuid: &str| name.len() > 4 && uuid.starts_with(name);
    let of_instance = || {
        let (instance, part) = device.place.instance?;
        // The older form: the GPU's UUID and the numbers of the instances.
        Some(name == format!("MIG-{}/{instance}/{part}", device.gpu_uuid))
    };
    begins(&device.gpu_uuid)
        || device.mig_uuid.as_deref().is_some_and(begins)
        || of_instance().unwrap_or(false)
}

fn of(at: usize, gpu: &Gpu) -> Vec<Device> {
    let Some(facts) = facts(&gpu.model).filter(|_| !gpu.lost) else { return Vec::new() };
    let index = u32::try_from(at).unwrap_or(u32::MAX);
    if gpu.mig.current {
        let parts = gpu.mig_devices().into_iter();
        return parts
            .map(|(instance, part)| mig_device(index, gpu, facts, instance, part))
            .collect();
    }
    let (total, reserved) = facts.memory_mib();
    vec![Device {
        place: Place { gpu: index, instance: None },
        gpu_uuid: gpu.uuid.clone(),
        mig_uuid: None,
        name: facts.product.to_string(),
        bus: gpu.bus,
        numa_node: gpu.numa_node,
        facts,
        memory: (total - reserved) << 20,
    }]
}

fn mig_device(
    index: u32,
    gpu: &Gpu,
    facts: &'static ModelFacts,
    instance: &GpuInstance,
    part: &ComputeInstance,
) -> Device {
    let profile = gpu.profile(instance.profile_id).ok();
    let name = profile.map_or("", |profile| profile.name.as_str());
    Device {
        place: Place { gpu: index, instance: Some((instance.id, part.id)) },
        gpu_uuid: gpu.uuid.clone(),
        mig_uuid: Some(part.uuid.clone()),
        name: format!("{} MIG {name}", facts.product),
        bus: gpu.bus,
        numa_node: gpu.numa_node,
        facts,
        memory: profile.map_or(0, |profile| profile.memory_mib) << 20,
    }
}
