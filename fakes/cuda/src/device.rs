//! Devices: how many, who they are, what they have.

use std::ffi::{c_char, c_int};

use crate::attributes::{REGISTERS, SHARED_PER_BLOCK, THREADS_PER_BLOCK, WARP};
use crate::calls::exports;
use crate::pointers::{get_text, put, put_text};
use crate::result::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED};

/// Old properties, as in cuda.h.
#[repr(C)]
struct Properties {
    threads_per_block: c_int,
    block: [c_int; 3],
    grid: [c_int; 3],
    shared_per_block: c_int,
    constant_memory: c_int,
    warp: c_int,
    pitch: c_int,
    registers: c_int,
    clock_khz: c_int,
    texture_alignment: c_int,
}

/// The bytes of a UUID in text with a prefix such as `GPU-`.
fn uuid_bytes(text: &str) -> [u8; 16] {
    let digits: Vec<u8> = text
        .chars()
        .skip_while(|c| *c != '-')
        .filter_map(|c| c.to_digit(16))
        .map(|digit| u8::try_from(digit).unwrap_or(0))
        .collect();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = pair.iter().fold(0, |value, digit| value << 4 | digit);
    }
    bytes
}

exports! { DEVICE;
    "cuDeviceGetCount" 2000 call fn cuDeviceGetCount(count: *mut c_int) |call| {
        put(count, c_int::try_from(call.lock().devices.len()).unwrap_or(c_int::MAX))
    }

    "cuDeviceGet" 2000 call fn cuDeviceGet(device: *mut c_int, ordinal: c_int) |call| {
        call.lock().device(ordinal)?;
        put(device, ordinal)
    }

    "cuDeviceGetName" 2000 call fn cuDeviceGetName(name: *mut c_char, room: c_int, device: c_int)
    |call| {
        put_text(name, room, &call.lock().device(device)?.1.name)
    }

    "cuDeviceGetUuid" 9020 call fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) |call| {
        put(uuid, uuid_bytes(&call.lock().device(device)?.1.gpu_uuid))
    }

    "cuDeviceGetUuid" 11040 call fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) |call| {
        let driver = call.lock();
        let (_, device) = driver.device(device)?;
        put(uuid, uuid_bytes(device.mig_uuid.as_ref().unwrap_or(&device.gpu_uuid)))
    }

    "cuDeviceGetLuid" 10000 call fn cuDeviceGetLuid(_to: *mut c_char, _mask: *mut u32, device: c_int)
    |call| {
        call.lock().device(device)?;
        Err(NOT_SUPPORTED)
    }

    "cuDeviceTotalMem" 2000 call fn cuDeviceTotalMem(bytes: *mut u32, device: c_int) |call| {
        let memory = call.lock().device(device)?.1.memory;
        put(bytes, u32::try_from(memory).unwrap_or(u32::MAX))
    }

    "cuDeviceTotalMem" 3020 call fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) |call| {
        let memory = call.lock().device(device)?.1.memory;
        put(bytes, usize::try_from(memory).unwrap_or(usize::MAX))
    }

    "cuDeviceComputeCapability" 2000 call fn cuDeviceComputeCapability(
        major: *mut c_int, minor: *mut c_int, device: c_int,
    ) |call| {
        let capability = call.lock().device(device)?.1.facts.capability;
        put(major, capability.0)?;
        put(minor, capability.1)
    }

    "cuDeviceGetAttribute" 2000 call fn cuDeviceGetAttribute(
        value: *mut c_int, attribute: c_int, device: c_int,
    ) |call| {
        let driver = call.lock();
        let (_, device) = driver.device(device)?;
        let sms = call.process.gpus.sms(device.place);
        put(value, device.attribute(attribute, sms, &call.state).ok_or(INVALID_VALUE)?)
    }

    "cuDeviceGetProperties" 2000 call fn cuDeviceGetProperties(to: *mut Properties, device: c_int)
    |call| {
        let driver = call.lock();
        let (_, device) = driver.device(device)?;
        put(to, Properties {
            threads_per_block: THREADS_PER_BLOCK,
            block: [THREADS_PER_BLOCK, THREADS_PER_BLOCK, 64],
            grid: [c_int::MAX, 65_535, 65_535],
            shared_per_block: SHARED_PER_BLOCK,
            constant_memory: 65_536,
            warp: WARP,
            pitch: c_int::MAX,
            registers: REGISTERS,
            clock_khz: c_int::try_from(device.facts.clocks_mhz.0 * 1000).unwrap_or(0),
            texture_alignment: 512,
        })
    }

    "cuDeviceGetPCIBusId" 4010 call fn cuDeviceGetPCIBusId(to: *mut c_char, room: c_int, device: c_int)
    |call| {
        let driver = call.lock();
        put_text(to, room, &format!("0000:{:02X}:00.0", driver.device(device)?.1.bus))
    }

    "cuDeviceGetByPCIBusId" 4010 call fn cuDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char)
    |call| {
        let id = get_text(id)?;
        let mut parts = id.rsplit(':');
        parts.next();
        let bus = parts.next().and_then(|bus| u32::from_str_radix(bus, 16).ok());
        let bus = bus.ok_or(INVALID_VALUE)?;
        let driver = call.lock();
        let found = driver.devices.iter().position(|device| device.bus == bus);
        let found = found.and_then(|at| c_int::try_from(at).ok()).ok_or(INVALID_DEVICE)?;
        put(device, found)
    }

    "cuDeviceGetExecAffinitySupport" 11040 call fn cuDeviceGetExecAffinitySupport(
        supported: *mut c_int, _kind: u32, device: c_int,
    ) |call| {
        // Only clients of an MPS server can have it.
        call.lock().device(device)?;
        put(supported, 0)
    }

    "cuDeviceGetTexture1DLinearMaxWidth" 11010 call fn cuDeviceGetTexture1DLinearMaxWidth(
        width: *mut usize, _format: u32, _channels: u32, device: c_int,
    ) |call| {
        call.lock().device(device)?;
        put(width, 1 << 28)
    }

    "cuDeviceGetDevResource" 12040 call fn cuDeviceGetDevResource(
        device: c_int, _resource: *mut u8, _kind: u32,
    ) |call| {
        call.lock().device(device)?;
        Err(NOT_SUPPORTED)
    }

    "cuDeviceCanAccessPeer" 4000 call fn cuDeviceCanAccessPeer(
        can: *mut c_int, device: c_int, peer: c_int,
    ) |call| {
        let driver = call.lock();
        let (at, one) = driver.device(device)?;
        let (other_at, other) = driver.device(peer)?;
        let apart = at != other_at && one.mig_uuid.is_none() && other.mig_uuid.is_none();
        put(can, c_int::from(apart))
    }

    "cuDeviceGetP2PAttribute" 8000 call fn cuDeviceGetP2PAttribute(
        value: *mut c_int, attribute: u32, from: c_int, to: c_int,
    ) |call| {
        let driver = call.lock();
        let (from, one) = driver.device(from)?;
        let (to, _) = driver.device(to)?;
        if from == to {
            return Err(INVALID_DEVICE);
        }
        let linked = one.facts.nvlinks > 0;
        let found = match attribute {
            1 => 0,
            2 | 4 => 1,
            3 => c_int::from(linked),
            5 => 0,
            _ => return Err(INVALID_VALUE),
        };
        put(value, found)
    }
}
