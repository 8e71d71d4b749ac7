//! MIG devices of one GPU. What an instance is, is read once; how full it is, in each round.

use std::collections::BTreeMap;

use nvml_wrapper::Device;

use crate::driver::{Driver, DriverError, Fault};
use crate::mig::raw::MigCalls;
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
    start: Option<u8>,
}

impl Instances {
    /// The MIG devices that are there. One that is taken down meanwhile is left out.
    pub(super) fn sample(
        &mut self,
        driver: &Driver,
        gpu: &str,
        device: &Device<'_>,
    ) -> Vec<InstanceSample> {
        let devices = devices(device);
        let samples: Vec<_> = devices.filter_map(|device| self.one(driver, gpu, &device)).collect();
        self.known.retain(|uuid, _| samples.iter().any(|sample| sample.uuid == *uuid));
        samples
    }

    fn one(&mut self, driver: &Driver, gpu: &str, device: &Device<'_>) -> Option<InstanceSample> {
        let uuid = device.uuid().ok()?;
        let facts = match self.known.get(&uuid) {
            Some(facts) => facts.clone(),
            None => {
                let facts = facts(driver, gpu, device).ok()?;
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

/// Handles of the MIG devices that are there.
pub(super) fn devices<'d>(gpu: &Device<'d>) -> impl Iterator<Item = Device<'d>> {
    let slots = gpu.mig_device_count().unwrap_or(DEVICES_MAX);
    (0..slots).filter_map(|at| gpu.mig_device_by_index(at).ok())
}

fn facts(driver: &Driver, gpu: &str, device: &Device<'_>) -> Result<Facts, DriverError> {
    let calls = MigCalls::new(driver, gpu)?;
    let (gpu_instance, _) = calls.numbers(device)?;
    let start = match calls.start(gpu_instance) {
        Ok(start) => u8::try_from(start).ok(),
        // Where an instance lies is told to the privileged only.
        Err(error) if error.is(&Fault::NoPermission) => None,
        Err(error) => return Err(error),
    };
    let name = device.name().map_err(DriverError::of("nvmlDeviceGetName"))?;
    Ok(Facts { gpu_instance, profile: profile(&name), start })
}

/// The driver calls a MIG device `NVIDIA A100-SXM4-80GB MIG 1g.10gb`.
fn profile(name: &str) -> String {
    name.rsplit_once("MIG ").map_or(name, |(_, profile)| profile).to_string()
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
