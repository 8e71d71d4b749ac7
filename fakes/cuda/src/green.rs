//! Green contexts: parts of a device's primary context. Here they have all of it, whatever resources they
//! were given.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::calls::{Call, exports};
use crate::handles::Handle;
use crate::pointers::put;
use crate::result::{INVALID_CONTEXT, INVALID_VALUE, Outcome};

/// Device and primary context of each, by its handle.
static GREEN: Mutex<BTreeMap<u64, (c_int, Handle)>> = Mutex::new(BTreeMap::new());

/// The first handle; no other is near.
const FIRST: u64 = 0x6000_0000;

impl Call {
    fn make_green(&self, to: *mut u64, device: c_int) -> Outcome {
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        let mut primary: Handle = 0;
        self.retain(&raw mut primary, device)?;
        let mut green = GREEN.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = green.last_key_value().map_or(FIRST, |(last, _)| last + 16);
        green.insert(handle, (device, primary));
        put(to, handle)
    }

    fn end_green(&self, handle: u64) -> Outcome {
        let found = GREEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        let (device, _) = found.ok_or(INVALID_CONTEXT)?;
        self.release(device, false)
    }
}

exports! { GREEN_CONTEXTS;
    "cuGreenCtxCreate" 12040 call fn cuGreenCtxCreate(
        to: *mut u64, _resources: *mut c_void, device: c_int, _flags: u32,
    ) |call| { call.make_green(to, device) }

    "cuGreenCtxDestroy" 12040 call fn cuGreenCtxDestroy(green: u64) |call| { call.end_green(green) }

    "cuCtxFromGreenCtx" 12040 call fn cuCtxFromGreenCtx(to: *mut Handle, green: u64) |_| {
        let known = GREEN.lock().unwrap_or_else(PoisonError::into_inner);
        put(to, known.get(&green).ok_or(INVALID_CONTEXT)?.1)
    }
}
