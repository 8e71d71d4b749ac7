//! One GPU: everything that is measured of it in a round.

use std::time::Duration;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper_sys::bindings::field_id;

use super::answers::{Answers, Ask};
use super::instances::Instances;
use super::processes::Processes;
use super::profile::Profiles;
use super::ratio;
use super::xid::Xids;
use super::{Past, Remembered};
use crate::driver::Driver;
use crate::sample::GpuSample;
use crate::tenant::Tenants;

/// Fields without a function of their own: memory temperature, remapped rows.
const FIELDS: [FieldId; 3] = [
    FieldId(field_id::NVML_FI_DEV_MEMORY_TEMP),
    FieldId(field_id::NVML_FI_DEV_REMAPPED_COR),
    FieldId(field_id::NVML_FI_DEV_REMAPPED_UNC),
];

/// One GPU and what is remembered of it from round to round.
#[derive(Debug)]
pub(super) struct Gpu<'d> {
    index: u32,
    uuid: String,
    /// `None` while the driver gives no handle.
    device: Option<Device<'d>>,
    answers: Answers,
    mig_enabled: Option<bool>,
    instances: Instances,
    profiles: Profiles<'d>,
    processes: Processes,
    xids: Xids<'d>,
}

impl<'d> Gpu<'d> {
    /// * `in_place` — the GPUs are still those that are remembered, in the same order.
    pub(super) fn new(
        driver: &'d Driver,
        index: u32,
        remembered: &Remembered,
        in_place: bool,
    ) -> Self {
        let past = if in_place { remembered.at(index) } else { Past::default() };
        let mut gpu = Self {
            index,
            uuid: past.uuid,
            device: None,
            answers: Answers::default(),
            mig_enabled: None,
            instances: Instances::default(),
            profiles: Profiles::default(),
            processes: Processes::default(),
            xids: Xids::new(past.xids),
        };
        gpu.find(driver, remembered);
        gpu
    }

    /// What is to be known of it to whoever measures with another session of the driver.
    pub(super) fn past(&self) -> Past {
        Past { uuid: self.uuid.clone(), xids: self.xids.history().clone() }
    }

    /// Gets a handle where there is none yet; a GPU that is lost when measuring begins has none.
    fn find(&mut self, driver: &'d Driver, remembered: &Remembered) {
        let Ok(device) = driver.nvml().device_by_index(self.index) else { return };
        let Ok(uuid) = device.uuid() else { return };
        if uuid != self.uuid {
            self.xids = Xids::new(remembered.of(&uuid));
            self.uuid = uuid;
        }
        self.xids.listen(driver.nvml(), &device, &mut self.answers);
        self.device = Some(device);
    }

    /// Measures this GPU.
    pub(super) fn sample(
        &mut self,
        driver: &'d Driver,
        tenants: &Tenants,
        at: Duration,
    ) -> GpuSample {
        self.answers.begin();
        if self.device.is_none() {
            self.find(driver, &Remembered::default());
        }
        let mut sample =
            GpuSample { index: self.index, uuid: self.uuid.clone(), ..GpuSample::default() };
        // First, and of a lost GPU too: that it is gone is told by an Xid.
        sample.xid_counts = self.xids.read();
        sample.xid = sample.xid_counts.is_some().then_some(self.xids.last());
        let Some(device) = self.device.take() else {
            sample.lost = true;
            return sample;
        };
        self.mode(&device);
        self.memory(&device, &mut sample);
        self.use_of_units(&device, &mut sample);
        self.body(&device, &mut sample);
        self.fields(&device, &mut sample);
        self.parts(driver, &device, &mut sample);
        let divided = self.mig_enabled == Some(true);
        let processes = self.processes.sample(&device, &mut self.answers, (tenants, at), divided);
        sample.processes_listed = processes.is_some();
        sample.processes = processes.unwrap_or_default();
        sample.mig_enabled = self.mig_enabled;
        self.device = Some(device);
        if self.answers.lost() { self.lost(sample) } else { sample }
    }

    /// What is left to say of a GPU that went away in the middle of a round.
    fn lost(&mut self, sample: GpuSample) -> GpuSample {
        self.profiles.clear();
        GpuSample {
            index: sample.index,
            uuid: sample.uuid,
            lost: true,
            xid: sample.xid,
            xid_counts: sample.xid_counts,
            ..GpuSample::default()
        }
    }

    /// MIG mode decides what can be asked; after a change everything is asked anew.
    fn mode(&mut self, device: &Device<'d>) {
        let enabled = match self.answers.ask(Ask::Mig, || device.mig_mode()) {
            Some(mode) => Some(mode.current == 1),
            None if self.answers.refused(Ask::Mig) => None,
            // It did not answer this time: nothing has changed as far as anybody knows.
            None => return,
        };
        if enabled != self.mig_enabled {
            self.answers.forget();
            self.mig_enabled = enabled;
        }
    }

    fn memory(&mut self, device: &Device<'d>, sample: &mut GpuSample) {
        let Some(memory) = self.answers.ask(Ask::Memory, || device.memory_info()) else { return };
        sample.memory_total_bytes = Some(memory.total);
        sample.memory_used_bytes = Some(memory.used);
        sample.memory_reserved_bytes = Some(memory.reserved);
    }

    fn use_of_units(&mut self, device: &Device<'d>, sample: &mut GpuSample) {
        let answers = &mut self.answers;
        if let Some(rates) = answers.ask(Ask::Use, || device.utilization_rates()) {
            sample.busy_ratio = Some(ratio(rates.gpu));
            sample.memory_busy_ratio = Some(ratio(rates.memory));
        }
        let encoder = answers.ask(Ask::Encoder, || device.encoder_utilization());
        sample.encoder_ratio = encoder.map(|encoder| ratio(encoder.utilization));
        let decoder = answers.ask(Ask::Decoder, || device.decoder_utilization());
        sample.decoder_ratio = decoder.map(|decoder| ratio(decoder.utilization));
    }

    /// Heat, power, clocks, bus.
    fn body(&mut self, device: &Device<'d>, sample: &mut GpuSample) {
        let answers = &mut self.answers;
        let celsius = answers.ask(Ask::Temperature, || device.temperature(TemperatureSensor::Gpu));
        sample.temperature_celsius = celsius.map(f64::from);
        let milliwatts = answers.ask(Ask::Power, || device.power_usage());
        sample.power_watts = milliwatts.map(|milliwatts| f64::from(milliwatts) / 1e3);
        let millijoules = answers.ask(Ask::Energy, || device.total_energy_consumption());
        sample.energy_joules = millijoules.map(|millijoules| float(millijoules) / 1e3);
        let megahertz = answers.ask(Ask::SmClock, || device.clock_info(Clock::SM));
        sample.sm_clock_hertz = megahertz.map(|megahertz| f64::from(megahertz) * 1e6);
        let megahertz = answers.ask(Ask::MemoryClock, || device.clock_info(Clock::Memory));
        sample.memory_clock_hertz = megahertz.map(|megahertz| f64::from(megahertz) * 1e6);
        let replays = answers.ask(Ask::PcieReplays, || device.pcie_replay_counter());
        sample.pcie_replays = replays.map(u64::from);
    }

    fn fields(&mut self, device: &Device<'d>, sample: &mut GpuSample) {
        let values = self.answers.ask(Ask::Fields, || device.field_values_for(&FIELDS));
        let Some(values) = values else { return };
        let number = |at: usize| match values.get(at)?.as_ref().ok()?.value.as_ref().ok()? {
            SampleValue::U32(value) => Some(u64::from(*value)),
            SampleValue::U64(value) => Some(*value),
            SampleValue::I64(value) => u64::try_from(*value).ok(),
            SampleValue::F64(_) => None,
        };
        // 0 stands for "no sensor" on boards without one; memory at work is never that cold.
        sample.memory_temperature_celsius = number(0).filter(|celsius| *celsius != 0).map(float);
        sample.remapped_rows = number(1).zip(number(2));
    }

    /// MIG devices and, where the hardware has them, profile counters of GPU and devices.
    fn parts(&mut self, driver: &'d Driver, device: &Device<'d>, sample: &mut GpuSample) {
        if self.mig_enabled == Some(true) && !self.answers.lost() {
            sample.instances = self.instances.sample(driver, &self.uuid, device);
        }
        let nvml = driver.nvml();
        sample.profile = self.profiles.measure(nvml, device, &mut self.answers, None);
        for instance in &mut sample.instances {
            let part = Some(instance.gpu_instance);
            instance.profile_counters =
                self.profiles.measure(nvml, device, &mut self.answers, part);
        }
        let there = |part: u32| sample.instances.iter().any(|one| one.gpu_instance == part);
        self.profiles.keep(there);
    }
}

#[expect(clippy::cast_precision_loss, reason = "what is measured stays far below 2^53")]
fn float(value: u64) -> f64 {
    value as f64
}
