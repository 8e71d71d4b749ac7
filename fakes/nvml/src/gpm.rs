//! GPM: averages of finer counters between two samples, on Hopper and newer.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use fake_machine::{Code, Gpu};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpmMetric_t, nvmlGpmSample_t, nvmlGpmSupport_t,
};

use crate::calls::{now_us, nvml};
use crate::handles::{self, Device, Object};
use crate::pointers::{get, put, with};

/// Version of the GPM structs; unlike elsewhere, their version field holds no size.
const VERSION: c_uint = 1;

/// What is asked of two samples. The newest header has room for more metrics than the bindings; an
/// older caller brings less room, so that the array is reached by pointer and never as a whole.
#[repr(C)]
pub(crate) struct nvmlGpmMetricsGet_t {
    pub(crate) version: c_uint,
    pub(crate) numMetrics: c_uint,
    pub(crate) sample1: nvmlGpmSample_t,
    pub(crate) sample2: nvmlGpmSample_t,
    pub(crate) metrics: [nvmlGpmMetric_t; METRICS_MAX],
}

/// `NVML_GPM_METRIC_MAX` of NVML 13.5.
const METRICS_MAX: usize = 477;

/// "The interval between these two calls should be greater than 100ms", says the header of the samples;
/// what a driver does with less it does not say. Here it is refused, so that nobody lives on it.
const APART_US: u64 = 100_000;

/// The part before the array.
#[derive(Clone, Copy)]
#[repr(C)]
struct Head {
    version: c_uint,
    metrics: c_uint,
    samples: [nvmlGpmSample_t; 2],
}

/// What one sample holds: the load at its moment.
#[derive(Clone, Copy, Default)]
struct Sample {
    at_us: u64,
    sm: f64,
    occupancy: f64,
    tensor: f64,
    dram: f64,
    pcie_out_mib: f64,
    pcie_in_mib: f64,
}

struct Samples {
    last: u32,
    by_number: BTreeMap<u32, Sample>,
}

/// The samples of this process.
static SAMPLES: Mutex<Samples> = Mutex::new(Samples { last: 0, by_number: BTreeMap::new() });

fn samples<T>(use_them: impl FnOnce(&mut Samples) -> T) -> T {
    use_them(&mut SAMPLES.lock().unwrap_or_else(PoisonError::into_inner))
}

fn take(gpu: &Gpu, instance: Option<u32>, into: nvmlGpmSample_t) -> Result<(), Code> {
    if !gpu.facts()?.has_gpm() {
        return Err(Code::NotSupported);
    }
    let sample = Sample {
        at_us: now_us(),
        sm: f64::from(gpu.sm_percent(instance)),
        occupancy: f64::from(gpu.load.occupancy_percent),
        tensor: f64::from(gpu.load.tensor_percent),
        dram: f64::from(gpu.load.memory_percent),
        pcie_out_mib: f64::from(gpu.load.pcie_kib.0) / 1024.0,
        pcie_in_mib: f64::from(gpu.load.pcie_kib.1) / 1024.0,
    };
    let number = handles::object(Object::GpmSample, into)?;
    let place = samples(|all| all.by_number.get_mut(&number).map(|place| *place = sample));
    place.ok_or(Code::InvalidArgument)
}

fn sample(handle: nvmlGpmSample_t) -> Result<Sample, Code> {
    let number = handles::object(Object::GpmSample, handle)?;
    samples(|all| all.by_number.get(&number).copied()).ok_or(Code::InvalidArgument)
}

/// A metric by its number (`NVML_GPM_METRIC_…`), from one sample.
fn metric(sample: &Sample, number: c_uint) -> Result<f64, Code> {
    match number {
        1 | 2 => Ok(sample.sm),
        3 => Ok(sample.occupancy),
        5 | 7 => Ok(sample.tensor),
        4 | 6 | 9 | 11..=13 => Ok(0.0),
        10 => Ok(sample.dram),
        20 => Ok(sample.pcie_out_mib),
        21 => Ok(sample.pcie_in_mib),
        _ => Err(Code::NotSupported),
    }
}

fn fill(asked: &mut nvmlGpmMetric_t, first: &Sample, second: &Sample) {
    let pair = metric(first, asked.metricId)
        .and_then(|one| metric(second, asked.metricId).map(|other| (one, other)));
    match pair {
        Ok((one, other)) => (asked.value, asked.nvmlReturn) = (f64::midpoint(one, other), 0),
        Err(code) => asked.nvmlReturn = code as u32,
    }
    let info = &mut asked.metricInfo;
    (info.shortName, info.longName, info.unit) = (null_mut(), null_mut(), null_mut());
}

nvml! {
    fn nvmlGpmQueryDeviceSupport(device: nvmlDevice_t, to: *mut nvmlGpmSupport_t) |call| {
        let (_, gpu) = call.device(device)?.physical();
        let has = gpu.facts()?.has_gpm();
        with(to, |support| {
            if support.version != VERSION {
                return Err(Code::ArgumentVersionMismatch);
            }
            support.isSupportedDevice = has.into();
            Ok(())
        })
    }

    fn nvmlGpmSampleAlloc(to: *mut nvmlGpmSample_t) |_| {
        let number = samples(|all| {
            all.last += 1;
            all.by_number.insert(all.last, Sample::default());
            all.last
        });
        put(to, handles::of_object(Object::GpmSample, number))
    }

    fn nvmlGpmSampleFree(handle: nvmlGpmSample_t) |_| {
        let number = handles::object(Object::GpmSample, handle)?;
        let gone = samples(|all| all.by_number.remove(&number));
        gone.map(|_| ()).ok_or(Code::InvalidArgument)
    }

    fn nvmlGpmSampleGet(device: nvmlDevice_t, into: nvmlGpmSample_t) |call| {
        match call.device(device)? {
            Device::Gpu(_, gpu) => take(gpu, None, into),
            Device::Mig(_, gpu, instance, _) => take(gpu, Some(instance.id), into),
        }
    }

    fn nvmlGpmMigSampleGet(
        device: nvmlDevice_t, instance: c_uint, into: nvmlGpmSample_t
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        gpu.instance(instance)?;
        take(gpu, Some(instance), into)
    }

    fn nvmlGpmMetricsGet(to: *mut nvmlGpmMetricsGet_t) |_| {
        let asked: Head = get(to.cast())?;
        if asked.version != VERSION {
            return Err(Code::ArgumentVersionMismatch);
        }
        let (first, second) = (sample(asked.samples[0])?, sample(asked.samples[1])?);
        let count = asked.metrics as usize;
        let apart_us = second.at_us.saturating_sub(first.at_us);
        if first.at_us == 0 || apart_us < APART_US || count > METRICS_MAX {
            return Err(Code::InvalidArgument);
        }
        let metrics = to.wrapping_byte_add(offset_of!(nvmlGpmMetricsGet_t, metrics));
        for at in 0..count {
            let place = metrics.cast::<nvmlGpmMetric_t>().wrapping_add(at);
            with(place, |asked| {
                fill(asked, &first, &second);
                Ok(())
            })?;
        }
        Ok(())
    }
}
