//! Pools of other processes: a file descriptor stands for the pool, a token for memory in it.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;

use crate::calls::exports;
use crate::handles::Handle;
use crate::layouts::{Location, PoolProperties, Token};
use crate::mapping;
use crate::memory::What;
use crate::pointers::{get, put};
use crate::pool::{PINNED, Pool};
use crate::result::{Error, INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const DESCRIPTOR: c_int = 1;

/// What a file begins with that stands for a pool; the index of its GPU follows.
const MARK: [u8; 8] = *b"cudapool";

fn write(gpu: u32) -> Result<File, Error> {
    let file = mapping::memory_file(0).ok_or(OPERATING_SYSTEM)?;
    let bytes = [MARK, u64::from(gpu).to_le_bytes()].concat();
    file.write_all_at(&bytes, 0).map_err(|_| OPERATING_SYSTEM)?;
    Ok(file)
}

fn read(fd: c_int) -> Result<u32, Error> {
    let file = mapping::duplicate(fd).ok_or(INVALID_VALUE)?;
    let (mut mark, mut gpu) = ([0; 8], [0; 8]);
    file.read_exact_at(&mut mark, 0).map_err(|_| INVALID_VALUE)?;
    file.read_exact_at(&mut gpu, 8).map_err(|_| INVALID_VALUE)?;
    if mark != MARK {
        return Err(INVALID_VALUE);
    }
    u32::try_from(u64::from_le_bytes(gpu)).map_err(|_| INVALID_VALUE)
}

exports! { POOL_SHARING;
    "cuMemPoolExportToShareableHandle" 11020 call fn cuMemPoolExportToShareableHandle(
        to: *mut c_int, pool: Handle, kind: c_int, _flags: u64,
    ) |call| {
        let driver = call.lock();
        let pool = driver.pool(pool)?;
        if kind != DESCRIPTOR { return Err(NOT_SUPPORTED) }
        if pool.properties.handle_types & DESCRIPTOR == 0 || to.is_null() {
            return Err(INVALID_VALUE);
        }
        let gpu = driver.devices.get(pool.device).map_or(0, |device| device.place.gpu);
        put(to, write(gpu)?.into_raw_fd())
    }

    // The descriptor itself is passed in place of a pointer.
    "cuMemPoolImportFromShareableHandle" 11020 call fn cuMemPoolImportFromShareableHandle(
        to: *mut Handle, handle: *mut c_void, kind: c_int, _flags: u64,
    ) |call| {
        if kind != DESCRIPTOR { return Err(NOT_SUPPORTED) }
        let gpu = read(c_int::try_from(handle.addr()).map_err(|_| INVALID_VALUE)?)?;
        let mut driver = call.lock();
        let mut devices = driver.devices.iter();
        let device = devices.position(|device| device.place.gpu == gpu).ok_or(INVALID_VALUE)?;
        let id = c_int::try_from(device).unwrap_or(0);
        let location = Location { kind: Location::DEVICE, id };
        let properties = PoolProperties { kind: PINNED, location, ..PoolProperties::default() };
        let mut pool = Pool::new(device, properties);
        pool.imported = true;
        put(to, driver.pools.insert(pool))
    }

    "cuMemPoolExportPointer" 11020 call fn cuMemPoolExportPointer(to: *mut Token, address: u64)
    |call| {
        let mut driver = call.lock();
        let found = driver.allocations.get(&address).ok_or(INVALID_VALUE)?;
        let What::Pool(pool) = found.what else { return Err(INVALID_VALUE) };
        if driver.pool(pool)?.properties.handle_types == 0 { return Err(INVALID_VALUE) }
        put(to, driver.offer(call.process, address)?)
    }

    "cuMemPoolImportPointer" 11020 call fn cuMemPoolImportPointer(
        to: *mut u64, pool: Handle, token: *const Token,
    ) |call| {
        let mut driver = call.lock();
        let context = call.current(&driver)?.0;
        if !driver.pool(pool)?.imported || to.is_null() { return Err(INVALID_VALUE) }
        put(to, driver.open(call.process, context, &get(token)?, What::Imported)?)
    }
}
