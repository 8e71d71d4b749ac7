//! Functions on memory pools, and allocating in the order of streams.

use std::ffi::{c_int, c_void};

use crate::action::Action;
use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::graph::NodeKind;
use crate::handles::Handle;
use crate::layouts::{AccessDescription, Location, PoolProperties};
use crate::pointers::{get, get_list, put};
use crate::pool::{MANAGED, PINNED, Pool};
use crate::result::{Error, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, Outcome};

impl Call {
    fn create_pool(&self, to: *mut Handle, properties: *const PoolProperties) -> Outcome {
        let properties = get(properties)?;
        let mut driver = self.lock();
        if to.is_null() || properties.kind != PINNED {
            return Err(INVALID_VALUE);
        }
        let device = match properties.location.kind {
            Location::DEVICE => driver.device(properties.location.id)?.0,
            Location::HOST | Location::HOST_NUMA | Location::HOST_NUMA_CURRENT => 0,
            _ => return Err(INVALID_VALUE),
        };
        put(to, driver.pools.insert(Pool::new(device, properties)))
    }

    /// Allocates from a pool, or from the current one of the stream's device.
    fn allocate_async(
        &self,
        to: *mut u64,
        bytes: usize,
        pool: Option<Handle>,
        stream: Handle,
    ) -> Outcome {
        let mut driver = self.lock();
        let stream = self.resolve(&mut driver, stream)?;
        let context = driver.stream(stream)?.context;
        let device = driver.context(context)?.device;
        let current = driver.device_pools.get(device).map(|(_, current)| *current);
        let pool = pool.or(current).ok_or(INVALID_VALUE)?;
        if to.is_null() || bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if driver.takes_captured(stream)? {
            let device = driver.pool(pool)?.device;
            let (address, node) = driver.graph_allocation(device, bytes as u64)?;
            driver.capture(stream, node)?;
            return put(to, address);
        }
        put(to, driver.take_from_pool(self.process, context, pool, bytes as u64)?)
    }

    fn free_async(&self, address: u64, stream: Handle) -> Outcome {
        let mut driver = self.lock();
        let stream = self.resolve(&mut driver, stream)?;
        if driver.takes_captured(stream)? {
            return driver.capture(stream, NodeKind::Free(address)).map(|_| ());
        }
        driver.allocations.get(&address).ok_or(INVALID_VALUE)?;
        drop(driver);
        self.act(stream, Action::Free(address))
    }
}

/// Reads or writes one attribute of a pool by its number in cuda.h.
fn set_attribute(pool: &mut Pool, attribute: u32, value: *const c_void) -> Outcome {
    match attribute {
        1..=3 => {
            if let Some(flag) = pool.reuse.get_mut(attribute as usize - 1) {
                *flag = get(value.cast())?;
            }
        }
        4 => pool.threshold = get(value.cast())?,
        // The marks of most memory can only be set back.
        6 | 8 => {
            if get::<u64>(value.cast())? != 0 {
                return Err(INVALID_VALUE);
            }
            if attribute == 6 {
                pool.reserved_high = pool.reserved;
            } else {
                pool.used_high = pool.used;
            }
        }
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

fn get_attribute(pool: &Pool, attribute: u32, to: *mut c_void) -> Outcome {
    let properties = &pool.properties;
    match attribute {
        1..=3 => put(to.cast(), pool.reuse.get(attribute as usize - 1).copied().unwrap_or(0)),
        4 => put(to.cast(), pool.threshold),
        5 => put(to.cast(), pool.reserved),
        6 => put(to.cast(), pool.reserved_high),
        7 => put(to.cast(), pool.used),
        8 => put(to.cast(), pool.used_high),
        9 => put(to.cast(), properties.kind),
        10 => put(to.cast(), properties.handle_types),
        11 => put(to.cast(), properties.location.id),
        12 => put(to.cast(), properties.location.kind),
        13 => put(to.cast(), properties.size_max as u64),
        14 => put(to.cast(), 0),
        _ => Err(INVALID_VALUE),
    }
}

impl Driver {
    /// The device of a location that is one.
    fn located(&self, location: Location) -> Result<usize, Error> {
        if location.kind == Location::DEVICE {
            Ok(self.device(location.id)?.0)
        } else {
            Err(NOT_SUPPORTED)
        }
    }

    fn pools_of(&self, device: usize) -> Result<(Handle, Handle), Error> {
        self.device_pools.get(device).copied().ok_or(INVALID_DEVICE)
    }

    /// The pool of managed memory that comes with a device.
    fn managed_pool(&mut self, device: usize) -> Handle {
        let known = self.pools.find(|pool| pool.device == device && pool.is_managed_default());
        known.first().copied().unwrap_or_else(|| self.pools.insert(Pool::managed_of(device)))
    }

    fn set_pool(&mut self, device: usize, pool: Handle) -> Outcome {
        if self.pool(pool)?.device != device {
            return Err(INVALID_VALUE);
        }
        self.device_pools.get_mut(device).ok_or(INVALID_DEVICE)?.1 = pool;
        Ok(())
    }
}

exports! { POOL;
    "cuDeviceGetDefaultMemPool" 11020 call fn cuDeviceGetDefaultMemPool(to: *mut Handle, device: c_int)
    |call| {
        let driver = call.lock();
        let (device, _) = driver.device(device)?;
        put(to, driver.pools_of(device)?.0)
    }

    "cuDeviceGetMemPool" 11020 call fn cuDeviceGetMemPool(to: *mut Handle, device: c_int) |call| {
        let driver = call.lock();
        let (device, _) = driver.device(device)?;
        put(to, driver.pools_of(device)?.1)
    }

    "cuDeviceSetMemPool" 11020 call fn cuDeviceSetMemPool(device: c_int, pool: Handle) |call| {
        let mut driver = call.lock();
        let (device, _) = driver.device(device)?;
        driver.set_pool(device, pool)
    }

    "cuMemGetDefaultMemPool" 13000 call fn cuMemGetDefaultMemPool(
        to: *mut Handle, location: *const Location, kind: c_int,
    ) |call| {
        let mut driver = call.lock();
        let device = driver.located(get(location)?)?;
        let pool = if kind == MANAGED { driver.managed_pool(device) } else { driver.pools_of(device)?.0 };
        put(to, pool)
    }

    "cuMemGetMemPool" 13000 call fn cuMemGetMemPool(
        to: *mut Handle, location: *const Location, _kind: c_int,
    ) |call| {
        let driver = call.lock();
        put(to, driver.pools_of(driver.located(get(location)?)?)?.1)
    }

    "cuMemSetMemPool" 13000 call fn cuMemSetMemPool(
        location: *const Location, _kind: c_int, pool: Handle,
    ) |call| {
        let mut driver = call.lock();
        let device = driver.located(get(location)?)?;
        driver.set_pool(device, pool)
    }

    "cuMemPoolCreate" 11020 call fn cuMemPoolCreate(
        to: *mut Handle, properties: *const PoolProperties,
    ) |call| { call.create_pool(to, properties) }

    "cuMemPoolDestroy" 11020 call fn cuMemPoolDestroy(pool: Handle) |call| {
        let mut driver = call.lock();
        if driver.pool(pool)?.is_default { return Err(INVALID_VALUE) }
        driver.end_pool(call.process, pool);
        Ok(())
    }

    "cuMemPoolSetAttribute" 11020 call fn cuMemPoolSetAttribute(
        pool: Handle, attribute: u32, value: *const c_void,
    ) |call| { set_attribute(call.lock().pool_mut(pool)?, attribute, value) }

    "cuMemPoolGetAttribute" 11020 call fn cuMemPoolGetAttribute(
        pool: Handle, attribute: u32, to: *mut c_void,
    ) |call| { get_attribute(call.lock().pool(pool)?, attribute, to) }

    "cuMemPoolTrimTo" 11020 call fn cuMemPoolTrimTo(pool: Handle, keep: usize) |call| {
        let mut driver = call.lock();
        driver.pool(pool)?;
        driver.trim_pool(call.process, pool, keep as u64);
        Ok(())
    }

    "cuMemPoolSetAccess" 11020 call fn cuMemPoolSetAccess(
        pool: Handle, list: *const AccessDescription, count: usize,
    ) |call| {
        let list = get_list(list, count)?;
        let mut driver = call.lock();
        for access in &list {
            driver.located(access.location)?;
        }
        let rights = list.iter().map(|access| (access.location.id, access.flags));
        driver.pool_mut(pool)?.access.extend(rights);
        Ok(())
    }

    "cuMemPoolGetAccess" 11020 call fn cuMemPoolGetAccess(
        flags: *mut c_int, pool: Handle, location: *const Location,
    ) |call| {
        const READ_WRITE: c_int = 3;
        let location = get(location)?;
        let driver = call.lock();
        let device = driver.located(location)?;
        let pool = driver.pool(pool)?;
        let own = if pool.device == device { READ_WRITE } else { 0 };
        put(flags, pool.access.get(&location.id).copied().unwrap_or(own))
    }

    "cuMemAllocAsync" 11020 call [cuMemAllocAsync_ptsz 11020] fn cuMemAllocAsync(
        to: *mut u64, bytes: usize, stream: Handle,
    ) |call| { call.allocate_async(to, bytes, None, stream) }

    "cuMemAllocFromPoolAsync" 11020 call [cuMemAllocFromPoolAsync_ptsz 11020] fn cuMemAllocFromPoolAsync(to: *mut u64, bytes: usize, pool: Handle, stream: Handle) |call| {
        call.lock().pool(pool)?;
        call.allocate_async(to, bytes, Some(pool), stream)
    }

    "cuMemFreeAsync" 11020 call [cuMemFreeAsync_ptsz 11020] fn cuMemFreeAsync(
        address: u64, stream: Handle,
    ) |call| { call.free_async(address, stream) }
}
