//! How busy, how hot, how much power, how fast.

use std::ffi::{c_int, c_uint};

use fake_machine::{Code, Gpu};
use nvml_wrapper_sys::bindings::{
    nvmlClockType_t, nvmlDevice_t, nvmlPstates_t, nvmlSample_t, nvmlSamplingType_t,
    nvmlTemperature_v1_t, nvmlTemperatureSensors_t, nvmlTemperatureThresholds_t, nvmlUtilization_t,
    nvmlValue_t, nvmlValueType_t,
};

use crate::calls::{Call, PERIOD_US, also, now_us, nvml};
use crate::pointers::{check_version, put, put_list, with};

/// A GPU that has a use of its own: in MIG mode there is none.
fn whole(call: &Call, device: nvmlDevice_t) -> Result<&Gpu, Code> {
    let (_, gpu) = call.gpu(device)?;
    if gpu.mig.current { Err(Code::NotSupported) } else { Ok(gpu) }
}

fn put_use(to: *mut c_uint, period: *mut c_uint, percent: u32) -> Result<(), Code> {
    put(to, percent)?;
    put(period, PERIOD_US)
}

/// The clock of a domain now and at most, in MHz.
fn clocks(gpu: &Gpu, domain: nvmlClockType_t) -> Result<(u32, u32), Code> {
    let (sm, memory) = gpu.facts()?.clocks_mhz;
    match domain {
        0 | 1 => Ok((gpu.sm_clock_mhz(), sm)),
        2 => Ok((memory, memory)),
        3 => Ok((gpu.sm_clock_mhz() * 5 / 6, sm * 5 / 6)),
        _ => Err(Code::InvalidArgument),
    }
}

nvml! {
    fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, to: *mut nvmlUtilization_t) |call| {
        let gpu = whole(call, device)?;
        put(to, nvmlUtilization_t { gpu: gpu.sm_percent(None), memory: gpu.load.memory_percent })
    }

    fn nvmlDeviceGetEncoderUtilization(
        device: nvmlDevice_t, to: *mut c_uint, period: *mut c_uint
    ) |call| {
        put_use(to, period, whole(call, device)?.load.encoder_percent)
    }

    fn nvmlDeviceGetDecoderUtilization(
        device: nvmlDevice_t, to: *mut c_uint, period: *mut c_uint
    ) |call| {
        put_use(to, period, whole(call, device)?.load.decoder_percent)
    }

    fn nvmlDeviceGetSamples(
        device: nvmlDevice_t,
        kind: nvmlSamplingType_t,
        _last_seen: u64,
        value_type: *mut nvmlValueType_t,
        count: *mut c_uint,
        to: *mut nvmlSample_t,
    ) |call| {
        let gpu = whole(call, device)?;
        let value = match kind {
            0 => gpu.power_mw(),
            1 => gpu.sm_percent(None),
            2 => gpu.load.memory_percent,
            3 => gpu.load.encoder_percent,
            4 => gpu.load.decoder_percent,
            5 => gpu.sm_clock_mhz(),
            6 => gpu.facts()?.clocks_mhz.1,
            7..=9 => return Err(Code::NotSupported),
            _ => return Err(Code::InvalidArgument),
        };
        // `NVML_VALUE_TYPE_UNSIGNED_INT`
        put(value_type, 1)?;
        if to.is_null() {
            return put(count, 1);
        }
        let sample = nvmlSample_t { timeStamp: now_us(), sampleValue: nvmlValue_t { uiVal: value } };
        put_list(to, count, vec![sample])
    }

    fn nvmlDeviceGetTemperature(
        device: nvmlDevice_t, sensor: nvmlTemperatureSensors_t, to: *mut c_uint
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        if sensor != 0 {
            return Err(Code::InvalidArgument);
        }
        put(to, gpu.temperature_c())
    }

    fn nvmlDeviceGetTemperatureV(device: nvmlDevice_t, to: *mut nvmlTemperature_v1_t) |call| {
        let (_, gpu) = call.gpu(device)?;
        with(to, |info| {
            check_version::<nvmlTemperature_v1_t>(info.version, 1)?;
            if info.sensorType != 0 {
                return Err(Code::InvalidArgument);
            }
            info.temperature = gpu.temperature_c() as c_int;
            Ok(())
        })
    }

    fn nvmlDeviceGetTemperatureThreshold(
        device: nvmlDevice_t, threshold: nvmlTemperatureThresholds_t, to: *mut c_uint
    ) |call| {
        call.gpu(device)?;
        // Shutdown, slowdown, memory at most, GPU at most.
        match threshold {
            0 => put(to, 92),
            1 => put(to, 89),
            2 => put(to, 95),
            3 => put(to, 85),
            4..=7 => Err(Code::NotSupported),
            _ => Err(Code::InvalidArgument),
        }
    }

    fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, to: *mut c_uint) |call| {
        put(to, call.gpu(device)?.1.power_mw())
    }

    fn nvmlDeviceGetEnforcedPowerLimit(device: nvmlDevice_t, to: *mut c_uint) |call| {
        put(to, call.gpu(device)?.1.facts()?.power_w * 1000)
    }

    fn nvmlDeviceGetPowerManagementLimitConstraints(
        device: nvmlDevice_t, least: *mut c_uint, most: *mut c_uint
    ) |call| {
        let limit = call.gpu(device)?.1.facts()?.power_w * 1000;
        put(least, limit / 4)?;
        put(most, limit)
    }

    fn nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t, to: *mut u64) |call| {
        put(to, call.gpu(device)?.1.energy_mj(now_us() / 1000))
    }

    fn nvmlDeviceGetClockInfo(
        device: nvmlDevice_t, domain: nvmlClockType_t, to: *mut c_uint
    ) |call| {
        put(to, clocks(call.gpu(device)?.1, domain)?.0)
    }

    fn nvmlDeviceGetMaxClockInfo(
        device: nvmlDevice_t, domain: nvmlClockType_t, to: *mut c_uint
    ) |call| {
        put(to, clocks(call.gpu(device)?.1, domain)?.1)
    }

    fn nvmlDeviceGetCurrentClocksEventReasons(device: nvmlDevice_t, to: *mut u64) |call| {
        let (_, gpu) = call.gpu(device)?;
        let idle = u64::from(gpu.sm_percent(None) == 0);
        put(to, gpu.load.clocks_event_reasons | idle)
    }

    fn nvmlDeviceGetPerformanceState(device: nvmlDevice_t, to: *mut nvmlPstates_t) |call| {
        call.gpu(device)?;
        put(to, 0)
    }

    fn nvmlDeviceGetFanSpeed(device: nvmlDevice_t, to: *mut c_uint) |call| {
        // Server cards have none of their own.
        call.gpu(device)?;
        if to.is_null() { Err(Code::InvalidArgument) } else { Err(Code::NotSupported) }
    }
}

also! {
    fn nvmlDeviceGetPowerManagementLimit(device: nvmlDevice_t, to: *mut c_uint)
        is nvmlDeviceGetEnforcedPowerLimit;
    fn nvmlDeviceGetPowerState(device: nvmlDevice_t, to: *mut nvmlPstates_t)
        is nvmlDeviceGetPerformanceState;
    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: nvmlDevice_t, to: *mut u64)
        is nvmlDeviceGetCurrentClocksEventReasons;
}
