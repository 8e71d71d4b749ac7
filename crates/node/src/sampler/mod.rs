//! Measures a machine's GPUs through the driver, one round at a call. What the driver refuses stays
//! `None`; what a GPU cannot do is asked once; a GPU that is lost does not hide the others.

mod answers;
mod gpu;
mod instances;
mod processes;
mod profile;
mod xid;

use std::time::{Duration, SystemTime};

use nvml_wrapper::Nvml;

use self::gpu::Gpu;
use crate::driver::{Driver, DriverError};
use crate::sample::Sample;
use crate::tenant::Tenants;

pub use self::profile::PROFILE_PERIOD;

/// Takes samples; remembers between them what needs two moments to measure.
#[derive(Debug)]
pub struct Sampler<'d> {
    nvml: &'d Nvml,
    tenants: Tenants,
    gpus: Vec<Gpu<'d>>,
}

impl<'d> Sampler<'d> {
    /// Gets hold of every GPU; Xid events count from here on.
    ///
    /// # Errors
    /// The driver does not say how many GPUs there are.
    pub fn new(driver: &'d Driver, tenants: Tenants) -> Result<Self, DriverError> {
        let nvml = driver.nvml();
        let gpus = gpus(nvml, count(nvml)?);
        Ok(Self { nvml, tenants, gpus })
    }

    /// Measures all GPUs once. Profile counters come with the second round that is at least
    /// [`PROFILE_PERIOD`] after the first.
    ///
    /// # Errors
    /// The driver as a whole no longer answers: open it anew.
    pub fn sample(&mut self) -> Result<Sample, DriverError> {
        let count = count(self.nvml)?;
        if count as usize != self.gpus.len() {
            self.gpus = gpus(self.nvml, count);
        }
        self.tenants.refresh();
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (nvml, tenants) = (self.nvml, &self.tenants);
        let gpus = self.gpus.iter_mut().map(|gpu| gpu.sample(nvml, tenants, at)).collect();
        Ok(Sample { at_ms: whole_ms(at), gpus })
    }
}

fn gpus(nvml: &Nvml, count: u32) -> Vec<Gpu<'_>> {
    (0..count).map(|index| Gpu::new(nvml, index)).collect()
}

fn count(nvml: &Nvml) -> Result<u32, DriverError> {
    nvml.device_count().map_err(DriverError::of("nvmlDeviceGetCount_v2"))
}

fn whole_ms(since: Duration) -> u64 {
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Percent as the driver gives them, as a part of 1.
fn ratio(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}
