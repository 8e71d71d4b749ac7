//! Host memory that the driver knows, and what it knows of any address.

use std::ffi::{c_int, c_void};

use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::memory::{Allocation, What};
use crate::pointers::{get, get_at, put};
use crate::result::{
    Error, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, Outcome,
};

const HOST_FLAGS: u32 = 7;
const REGISTER_FLAGS: u32 = 15;

fn address(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

impl Call {
    fn host_memory(&self, to: *mut *mut c_void, bytes: usize, flags: u32) -> Outcome {
        let mut driver = self.lock();
        let context = self.current(&driver)?.0;
        driver.forbid_unsafe()?;
        if to.is_null() || bytes == 0 || flags > HOST_FLAGS {
            return Err(INVALID_VALUE);
        }
        put(to, pointer(driver.allocate_host(context, bytes as u64, flags)?))
    }

    fn register(&self, at: *const c_void, bytes: usize, flags: u32) -> Outcome {
        let mut driver = self.lock();
        let (context, of) = self.current(&driver)?;
        let device = of.device;
        driver.forbid_unsafe()?;
        if at.is_null() || bytes == 0 || flags > REGISTER_FLAGS {
            return Err(INVALID_VALUE);
        }
        let (start, end) = (address(at), address(at) + bytes as u64);
        let before = driver.allocations.range(..end).next_back();
        if before.is_some_and(|(other, found)| other + found.size > start) {
            return Err(HOST_MEMORY_ALREADY_REGISTERED);
        }
        driver.keep(
            start,
            Allocation {
                size: bytes as u64,
                context,
                device,
                what: What::Registered(flags),
                block: 0,
                serial: 0,
                sync_operations: false,
            },
        );
        Ok(())
    }

    /// The flags of host memory that an address lies in.
    fn host_flags(&self, at: *const c_void) -> Result<u32, Error> {
        let driver = self.lock();
        match driver.allocation(address(at)).map(|(_, found)| found.what) {
            Some(What::Host(flags) | What::Registered(flags)) => Ok(flags),
            _ => Err(INVALID_VALUE),
        }
    }
}

/// `CUmemorytype` as it is told of addresses.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

impl Driver {
    /// Writes an attribute of an address; of one that is not known only a few.
    fn pointer_attribute(&self, to: *mut c_void, attribute: u32, at: u64) -> Outcome {
        let Some((start, found)) = self.allocation(at) else { return Err(INVALID_VALUE) };
        let is_host = matches!(found.what, What::Host(_) | What::Registered(_));
        let flag = |value: bool| put(to.cast::<u8>(), u8::from(value));
        let size = found.size as usize;
        match attribute {
            1 => put(to.cast(), found.context),
            2 => put(to.cast(), if is_host { HOST } else { DEVICE }),
            3 => put(to.cast(), at),
            4 if is_host || found.what == What::Managed => put(to.cast(), at),
            6 => flag(found.sync_operations),
            7 | 20 => put(to.cast(), found.serial),
            8 => flag(found.what == What::Managed),
            9 => put(to.cast(), c_int::try_from(found.device).unwrap_or(-1)),
            10 => flag(found.what == What::Plain),
            11 | 19 => put(to.cast(), start),
            12 | 18 => put(to.cast(), size),
            13 => flag(true),
            14 => {
                let file = self.handle_types(found.what);
                put(to.cast(), u64::from(file))
            }
            15 | 21 => flag(false),
            16 => put(to.cast(), 3_u32),
            17 => put(to.cast(), if let What::Pool(pool) = found.what { pool } else { 0 }),
            22 => put(to.cast(), 0_i32),
            _ => Err(INVALID_VALUE),
        }
    }

    fn handle_types(&self, what: What) -> u32 {
        match what {
            What::Mapped(handle, _) => self.physical.get(handle).map_or(0, |p| p.handle_types()),
            What::Pool(pool) => self.pools.get(pool).map_or(0, |pool| pool.handle_types()),
            What::Plain
            | What::Managed
            | What::Graph
            | What::Host(_)
            | What::Registered(_)
            | What::Opened
            | What::Imported
            | What::Variable
            | What::Array => 0,
        }
    }

    /// As [`Driver::pointer_attribute`], but what is not known is told as zeros.
    fn pointer_attribute_or_zero(&self, to: *mut c_void, attribute: u32, at: u64) -> Outcome {
        if self.pointer_attribute(to, attribute, at).is_ok() {
            return Ok(());
        }
        match attribute {
            1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20 => put(to.cast(), 0_u64),
            2 | 16 => put(to.cast(), 0_u32),
            9 => put(to.cast(), -2_i32),
            6 | 8 | 10 | 13 | 15 | 21 => put(to.cast(), 0_u8),
            _ => Err(INVALID_VALUE),
        }
    }
}

exports! { HOST_MEMORY;
    "cuMemAllocHost" 3020 call fn cuMemAllocHost_v2(to: *mut *mut c_void, bytes: usize) |call| {
        call.host_memory(to, bytes, 0)
    }

    "cuMemHostAlloc" 2020 call fn cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, flags: u32)
    |call| { call.host_memory(to, bytes, flags) }

    "cuMemFreeHost" 2000 call fn cuMemFreeHost(at: *mut c_void) |call| {
        let mut driver = call.lock();
        call.current(&driver)?;
        driver.forbid_unsafe()?;
        let found = driver.allocations.get(&address(at)).ok_or(INVALID_VALUE)?;
        let (what, block) = (found.what, found.block);
        let What::Host(_) = what else { return Err(INVALID_VALUE) };
        driver.allocations.remove(&address(at));
        driver.drop_block(call.process, block);
        Ok(())
    }

    "cuMemHostRegister" 4000 call fn cuMemHostRegister(at: *mut c_void, bytes: usize, flags: u32)
    |call| { call.register(at, bytes, flags) }

    "cuMemHostRegister" 6050 call fn cuMemHostRegister_v2(at: *mut c_void, bytes: usize, flags: u32)
    |call| { call.register(at, bytes, flags) }

    "cuMemHostUnregister" 4000 call fn cuMemHostUnregister(at: *mut c_void) |call| {
        let mut driver = call.lock();
        call.current(&driver)?;
        driver.forbid_unsafe()?;
        let found = driver.allocations.get(&address(at)).map(|found| found.what);
        let Some(What::Registered(_)) = found else { return Err(HOST_MEMORY_NOT_REGISTERED) };
        driver.allocations.remove(&address(at));
        Ok(())
    }

    "cuMemHostGetDevicePointer" 3020 call fn cuMemHostGetDevicePointer_v2(
        to: *mut u64, at: *mut c_void, flags: u32,
    ) |call| {
        if flags != 0 { return Err(INVALID_VALUE) }
        call.host_flags(at)?;
        put(to, address(at))
    }

    "cuMemHostGetFlags" 2030 call fn cuMemHostGetFlags(to: *mut u32, at: *mut c_void) |call| {
        put(to, call.host_flags(at)?)
    }

    "cuPointerGetAttribute" 4000 call fn cuPointerGetAttribute(
        to: *mut c_void, attribute: u32, at: u64,
    ) |call| { call.lock().pointer_attribute(to, attribute, at) }

    "cuPointerGetAttributes" 7000 call fn cuPointerGetAttributes(
        count: u32, attributes: *const u32, to: *const *mut c_void, at: u64,
    ) |call| {
        let driver = call.lock();
        for index in 0..count as usize {
            let (attribute, to) = (get_at(attributes, index)?, get_at(to, index)?);
            driver.pointer_attribute_or_zero(to, attribute, at)?;
        }
        Ok(())
    }

    "cuPointerSetAttribute" 6000 call fn cuPointerSetAttribute(
        value: *const u32, attribute: u32, at: u64,
    ) |call| {
        const SYNC_OPERATIONS: u32 = 6;
        let mut driver = call.lock();
        let start = driver.allocation(at).ok_or(INVALID_VALUE)?.0;
        if attribute != SYNC_OPERATIONS { return Err(INVALID_VALUE) }
        let on = get(value)? != 0;
        driver.allocations.get_mut(&start).ok_or(INVALID_VALUE)?.sync_operations = on;
        Ok(())
    }
}
