//! Functions: kernels in a module, their attributes, and how many of their blocks fit.

use std::ffi::{CString, c_char, c_int};

use crate::attributes::{SHARED_PER_BLOCK, THREADS_PER_BLOCK};
use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::handles::Handle;
use crate::image::Entry;
use crate::layouts::LaunchConfig;
use crate::pointers::{put, put_if};
use crate::result::{Error, INVALID_HANDLE, INVALID_VALUE, Outcome};

/// A function.
pub(crate) struct Function {
    module: Handle,
    pub(crate) context: Handle,
    pub(crate) entry: Entry,
    name: CString,
    dynamic_shared_most: c_int,
    /// Other attributes that were set: carveout, cluster sizes, policy.
    set: [c_int; 18],
}

/// Registers of a thread, as if every kernel used that many.
const REGISTERS_PER_THREAD: c_int = 32;

impl Function {
    pub(crate) fn new(module: Handle, context: Handle, entry: Entry) -> Self {
        let name = CString::new(entry.name.as_str()).unwrap_or_default();
        let mut set = [0; 18];
        set[9] = -1;
        Self { module, context, entry, name, dynamic_shared_most: SHARED_PER_BLOCK, set }
    }

    /// An attribute by its number in cuda.h.
    pub(crate) fn attribute(&self, number: u32) -> Result<c_int, Error> {
        match number {
            0 => Ok(THREADS_PER_BLOCK),
            4 => Ok(REGISTERS_PER_THREAD),
            5 | 6 => Ok(80),
            8 => Ok(self.dynamic_shared_most),
            other => self.set.get(other as usize).copied().ok_or(INVALID_VALUE),
        }
    }

    pub(crate) fn set_attribute(&mut self, number: u32, value: c_int) -> Outcome {
        match number {
            8 => {
                if value < 0 {
                    return Err(INVALID_VALUE);
                }
                self.dynamic_shared_most = value;
            }
            9 | 11..=15 | 17 => {
                if let Some(set) = self.set.get_mut(number as usize) {
                    *set = value;
                }
            }
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }

    pub(crate) fn parameter_count(&self) -> usize {
        self.entry.parameters.as_ref().map_or(0, Vec::len)
    }
}

impl Driver {
    pub(crate) fn function(&self, handle: Handle) -> Result<&Function, Error> {
        self.functions.get(handle).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn function_mut(&mut self, handle: Handle) -> Result<&mut Function, Error> {
        self.functions.get_mut(handle).ok_or(INVALID_HANDLE)
    }

    /// Blocks of a function that fit a multiprocessor, by threads and by shared memory in bytes.
    fn blocks_per_sm(
        &self,
        function: Handle,
        threads: c_int,
        shared: usize,
    ) -> Result<c_int, Error> {
        let context = self.function(function)?.context;
        let device = self.context(context)?.device;
        let device = self.devices.get(device).ok_or(INVALID_HANDLE)?;
        if threads <= 0 {
            return Err(INVALID_VALUE);
        }
        if threads > THREADS_PER_BLOCK {
            return Ok(0);
        }
        let warps = (threads + 31) / 32;
        let by_threads = device.threads_per_sm() / 32 / warps;
        let all = usize::try_from(device.shared_per_sm()).unwrap_or(0);
        let by_shared = all.checked_div(shared).unwrap_or(usize::MAX);
        let by_shared = c_int::try_from(by_shared).unwrap_or(c_int::MAX);
        Ok(by_threads.min(by_shared).min(device.blocks_per_sm()))
    }
}

impl Call {
    pub(crate) fn parameter(
        &self,
        function: Handle,
        index: usize,
        offset: *mut usize,
        size: *mut usize,
    ) -> Outcome {
        let driver = self.lock();
        let parameters = driver.function(function)?.entry.parameters.as_ref();
        let (at, bytes) = parameters.and_then(|all| all.get(index)).ok_or(INVALID_VALUE)?;
        put(offset, *at)?;
        put_if(size, *bytes);
        Ok(())
    }

    fn occupancy(
        &self,
        to: *mut c_int,
        function: Handle,
        threads: c_int,
        shared: usize,
    ) -> Outcome {
        let function = self.function_here(function)?;
        put(to, self.lock().blocks_per_sm(function, threads, shared)?)
    }

    fn potential(
        &self,
        grid: *mut c_int,
        block: *mut c_int,
        function: Handle,
        limit: c_int,
    ) -> Outcome {
        let function = self.function_here(function)?;
        let driver = self.lock();
        let threads = if limit > 0 { limit.min(THREADS_PER_BLOCK) } else { THREADS_PER_BLOCK };
        let blocks = driver.blocks_per_sm(function, threads, 0)?;
        let place = driver.context(driver.function(function)?.context)?.place;
        let sms = c_int::try_from(self.process.gpus.sms(place)).unwrap_or(1);
        put(grid, blocks * sms)?;
        put(block, threads)
    }
}

/// How much shared memory a block of a size takes.
type SharedOf = Option<extern "C" fn(c_int) -> usize>;

exports! { FUNCTION;
    "cuFuncGetAttribute" 2020 call fn cuFuncGetAttribute(
        to: *mut c_int, attribute: u32, function: Handle,
    ) |call| {
        let function = call.function_here(function)?;
        put(to, call.lock().function(function)?.attribute(attribute)?)
    }

    "cuFuncSetAttribute" 9000 call fn cuFuncSetAttribute(
        function: Handle, attribute: u32, value: c_int,
    ) |call| {
        let function = call.function_here(function)?;
        call.lock().function_mut(function)?.set_attribute(attribute, value)
    }

    "cuFuncSetCacheConfig" 3000 call fn cuFuncSetCacheConfig(function: Handle, _config: u32) |call| {
        call.function_here(function).map(|_| ())
    }

    "cuFuncSetSharedMemConfig" 4020 call fn cuFuncSetSharedMemConfig(function: Handle, _config: u32)
    |call| { call.function_here(function).map(|_| ()) }

    "cuFuncGetModule" 11000 call fn cuFuncGetModule(to: *mut Handle, function: Handle) |call| {
        let function = call.function_here(function)?;
        put(to, call.lock().function(function)?.module)
    }

    "cuFuncGetName" 12030 call fn cuFuncGetName(to: *mut *const c_char, function: Handle) |call| {
        let function = call.function_here(function)?;
        put(to, call.lock().function(function)?.name.as_ptr())
    }

    "cuFuncGetParamInfo" 12040 call fn cuFuncGetParamInfo(
        function: Handle, index: usize, offset: *mut usize, size: *mut usize,
    ) |call| {
        let function = call.function_here(function)?;
        call.parameter(function, index, offset, size)
    }

    "cuFuncGetParamCount" 13020 call fn cuFuncGetParamCount(function: Handle, to: *mut usize) |call| {
        let function = call.function_here(function)?;
        put(to, call.lock().function(function)?.parameter_count())
    }

    "cuFuncIsLoaded" 12040 call fn cuFuncIsLoaded(to: *mut u32, function: Handle) |call| {
        const LOADED: u32 = 1;
        call.function_here(function)?;
        put(to, LOADED)
    }

    "cuFuncLoad" 12040 call fn cuFuncLoad(function: Handle) |call| {
        call.function_here(function).map(|_| ())
    }

    "cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050 call
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        to: *mut c_int, function: Handle, threads: c_int, shared: usize,
    ) |call| { call.occupancy(to, function, threads, shared) }

    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000 call
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        to: *mut c_int, function: Handle, threads: c_int, shared: usize, _flags: u32,
    ) |call| { call.occupancy(to, function, threads, shared) }

    "cuOccupancyMaxPotentialBlockSize" 6050 call fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int, block: *mut c_int, function: Handle, _shared_of: SharedOf,
        _shared: usize, limit: c_int,
    ) |call| { call.potential(grid, block, function, limit) }

    "cuOccupancyMaxPotentialBlockSizeWithFlags" 7000 call
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut c_int, block: *mut c_int, function: Handle, _shared_of: SharedOf,
        _shared: usize, limit: c_int, _flags: u32,
    ) |call| { call.potential(grid, block, function, limit) }

    "cuOccupancyAvailableDynamicSMemPerBlock" 10020 call fn cuOccupancyAvailableDynamicSMemPerBlock(
        to: *mut usize, function: Handle, blocks: c_int, _threads: c_int,
    ) |call| {
        call.function_here(function)?;
        let blocks = usize::try_from(blocks.max(1)).unwrap_or(1);
        put(to, SHARED_PER_BLOCK as usize / blocks)
    }

    "cuOccupancyMaxPotentialClusterSize" 11070 call fn cuOccupancyMaxPotentialClusterSize(
        to: *mut c_int, function: Handle, _config: *const LaunchConfig,
    ) |call| {
        call.function_here(function)?;
        put(to, 8)
    }

    "cuOccupancyMaxActiveClusters" 11070 call fn cuOccupancyMaxActiveClusters(
        to: *mut c_int, function: Handle, _config: *const LaunchConfig,
    ) |call| {
        call.function_here(function)?;
        put(to, 16)
    }
}
