//! What a context is set to: flags, limits, caches, access to other contexts.

use std::ffi::c_int;

use fake_gpu::MemoryKind;

use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::handles::Handle;
use crate::memory::GRANULARITY;
use crate::pointers::{put, put_if};
use crate::result::{
    INVALID_VALUE, Outcome, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED,
    PEER_ACCESS_UNSUPPORTED, UNSUPPORTED_LIMIT,
};

/// Limits that are known, and their values at first.
fn first_limit(limit: u32) -> Option<usize> {
    match limit {
        0 => Some(1024),
        1 => Some(1 << 20),
        2 => Some(8 << 20),
        3 => Some(2),
        4 => Some(2048),
        5 => Some(64),
        6 => Some(0),
        _ => None,
    }
}

/// `CU_LIMIT_MALLOC_HEAP_SIZE`.
const HEAP: u32 = 2;

impl Call {
    /// Gives the thread's context a heap of so many bytes beyond the first ones, which are a part of it.
    fn make_heap(&self, driver: &mut Driver, bytes: u64) -> Outcome {
        let context = self.current_mut(driver)?;
        let (device, before) = (context.device, context.heap.take());
        if let Some(before) = before {
            driver.drop_block(self.process, before);
        }
        if bytes > 0 {
            let size = bytes.next_multiple_of(GRANULARITY);
            let kind = MemoryKind::Context;
            let heap = driver.make_block(self.process, device, kind, size, false)?;
            self.current_mut(driver)?.heap = Some(heap);
        }
        Ok(())
    }
}

exports! { CONTEXT_SETTINGS;
    "cuCtxGetFlags" 7000 call fn cuCtxGetFlags(to: *mut u32) |call| {
        put(to, call.current(&call.lock())?.1.flags)
    }

    "cuCtxSetFlags" 12010 call fn cuCtxSetFlags(flags: u32) |call| {
        call.current_mut(&mut call.lock())?.flags = flags;
        Ok(())
    }

    "cuCtxSetLimit" 3010 call fn cuCtxSetLimit(limit: u32, value: usize) |call| {
        let mut driver = call.lock();
        let context = call.current_mut(&mut driver)?;
        let first = first_limit(limit).ok_or(UNSUPPORTED_LIMIT)?;
        context.limits.insert(limit, value);
        if limit == HEAP { call.make_heap(&mut driver, value.saturating_sub(first) as u64) } else { Ok(()) }
    }

    "cuCtxGetLimit" 3010 call fn cuCtxGetLimit(to: *mut usize, limit: u32) |call| {
        let driver = call.lock();
        let (_, context) = call.current(&driver)?;
        let first = first_limit(limit).ok_or(UNSUPPORTED_LIMIT)?;
        put(to, context.limits.get(&limit).copied().unwrap_or(first))
    }

    "cuCtxGetCacheConfig" 3020 call fn cuCtxGetCacheConfig(to: *mut u32) |call| {
        put(to, call.current(&call.lock())?.1.cache)
    }

    "cuCtxSetCacheConfig" 3020 call fn cuCtxSetCacheConfig(config: u32) |call| {
        call.current_mut(&mut call.lock())?.cache = config;
        Ok(())
    }

    "cuCtxGetSharedMemConfig" 4020 call fn cuCtxGetSharedMemConfig(to: *mut u32) |call| {
        put(to, call.current(&call.lock())?.1.shared_banks)
    }

    "cuCtxSetSharedMemConfig" 4020 call fn cuCtxSetSharedMemConfig(config: u32) |call| {
        call.current_mut(&mut call.lock())?.shared_banks = config;
        Ok(())
    }

    "cuCtxGetStreamPriorityRange" 5050 call fn cuCtxGetStreamPriorityRange(
        least: *mut c_int, greatest: *mut c_int,
    ) |call| {
        call.current(&call.lock())?;
        put_if(least, 0);
        put_if(greatest, -5);
        Ok(())
    }

    "cuCtxResetPersistingL2Cache" 11000 call fn cuCtxResetPersistingL2Cache() |call| {
        call.current(&call.lock()).map(|_| ())
    }

    "cuCtxGetExecAffinity" 11040 call fn cuCtxGetExecAffinity(_to: *mut u8, _kind: u32) |call| {
        call.current(&call.lock())?;
        Err(crate::result::UNSUPPORTED_EXEC_AFFINITY)
    }

    "cuCtxEnablePeerAccess" 4000 call fn cuCtxEnablePeerAccess(peer: Handle, flags: u32) |call| {
        let mut driver = call.lock();
        let device = driver.context(peer)?.device;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let context = call.current_mut(&mut driver)?;
        if context.device == device || context.place.instance.is_some() {
            return Err(PEER_ACCESS_UNSUPPORTED);
        }
        if context.peers.contains(&peer) {
            return Err(PEER_ACCESS_ALREADY_ENABLED);
        }
        context.peers.push(peer);
        Ok(())
    }

    "cuCtxDisablePeerAccess" 4000 call fn cuCtxDisablePeerAccess(peer: Handle) |call| {
        let mut driver = call.lock();
        driver.context(peer)?;
        let context = call.current_mut(&mut driver)?;
        let at = context.peers.iter().position(|other| *other == peer);
        context.peers.swap_remove(at.ok_or(PEER_ACCESS_NOT_ENABLED)?);
        Ok(())
    }
}
