//! IPC handles of memory and of events.

use crate::calls::exports;
use crate::handles::Handle;
use crate::layouts::Token;
use crate::memory::What;
use crate::pointers::put;
use crate::result::{INVALID_HANDLE, INVALID_VALUE, MAP_FAILED, NOT_SUPPORTED};

const LAZY_PEER_ACCESS: u32 = 1;

exports! { IPC;
    "cuIpcGetMemHandle" 4010 call fn cuIpcGetMemHandle(to: *mut Token, address: u64) |call| {
        let mut driver = call.lock();
        call.current(&driver)?;
        driver.forbid_unsafe()?;
        let found = driver.allocation(address).ok_or(INVALID_VALUE)?.1;
        if found.what != What::Plain { return Err(INVALID_VALUE) }
        put(to, driver.offer(call.process, address)?)
    }

    "cuIpcOpenMemHandle" 4010 call fn cuIpcOpenMemHandle(to: *mut u64, token: Token, flags: u32)
    |call| { call.open_memory(to, &token, flags) }

    "cuIpcOpenMemHandle" 11000 call fn cuIpcOpenMemHandle_v2(to: *mut u64, token: Token, flags: u32)
    |call| { call.open_memory(to, &token, flags) }

    "cuIpcCloseMemHandle" 4010 call fn cuIpcCloseMemHandle(address: u64) |call| {
        let mut driver = call.lock();
        call.current(&driver)?;
        let found = driver.allocations.get(&address).ok_or(INVALID_VALUE)?;
        if found.what != What::Opened { return Err(INVALID_VALUE) }
        driver.close_opened(call.process, address)
    }

    // Events of other processes would need their queues; nothing here can wait for those.
    "cuIpcGetEventHandle" 4010 call fn cuIpcGetEventHandle(_to: *mut Token, event: Handle) |call| {
        const INTERPROCESS: u32 = 4;
        let driver = call.lock();
        if driver.event(event)?.flags & INTERPROCESS == 0 { return Err(INVALID_HANDLE) }
        Err(NOT_SUPPORTED)
    }

    "cuIpcOpenEventHandle" 4010 call fn cuIpcOpenEventHandle(_to: *mut Handle, _token: Token) |call| {
        call.current(&call.lock())?;
        Err(MAP_FAILED)
    }
}

impl crate::calls::Call {
    fn open_memory(&self, to: *mut u64, token: &Token, flags: u32) -> crate::result::Outcome {
        let mut driver = self.lock();
        let context = self.current(&driver)?.0;
        driver.forbid_unsafe()?;
        if flags != LAZY_PEER_ACCESS || to.is_null() {
            return Err(INVALID_VALUE);
        }
        put(to, driver.open(self.process, context, token, What::Opened)?)
    }
}
