//! Plain, pitched and managed device memory.

use fake_gpu::MemoryKind;

use crate::calls::{Call, exports};
use crate::handles::Handle;
use crate::layouts::Location;
use crate::memory::{ALIGNMENT, Wanted, What};
use crate::pointers::{put, put_if};
use crate::result::{Error, INVALID_VALUE, NOT_FOUND, Outcome};

const ATTACH_GLOBAL: u32 = 1;
const ATTACH_HOST: u32 = 2;

impl Call {
    /// Allocates plain memory in the current context.
    fn plain(&self, bytes: u64) -> Result<u64, Error> {
        let mut driver = self.lock();
        let context = self.current(&driver)?.0;
        driver.forbid_unsafe()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let wanted = Wanted { bytes, kind: MemoryKind::Plain, what: What::Plain };
        driver.allocate(self.process, context, wanted)
    }

    fn free_device(&self, address: u64) -> Outcome {
        let mut driver = self.lock();
        self.current(&driver)?;
        driver.forbid_unsafe()?;
        if address == 0 {
            return Ok(());
        }
        driver.free(self.process, address)
    }

    /// Free and all memory of the current context's device, in bytes.
    fn info(&self) -> Result<(u64, u64), Error> {
        let driver = self.lock();
        let (_, context) = self.current(&driver)?;
        let total = driver.devices.get(context.device).map_or(0, |device| device.memory);
        Ok((self.process.gpus.free(context.place).min(total), total))
    }

    fn pitched(&self, width: usize, height: usize, element: u32) -> Result<(u64, usize), Error> {
        if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(INVALID_VALUE);
        }
        let pitch = width.checked_next_multiple_of(ALIGNMENT as usize).ok_or(INVALID_VALUE)?;
        let bytes = pitch.checked_mul(height).ok_or(INVALID_VALUE)?;
        Ok((self.plain(bytes as u64)?, pitch))
    }

    /// Start and size of the allocation at an address.
    fn range(&self, address: u64) -> Result<(u64, u64), Error> {
        let driver = self.lock();
        self.current(&driver)?;
        let (start, found) = driver.allocation(address).ok_or(NOT_FOUND)?;
        Ok((start, found.size))
    }
}

/// What does not fit the 32-bit forms of CUDA 2 is told as their greatest number.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

exports! { MEMORY;
    "cuMemGetInfo" 2000 call fn cuMemGetInfo(free: *mut u32, total: *mut u32) |call| {
        let (left, all) = call.info()?;
        put(free, narrow(left))?;
        put(total, narrow(all))
    }

    "cuMemGetInfo" 3020 call fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |call| {
        let (left, all) = call.info()?;
        put(free, left as usize)?;
        put(total, all as usize)
    }

    "cuMemAlloc" 2000 call fn cuMemAlloc(to: *mut u32, bytes: u32) |call| {
        // Addresses of this driver do not fit.
        call.current(&call.lock())?;
        let _ = bytes;
        put(to, 0)?;
        Err(crate::result::OUT_OF_MEMORY)
    }

    "cuMemAlloc" 3020 call fn cuMemAlloc_v2(to: *mut u64, bytes: usize) |call| {
        if to.is_null() { return Err(INVALID_VALUE) }
        put(to, call.plain(bytes as u64)?)
    }

    "cuMemAllocPitch" 3020 call fn cuMemAllocPitch_v2(
        to: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32,
    ) |call| {
        if to.is_null() || pitch.is_null() { return Err(INVALID_VALUE) }
        let (address, bytes) = call.pitched(width, height, element)?;
        put(pitch, bytes)?;
        put(to, address)
    }

    "cuMemAllocManaged" 6000 call fn cuMemAllocManaged(to: *mut u64, bytes: usize, flags: u32) |call| {
        if to.is_null() || bytes == 0 || !matches!(flags, ATTACH_GLOBAL | ATTACH_HOST) {
            return Err(INVALID_VALUE);
        }
        let mut driver = call.lock();
        let context = call.current(&driver)?.0;
        driver.forbid_unsafe()?;
        let wanted =
            Wanted { bytes: bytes as u64, kind: MemoryKind::Managed, what: What::Managed };
        put(to, driver.allocate(call.process, context, wanted)?)
    }

    "cuMemFree" 2000 call fn cuMemFree(address: u32) |call| { call.free_device(u64::from(address)) }

    "cuMemFree" 3020 call fn cuMemFree_v2(address: u64) |call| { call.free_device(address) }

    "cuMemGetAddressRange" 3020 call fn cuMemGetAddressRange_v2(
        start: *mut u64, size: *mut usize, address: u64,
    ) |call| {
        let (from, bytes) = call.range(address)?;
        put_if(start, from);
        put_if(size, bytes as usize);
        Ok(())
    }

    // Managed memory lies where everybody reaches it: nothing moves, no advice is needed.
    "cuMemPrefetchAsync" 8000 call [cuMemPrefetchAsync_ptsz 8000] fn cuMemPrefetchAsync(
        address: u64, bytes: usize, _device: i32, stream: Handle,
    ) |call| { call.prefetch(address, bytes, stream) }

    "cuMemPrefetchAsync" 12020 call [cuMemPrefetchAsync_v2_ptsz 12020] fn cuMemPrefetchAsync_v2(
        address: u64, bytes: usize, _location: Location, _flags: u32, stream: Handle,
    ) |call| { call.prefetch(address, bytes, stream) }

    "cuMemAdvise" 8000 call fn cuMemAdvise(address: u64, bytes: usize, _advice: u32, _device: i32)
    |call| { call.needs_known(address, bytes as u64) }

    "cuMemAdvise" 12020 call fn cuMemAdvise_v2(
        address: u64, bytes: usize, _advice: u32, _location: Location,
    ) |call| { call.needs_known(address, bytes as u64) }
}

impl Call {
    fn needs_known(&self, address: u64, bytes: u64) -> Outcome {
        let driver = self.lock();
        if driver.knows(address, bytes) { Ok(()) } else { Err(INVALID_VALUE) }
    }

    fn prefetch(&self, address: u64, bytes: usize, stream: Handle) -> Outcome {
        self.needs_known(address, bytes as u64)?;
        let mut driver = self.lock();
        self.resolve(&mut driver, stream).map(|_| ())
    }
}
