//! Measures a machine's GPUs through the driver, one round at a call. What the driver refuses stays
//! `None`; what a GPU cannot do is asked once; a GPU that is lost does not hide the others.

mod accounts;
mod answers;
mod gpu;
mod instances;
mod processes;
mod profile;
mod xid;

use std::time::{Duration, SystemTime};

use self::accounts::Accounts;
use self::gpu::Gpu;
use self::xid::XidHistory;
use crate::driver::{Driver, DriverError};
use crate::sample::{GpuSample, Sample};
use crate::tenant::{Booked, Tenants};

pub use self::profile::PROFILE_PERIOD;

/// Takes samples; remembers between them what needs two moments to measure.
#[derive(Debug)]
pub struct Sampler<'d> {
    driver: &'d Driver,
    tenants: Tenants,
    gpus: Vec<Gpu<'d>>,
    accounts: Accounts,
}

/// What outlives a session with the driver: a GPU that is lost comes back only in another one, which
/// would know nothing of its name and of the Xids that were seen.
#[derive(Clone, Debug, Default)]
pub struct Remembered(Vec<Past>);

/// What is remembered of one GPU.
#[derive(Clone, Debug, Default)]
struct Past {
    uuid: String,
    xids: XidHistory,
}

impl Remembered {
    /// The GPU at a position, should it not say who it is.
    fn at(&self, index: u32) -> Past {
        self.0.get(index as usize).cloned().unwrap_or_default()
    }

    /// The Xids of a GPU that says who it is.
    fn of(&self, uuid: &str) -> XidHistory {
        let found = self.0.iter().find(|past| past.uuid == uuid);
        found.map(|past| past.xids.clone()).unwrap_or_default()
    }
}

impl<'d> Sampler<'d> {
    /// Gets hold of every GPU; Xid events count from here on.
    ///
    /// # Errors
    /// The driver does not say how many GPUs there are.
    pub fn new(driver: &'d Driver, tenants: Tenants) -> Result<Self, DriverError> {
        Self::resume(driver, tenants, &Remembered::default())
    }

    /// As [`Sampler::new`], going on from what an earlier sampler remembered.
    ///
    /// # Errors
    /// The driver does not say how many GPUs there are.
    pub fn resume(
        driver: &'d Driver,
        tenants: Tenants,
        remembered: &Remembered,
    ) -> Result<Self, DriverError> {
        let gpus = gpus(driver, count(driver)?, remembered);
        Ok(Self { driver, tenants, gpus, accounts: Accounts::default() })
    }

    /// Says which shares are held by others than runs, from the next round on.
    pub fn seat(&mut self, seated: Vec<Booked>) {
        self.tenants.seat(seated);
    }

    /// Whose processes are, as of the last round.
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// What [`Sampler::resume`] needs to go on in another session with the driver.
    pub fn remembered(&self) -> Remembered {
        Remembered(self.gpus.iter().map(Gpu::past).collect())
    }

    /// Measures all GPUs once. Profile counters come with the second round that is at least
    /// [`PROFILE_PERIOD`] after the first.
    ///
    /// # Errors
    /// The driver as a whole no longer answers: open it anew.
    pub fn sample(&mut self) -> Result<Sample, DriverError> {
        let count = count(self.driver)?;
        if count as usize != self.gpus.len() {
            self.gpus = gpus(self.driver, count, &self.remembered());
        }
        self.tenants.refresh();
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (driver, tenants) = (self.driver, &self.tenants);
        let gpus = self.gpus.iter_mut().map(|gpu| gpu.sample(driver, tenants, at));
        let mut gpus: Vec<GpuSample> = gpus.collect();
        self.accounts.fill(&mut gpus, &self.tenants, at);
        Ok(Sample { at_ms: whole_ms(at), gpus })
    }
}

fn gpus<'d>(driver: &'d Driver, count: u32, remembered: &Remembered) -> Vec<Gpu<'d>> {
    // With another number of GPUs, positions say nothing of who is there.
    let in_place = remembered.0.len() == count as usize;
    (0..count).map(|index| Gpu::new(driver, index, remembered, in_place)).collect()
}

fn count(driver: &Driver) -> Result<u32, DriverError> {
    driver.nvml().device_count().map_err(DriverError::of("nvmlDeviceGetCount_v2"))
}

fn whole_ms(since: Duration) -> u64 {
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Percent as the driver gives them, as a part of 1.
fn ratio(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}
