//! Primary contexts: one per device and process, shared by all who hold it.

use std::ffi::c_int;

use crate::calls::{Call, exports};
use crate::handles::Handle;
use crate::pointers::put;
use crate::result::{INVALID_CONTEXT, INVALID_VALUE, Outcome};

impl Call {
    pub(crate) fn retain(&self, to: *mut Handle, device: c_int) -> Outcome {
        let mut driver = self.lock();
        let device = self.needs_device(&driver, device)?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        let context = match driver.primaries.get(device).copied().flatten() {
            Some(context) => context,
            None => {
                let flags = driver.primary_flags.get(device).copied().unwrap_or(0);
                let context = self.make_context(&mut driver, device, flags)?;
                if let Some(primary) = driver.primaries.get_mut(device) {
                    *primary = Some(context);
                }
                context
            }
        };
        driver.context_mut(context)?.holders += 1;
        put(to, context)
    }

    /// Lets one holder go, or all at once; with the last one the context ends.
    pub(crate) fn release(&self, device: c_int, all: bool) -> Outcome {
        let mut driver = self.lock();
        let (device, _) = driver.device(device)?;
        let primary = driver.primaries.get(device).copied().flatten();
        let Some(handle) = primary else {
            return if all { Ok(()) } else { Err(INVALID_CONTEXT) };
        };
        let context = driver.context_mut(handle)?;
        context.holders = if all { 0 } else { context.holders.saturating_sub(1) };
        if context.holders > 0 {
            return Ok(());
        }
        if let Some(primary) = driver.primaries.get_mut(device) {
            *primary = None;
        }
        self.end_context(&mut driver, handle)
    }

    fn set_primary_flags(&self, device: c_int, flags: u32) -> Outcome {
        let mut driver = self.lock();
        let (device, _) = driver.device(device)?;
        if let Some(kept) = driver.primary_flags.get_mut(device) {
            *kept = flags;
        }
        if let Some(context) = driver.primaries.get(device).copied().flatten() {
            driver.context_mut(context)?.flags = flags;
        }
        Ok(())
    }
}

exports! { PRIMARY;
    "cuDevicePrimaryCtxRetain" 7000 call fn cuDevicePrimaryCtxRetain(to: *mut Handle, device: c_int)
    |call| { call.retain(to, device) }

    "cuDevicePrimaryCtxRelease" 7000 call fn cuDevicePrimaryCtxRelease(device: c_int) |call| {
        call.release(device, false)
    }

    "cuDevicePrimaryCtxRelease" 11000 call fn cuDevicePrimaryCtxRelease_v2(device: c_int) |call| {
        call.release(device, false)
    }

    "cuDevicePrimaryCtxReset" 7000 call fn cuDevicePrimaryCtxReset(device: c_int) |call| {
        call.release(device, true)
    }

    "cuDevicePrimaryCtxReset" 11000 call fn cuDevicePrimaryCtxReset_v2(device: c_int) |call| {
        call.release(device, true)
    }

    "cuDevicePrimaryCtxSetFlags" 7000 call fn cuDevicePrimaryCtxSetFlags(device: c_int, flags: u32)
    |call| { call.set_primary_flags(device, flags) }

    "cuDevicePrimaryCtxSetFlags" 11000 call fn cuDevicePrimaryCtxSetFlags_v2(
        device: c_int, flags: u32,
    ) |call| { call.set_primary_flags(device, flags) }

    "cuDevicePrimaryCtxGetState" 7000 call fn cuDevicePrimaryCtxGetState(
        device: c_int, flags: *mut u32, active: *mut c_int,
    ) |call| {
        let driver = call.lock();
        let (device, _) = driver.device(device)?;
        let primary = driver.primaries.get(device).copied().flatten();
        put(flags, driver.primary_flags.get(device).copied().unwrap_or(0))?;
        put(active, c_int::from(primary.is_some()))
    }
}
