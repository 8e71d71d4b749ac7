//! Values by number of their field: those that are read this way and have no function of their own.

use std::ffi::c_int;

use fake_machine::{Code, Gpu};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlFieldValue_t, nvmlValue_t, nvmlValueType_t};

use crate::calls::{now_us, nvml};
use crate::pointers::with;

/// `NVML_VALUE_TYPE_UNSIGNED_INT` and `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`
const UNSIGNED: nvmlValueType_t = 1;
const UNSIGNED_LONG_LONG: nvmlValueType_t = 3;

/// A field's value, by the numbers of `NVML_FI_DEV_…`.
fn value(gpu: &Gpu, field: u32, scope: u32) -> Result<(nvmlValueType_t, nvmlValue_t), Code> {
    let facts = gpu.facts()?;
    let small = |value: u32| Ok((UNSIGNED, nvmlValue_t { uiVal: value }));
    let large = |value: u64| Ok((UNSIGNED_LONG_LONG, nvmlValue_t { ullVal: value }));
    let remaps = facts.architecture >= fake_machine::Architecture::Ampere;
    match field {
        // ECC mode, now and pending.
        1 | 2 => small(1),
        // ECC totals: corrected and uncorrected, volatile and aggregate.
        3 | 5 => large(gpu.ecc.corrected),
        4 | 6 => large(gpu.ecc.uncorrected),
        82 => small(gpu.load.memory_temperature_c.unwrap_or(gpu.temperature_c() + 4)),
        83 => large(gpu.energy_mj(now_us() / 1000)),
        // NVLink: speed of one link in MB/s, number of links.
        90 if facts.nvlinks > 0 => small(if facts.nvlinks >= 12 { 25_000 } else { 20_000 }),
        91 if facts.nvlinks > 0 => small(facts.nvlinks),
        // PCIe replays, and rollovers of that counter.
        94 => small(gpu.pcie_replays),
        95 => small(0),
        // NVLink traffic, data and raw, out and in, in KiB: none is simulated.
        138..=141 if scope < facts.nvlinks || scope == u32::MAX => large(0),
        142 if remaps => small(gpu.ecc.remapped_corrected),
        143 if remaps => small(gpu.ecc.remapped_uncorrected),
        144 if remaps => small(gpu.ecc.remap_pending.into()),
        145 if remaps => small(gpu.ecc.remap_failed.into()),
        // Power, averaged and at this moment.
        185 | 186 => small(gpu.power_mw()),
        _ => Err(Code::NotSupported),
    }
}

nvml! {
    fn nvmlDeviceGetFieldValues(
        device: nvmlDevice_t, count: c_int, values: *mut nvmlFieldValue_t
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        if count <= 0 || values.is_null() {
            return Err(Code::InvalidArgument);
        }
        for at in 0..count as usize {
            // The caller says that there are `count` of them.
            with(values.wrapping_add(at), |asked| {
                asked.timestamp = i64::try_from(now_us()).unwrap_or(0);
                asked.latencyUsec = 0;
                match value(gpu, asked.fieldId, asked.scopeId) {
                    Ok((kind, value)) => {
                        (asked.valueType, asked.value, asked.nvmlReturn) = (kind, value, 0);
                    }
                    Err(code) => asked.nvmlReturn = code as u32,
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
