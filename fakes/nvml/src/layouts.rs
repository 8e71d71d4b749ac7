//! The layout of every struct that crosses the border, as text, to be held against the real header.

use std::ffi::{CString, c_char};
use std::mem::offset_of;
use std::sync::OnceLock;

use nvml_wrapper_sys::bindings::*;

use crate::gpm::nvmlGpmMetricsGet_t;
use crate::memory_limits::{nvmlGetMemoryLimits_v1_t, nvmlSetMemoryLimits_v1_t};

/// Lines `STRUCT SIZE` and `STRUCT.FIELD OFFSET`.
macro_rules! layouts {
    ($($kind:ident { $($field:ident),* $(,)? })*) => {{
        let mut lines = Vec::new();
        $(
            lines.push(format!("{} {}", stringify!($kind), size_of::<$kind>()));
            $(lines.push(format!(
                "{}.{} {}", stringify!($kind), stringify!($field), offset_of!($kind, $field)
            ));)*
        )*
        lines.join("\n")
    }};
}

/// For the check of this library against the header; no function of NVML.
#[unsafe(no_mangle)]
extern "C" fn hotpot_fake_layouts() -> *const c_char {
    static TEXT: OnceLock<CString> = OnceLock::new();
    TEXT.get_or_init(|| CString::new(text()).unwrap_or_default()).as_ptr()
}

fn text() -> String {
    [devices(), processes_and_sensors(), instances()].join("\n")
}

#[rustfmt::skip]
fn devices() -> String {
    layouts! {
        nvmlPciInfo_t { busIdLegacy, domain, bus, device, pciDeviceId, pciSubSystemId, busId }
        nvmlMemory_t { total, free, used }
        nvmlMemory_v2_t { version, total, reserved, free, used }
        nvmlBAR1Memory_t { bar1Total, bar1Free, bar1Used }
        nvmlDeviceAttributes_t {
            multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount,
            sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount,
            memorySizeMB,
        }
        nvmlSetMemoryLimits_v1_t { nameSpace, softLimit, hardLimit }
        nvmlGetMemoryLimits_v1_t { nameSpace, softLimit, hardLimit, currentUsed }
    }
}

#[rustfmt::skip]
fn processes_and_sensors() -> String {
    layouts! {
        nvmlProcessInfo_v1_t { pid, usedGpuMemory }
        nvmlProcessInfo_v2_t { pid, usedGpuMemory, gpuInstanceId, computeInstanceId }
        nvmlProcessInfo_t { pid, usedGpuMemory, gpuInstanceId, computeInstanceId }
        nvmlProcessDetail_v1_t {
            pid, usedGpuMemory, gpuInstanceId, computeInstanceId, usedGpuCcProtectedMemory,
        }
        nvmlProcessDetailList_v1_t { version, mode, numProcArrayEntries, procArray }
        nvmlProcessUtilizationSample_t { pid, timeStamp, smUtil, memUtil, encUtil, decUtil }
        nvmlProcessUtilizationInfo_v1_t {
            timeStamp, pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil,
        }
        nvmlProcessesUtilizationInfo_v1_t {
            version, processSamplesCount, lastSeenTimeStamp, procUtilArray,
        }
        nvmlUtilization_t { gpu, memory }
        nvmlValue_t { dVal, uiVal, ullVal }
        nvmlSample_t { timeStamp, sampleValue }
        nvmlTemperature_v1_t { version, sensorType, temperature }
        nvmlEventData_t { device, eventType, eventData, gpuInstanceId, computeInstanceId }
        nvmlViolationTime_t { referenceTime, violationTime }
        nvmlAccountingStats_t {
            gpuUtilization, memoryUtilization, maxMemoryUsage, time, startTime, isRunning, reserved,
        }
        nvmlFieldValue_t {
            fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value,
        }
        nvmlGpmSupport_t { version, isSupportedDevice }
        nvmlGpmMetric_t { metricId, nvmlReturn, value, metricInfo }
        nvmlGpmMetricsGet_t { version, numMetrics, sample1, sample2, metrics }
    }
}

#[rustfmt::skip]
fn instances() -> String {
    layouts! {
        nvmlGpuInstancePlacement_t { start, size }
        nvmlGpuInstanceInfo_t { device, id, profileId, placement }
        nvmlGpuInstanceProfileInfo_t {
            id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount,
            decoderCount, encoderCount, jpegCount, ofaCount, memorySizeMB,
        }
        nvmlGpuInstanceProfileInfo_v2_t {
            version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount,
            copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount, memorySizeMB, name,
        }
        nvmlGpuInstanceProfileInfo_v3_t {
            version, id, sliceCount, instanceCount, multiprocessorCount, copyEngineCount,
            decoderCount, encoderCount, jpegCount, ofaCount, memorySizeMB, name, capabilities,
        }
        nvmlComputeInstancePlacement_t { start, size }
        nvmlComputeInstanceInfo_t { device, gpuInstance, id, profileId, placement }
        nvmlComputeInstanceProfileInfo_t {
            id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount,
            sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount,
        }
        nvmlComputeInstanceProfileInfo_v2_t {
            version, id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount,
            sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount, name,
        }
        nvmlComputeInstanceProfileInfo_v3_t {
            version, id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount,
            sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount, name,
            capabilities,
        }
    }
}
