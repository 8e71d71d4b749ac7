//! MIG devices of one GPU. What an instance is, is read once; how full it is, in each round.
#![allow(unsafe_code, reason = "instances are known to the driver's raw table only")]

use std::collections::BTreeMap;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::nvmlGpuInstanceInfo_t;

use crate::sample::InstanceSample;

/// MIG devices that a GPU can have, should the driver not say.
const DEVICES_MAX: u32 = 7;

/// What is remembered of a GPU's MIG devices, by UUID.
#[derive(Debug, Default)]
pub(super) struct Instances {
    known: BTreeMap<String, Facts>,
}

/// What does not change as long as the UUID exists.
#[derive(Clone, Debug)]
struct Facts {
    gpu_instance: u32,
    profile: String,
    start: u8,
}

impl Instances {
    /// The MIG devices that are there. One that is taken down meanwhile is left out.
    pub(super) fn sample(&mut self, nvml: &Nvml, gpu: &Device<'_>) -> Vec<InstanceSample> {
        let slots = gpu.mig_device_count().unwrap_or(DEVICES_MAX);
        let devices = (0..slots).filter_map(|at| gpu.mig_device_by_index(at).ok());
        let samples: Vec<_> = devices.filter_map(|device| self.one(nvml, gpu, &device)).collect();
        self.known.retain(|uuid, _| samples.iter().any(|sample| sample.uuid == *uuid));
        samples
    }

    fn one(
        &mut self,
        nvml: &Nvml,
        gpu: &Device<'_>,
        device: &Device<'_>,
    ) -> Option<InstanceSample> {
        let uuid = device.uuid().ok()?;
        let facts = match self.known.get(&uuid) {
            Some(facts) => facts.clone(),
            None => {
                let facts = facts(nvml, gpu, device).ok()?;
                self.known.entry(uuid.clone()).or_insert(facts).clone()
            }
        };
        let memory = device.memory_info().ok();
        Some(InstanceSample {
            gpu_instance: facts.gpu_instance,
            uuid,
            profile: facts.profile,
            start: facts.start,
            memory_total_bytes: memory.as_ref().map(|memory| memory.total),
            memory_used_bytes: memory.as_ref().map(|memory| memory.used),
            profile_counters: None,
        })
    }
}

fn facts(nvml: &Nvml, gpu: &Device<'_>, device: &Device<'_>) -> Result<Facts, NvmlError> {
    let gpu_instance = gpu_instance(nvml, device)?;
    let start = start(nvml, gpu, gpu_instance)?;
    Ok(Facts { gpu_instance, profile: profile(&device.name()?), start })
}

/// The driver calls a MIG device `NVIDIA A100-SXM4-80GB MIG 1g.10gb`.
fn profile(name: &str) -> String {
    name.rsplit_once("MIG ").map_or(name, |(_, profile)| profile).to_string()
}

/// The number of the GPU instance that a MIG device belongs to.
fn gpu_instance(nvml: &Nvml, device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: the handle comes from the driver and lives; `id` may be written.
    nvml_try(unsafe { call(device.handle(), &raw mut id) })?;
    Ok(id)
}

/// The first memory slice of a GPU instance.
fn start(nvml: &Nvml, gpu: &Device<'_>, id: u32) -> Result<u8, NvmlError> {
    let find = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceById.as_ref())?;
    let tell = nvml_sym(nvml.lib().nvmlGpuInstanceGetInfo.as_ref())?;
    let mut instance = std::ptr::null_mut();
    // SAFETY: the handle comes from the driver and lives; `instance` may be written.
    nvml_try(unsafe { find(gpu.handle(), id, &raw mut instance) })?;
    // SAFETY: all bits zero are a value of this struct of numbers and pointers.
    let mut info: nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the driver has just given the instance's handle; `info` may be written.
    nvml_try(unsafe { tell(instance, &raw mut info) })?;
    u8::try_from(info.placement.start).map_err(|_| NvmlError::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_stands_at_the_end_of_the_name() {
        assert_eq!(profile("NVIDIA A100-SXM4-80GB MIG 1g.10gb+me"), "1g.10gb+me");
        assert_eq!(profile("something else"), "something else");
    }
}
