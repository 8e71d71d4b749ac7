//! Contexts: made, current on threads, destroyed. Each takes memory of its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;

use fake_gpu::{Claim, MemoryKind, Place};

use crate::calls::{Call, exports};
use crate::driver::{Driver, needs_reachable};
use crate::handles::Handle;
use crate::pointers::{get, put, put_if};
use crate::result::{
    CONTEXT_IS_DESTROYED, DEVICE_UNAVAILABLE, Error, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED,
    OUT_OF_MEMORY, Outcome,
};
use crate::stream::Stream;

/// A context.
pub(crate) struct Context {
    /// Index of the device.
    pub(crate) device: usize,
    pub(crate) place: Place,
    claim: Claim,
    id: u64,
    pub(crate) flags: u32,
    api: u32,
    /// Holders of a primary context; 0 for others.
    pub(crate) holders: u32,
    /// The stream that goes in step with all that are not non-blocking.
    pub(crate) legacy: Handle,
    /// Pieces of work put into it.
    pub(crate) legacy_work: u64,
    /// Pieces of work put into all blocking streams.
    pub(crate) blocking_work: u64,
    /// Default streams of threads, by the threads' numbers.
    pub(crate) per_thread: BTreeMap<u64, Handle>,
    /// Blocks for small allocations.
    pub(crate) small_blocks: Vec<Handle>,
    pub(crate) limits: BTreeMap<u32, usize>,
    /// The heap of kernels, where it is larger than at first.
    pub(crate) heap: Option<Handle>,
    pub(crate) cache: u32,
    pub(crate) shared_banks: u32,
    pub(crate) peers: Vec<Handle>,
}

/// Overrides what a context takes, in MiB.
const CONTEXT_VARIABLE: &str = "HOTPOT_FAKE_CONTEXT_MIB";

/// The version of the API that contexts report: cuda.h says 3020 for those made by `_v2`.
const API_VERSION: u32 = 3020;

thread_local! {
    /// The contexts of the thread, the current one last. 0 is no context.
    static STACK: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// The current context of the thread, alive or not.
fn top() -> Option<Handle> {
    STACK.with_borrow(|stack| stack.last().copied()).filter(|handle| *handle != 0)
}

impl Driver {
    pub(crate) fn context(&self, handle: Handle) -> Result<&Context, Error> {
        let gone =
            if self.contexts.is_kind(handle) { CONTEXT_IS_DESTROYED } else { INVALID_CONTEXT };
        self.contexts.get(handle).ok_or(gone)
    }

    pub(crate) fn context_mut(&mut self, handle: Handle) -> Result<&mut Context, Error> {
        self.contexts.get_mut(handle).ok_or(INVALID_CONTEXT)
    }
}

impl Call {
    /// The thread's context, whose GPU the driver still reaches.
    pub(crate) fn current<'a>(&self, driver: &'a Driver) -> Result<(Handle, &'a Context), Error> {
        let handle = top().ok_or(INVALID_CONTEXT)?;
        let context = driver.context(handle)?;
        let device = driver.devices.get(context.device).ok_or(INVALID_CONTEXT)?;
        needs_reachable(&self.state, device)?;
        Ok((handle, context))
    }

    /// As [`Call::current`], to be changed.
    pub(crate) fn current_mut<'a>(&self, driver: &'a mut Driver) -> Result<&'a mut Context, Error> {
        let (handle, _) = self.current(driver)?;
        driver.context_mut(handle)
    }

    /// Makes a context; its device must allow one.
    pub(crate) fn make_context(
        &self,
        driver: &mut Driver,
        device: usize,
        flags: u32,
    ) -> Result<Handle, Error> {
        let on = driver.devices.get(device).ok_or(INVALID_VALUE)?;
        let (place, facts) = (on.place, on.facts);
        self.needs_compute_mode(place)?;
        let mib = std::env::var(CONTEXT_VARIABLE).ok().and_then(|text| text.parse().ok());
        let bytes = mib.unwrap_or(facts.context_mib()) << 20;
        let claim = self.process.gpus.take(place, MemoryKind::Context, bytes);
        let claim = claim.map_err(|_| OUT_OF_MEMORY)?;
        let id = driver.next_serial();
        let context = driver.contexts.insert(Context {
            device,
            place,
            claim,
            id,
            flags,
            api: API_VERSION,
            holders: 0,
            legacy: 0,
            legacy_work: 0,
            blocking_work: 0,
            per_thread: BTreeMap::new(),
            small_blocks: Vec::new(),
            limits: BTreeMap::new(),
            heap: None,
            cache: 0,
            shared_banks: 0,
            peers: Vec::new(),
        });
        let legacy = driver.streams.insert(Stream::legacy(context, id));
        driver.context_mut(context)?.legacy = legacy;
        Ok(context)
    }

    fn needs_compute_mode(&self, place: Place) -> Outcome {
        const PROHIBITED: u32 = 2;
        const EXCLUSIVE: u32 = 3;
        let mode = self.state.gpu(place.gpu).map_or(0, |gpu| gpu.compute_mode);
        let mine = std::process::id();
        let taken = || {
            let held = self.process.gpus.held();
            held.iter().any(|held| held.place.gpu == place.gpu && held.pid != mine)
        };
        let refused = mode == PROHIBITED || mode == EXCLUSIVE && taken();
        if refused { Err(DEVICE_UNAVAILABLE) } else { Ok(()) }
    }

    /// Ends a context and all that is in it.
    pub(crate) fn end_context(&self, driver: &mut Driver, handle: Handle) -> Outcome {
        let context = driver.context(handle)?;
        let (claim, heap) = (context.claim, context.heap);
        if let Some(heap) = heap {
            driver.drop_block(self.process, heap);
        }
        for stream in driver.streams.find(|stream| stream.context == handle) {
            self.end_stream(driver, stream);
        }
        for event in driver.events.find(|event| event.context == handle) {
            driver.events.remove(event);
        }
        for module in driver.modules.find(|module| module.context == handle) {
            self.unload(driver, module);
        }
        self.free_all_of(driver, handle);
        driver.contexts.remove(handle);
        self.process.gpus.give(claim);
        Ok(())
    }

    fn create(&self, to: *mut Handle, flags: u32, device: c_int) -> Outcome {
        let mut driver = self.lock();
        let device = self.needs_device(&driver, device)?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        let context = self.make_context(&mut driver, device, flags)?;
        STACK.with_borrow_mut(|stack| stack.push(context));
        put(to, context)
    }

    fn destroy(&self, context: Handle) -> Outcome {
        let mut driver = self.lock();
        driver.contexts.used(context);
        if driver.context(context)?.holders > 0 {
            return Err(INVALID_CONTEXT);
        }
        self.end_context(&mut driver, context)?;
        STACK.with_borrow_mut(|stack| {
            if stack.last() == Some(&context) {
                stack.pop();
            }
        });
        Ok(())
    }

    fn push(&self, context: Handle) -> Outcome {
        let driver = self.lock();
        driver.contexts.used(context);
        driver.context(context)?;
        drop(driver);
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    fn pop(&self, to: *mut Handle) -> Outcome {
        let popped = STACK.with_borrow_mut(Vec::pop).ok_or(INVALID_CONTEXT)?;
        put_if(to, popped);
        Ok(())
    }
}

/// What `cuCtxCreate_v4` is told beside flags and device.
#[derive(Clone, Copy)]
#[repr(C)]
struct CreateParams {
    affinity: *const u8,
    affinities: c_int,
    graphics: *const u8,
}

exports! { CONTEXT;
    "cuCtxCreate" 2000 call fn cuCtxCreate(to: *mut Handle, flags: u32, device: c_int) |call| {
        call.create(to, flags, device)
    }

    "cuCtxCreate" 3020 call fn cuCtxCreate_v2(to: *mut Handle, flags: u32, device: c_int) |call| {
        call.create(to, flags, device)
    }

    "cuCtxCreate" 11040 call fn cuCtxCreate_v3(
        to: *mut Handle, _affinity: *const u8, affinities: c_int, flags: u32, device: c_int,
    ) |call| {
        if affinities > 0 { return Err(crate::result::UNSUPPORTED_EXEC_AFFINITY) }
        call.create(to, flags, device)
    }

    "cuCtxCreate" 12050 call fn cuCtxCreate_v4(
        to: *mut Handle, params: *const CreateParams, flags: u32, device: c_int,
    ) |call| {
        if !params.is_null() {
            let params = get(params)?;
            if params.affinities > 0 && !params.affinity.is_null() {
                return Err(crate::result::UNSUPPORTED_EXEC_AFFINITY);
            }
            if !params.graphics.is_null() {
                return Err(NOT_SUPPORTED);
            }
        }
        call.create(to, flags, device)
    }

    "cuCtxDestroy" 2000 call fn cuCtxDestroy(context: Handle) |call| { call.destroy(context) }

    "cuCtxDestroy" 4000 call fn cuCtxDestroy_v2(context: Handle) |call| { call.destroy(context) }

    "cuCtxDetach" 2000 call fn cuCtxDetach(context: Handle) |call| { call.destroy(context) }

    "cuCtxPushCurrent" 2000 call fn cuCtxPushCurrent(context: Handle) |call| { call.push(context) }

    "cuCtxPushCurrent" 4000 call fn cuCtxPushCurrent_v2(context: Handle) |call| {
        call.push(context)
    }

    "cuCtxPopCurrent" 2000 call fn cuCtxPopCurrent(to: *mut Handle) |call| { call.pop(to) }

    "cuCtxPopCurrent" 4000 call fn cuCtxPopCurrent_v2(to: *mut Handle) |call| { call.pop(to) }

    "cuCtxSetCurrent" 4000 call fn cuCtxSetCurrent(context: Handle) |call| {
        if context != 0 {
            let driver = call.lock();
            driver.contexts.used(context);
            driver.context(context)?;
        }
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    }

    "cuCtxGetCurrent" 4000 call fn cuCtxGetCurrent(to: *mut Handle) |_| {
        put(to, top().unwrap_or(0))
    }

    "cuCtxGetDevice" 2000 call fn cuCtxGetDevice(to: *mut c_int) |call| {
        let driver = call.lock();
        let (_, context) = call.current(&driver)?;
        put(to, c_int::try_from(context.device).unwrap_or(0))
    }

    "cuCtxGetDevice" 13000 call fn cuCtxGetDevice_v2(to: *mut c_int, context: Handle) |call| {
        let driver = call.lock();
        let context = if context == 0 { call.current(&driver)?.1 } else { driver.context(context)? };
        put(to, c_int::try_from(context.device).unwrap_or(0))
    }

    "cuCtxSynchronize" 2000 call fn cuCtxSynchronize() |call| {
        let context = call.current(&call.lock())?.0;
        call.synchronise_context(context)
    }

    "cuCtxSynchronize" 13000 call fn cuCtxSynchronize_v2(context: Handle) |call| {
        let context = if context == 0 { call.current(&call.lock())?.0 } else { context };
        call.lock().contexts.used(context);
        call.lock().context(context)?;
        call.synchronise_context(context)
    }

    "cuCtxGetId" 12000 call fn cuCtxGetId(context: Handle, to: *mut u64) |call| {
        let driver = call.lock();
        let context = if context == 0 { call.current(&driver)?.1 } else { driver.context(context)? };
        put(to, context.id)
    }

    "cuCtxGetApiVersion" 3020 call fn cuCtxGetApiVersion(context: Handle, to: *mut u32) |call| {
        let driver = call.lock();
        let context = if context == 0 { call.current(&driver)?.1 } else { driver.context(context)? };
        put(to, context.api)
    }
}
