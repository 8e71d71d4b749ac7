//! Streams: made, destroyed, which one a handle means, and what is asked of them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use fake_gpu::Queue;

use crate::action::Action;
use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::handles::Handle;
use crate::pointers::{get, put, put_if};
use crate::result::{Error, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, Outcome};

/// Which stream of a context it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The one that goes in step with all blocking ones.
    Legacy,
    /// A thread's default stream.
    PerThread,
    /// Made by the client.
    Own,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) context: Handle,
    pub(crate) role: Role,
    pub(crate) flags: u32,
    priority: c_int,
    id: u64,
    /// Its queue on the GPU, from the first piece of work on.
    pub(crate) queue: Option<Queue>,
    /// What waits for a host function, a value in memory or another stream that does, with serials
    /// in the order in which the client has asked.
    pub(crate) put_off: VecDeque<(u64, Action)>,
    /// The first of `put_off` is a host function that runs.
    pub(crate) in_host_function: bool,
    /// Nothing has been put into the queue since it was told to wait for another one.
    pub(crate) only_waits: bool,
    /// How much work of the context's legacy stream, or for that one of all blocking streams, it has
    /// lined up behind.
    pub(crate) lined_up: u64,
    /// The capture that it is in.
    pub(crate) capture: Option<u64>,
    /// What the next captured node depends on.
    pub(crate) tail: Vec<Handle>,
}

const NON_BLOCKING: u32 = 1;
/// Handles that mean the legacy stream and the thread's own.
const LEGACY: Handle = 1;
const PER_THREAD: Handle = 2;

impl Stream {
    fn new(context: Handle, role: Role, flags: u32, priority: c_int, id: u64) -> Self {
        Self {
            context,
            role,
            flags,
            priority,
            id,
            queue: None,
            put_off: VecDeque::new(),
            in_host_function: false,
            only_waits: false,
            lined_up: 0,
            capture: None,
            tail: Vec::new(),
        }
    }

    /// The legacy stream of a context.
    pub(crate) fn legacy(context: Handle, id: u64) -> Self {
        Self::new(context, Role::Legacy, 0, 0, id)
    }

    /// It goes in step with the legacy stream.
    pub(crate) fn is_blocking(&self) -> bool {
        self.role != Role::Legacy && self.flags & NON_BLOCKING == 0
    }
}

/// A number of the calling thread that no other thread of the process ever has.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

impl Driver {
    pub(crate) fn stream(&self, handle: Handle) -> Result<&Stream, Error> {
        self.streams.get(handle).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn stream_mut(&mut self, handle: Handle) -> Result<&mut Stream, Error> {
        self.streams.get_mut(handle).ok_or(INVALID_HANDLE)
    }

    /// The default stream of the calling thread in a context.
    fn per_thread_stream(&mut self, context: Handle) -> Result<Handle, Error> {
        let thread = thread_number();
        if let Some(stream) = self.context(context)?.per_thread.get(&thread) {
            return Ok(*stream);
        }
        let id = self.next_serial();
        let stream = Stream::new(context, Role::PerThread, 0, 0, id);
        let stream = self.streams.insert(stream);
        self.context_mut(context)?.per_thread.insert(thread, stream);
        Ok(stream)
    }
}

impl Call {
    /// The stream that a client's handle means.
    pub(crate) fn resolve(&self, driver: &mut Driver, handle: Handle) -> Result<Handle, Error> {
        let default = if self.per_thread { PER_THREAD } else { LEGACY };
        match if handle == 0 { default } else { handle } {
            LEGACY => Ok(self.current(driver)?.1.legacy),
            PER_THREAD => {
                let context = self.current(driver)?.0;
                driver.per_thread_stream(context)
            }
            own => {
                driver.streams.used(own);
                let context = driver.stream(own)?.context;
                let device = driver.context(context)?.device;
                let device = driver.devices.get(device).ok_or(INVALID_CONTEXT)?;
                crate::driver::needs_reachable(&self.state, device)?;
                Ok(own)
            }
        }
    }

    fn create_stream(&self, to: *mut Handle, flags: u32, priority: c_int) -> Outcome {
        let mut driver = self.lock();
        let context = self.current(&driver)?.0;
        if flags > NON_BLOCKING || to.is_null() {
            return Err(INVALID_VALUE);
        }
        let id = driver.next_serial();
        let stream = Stream::new(context, Role::Own, flags, priority.clamp(-5, 0), id);
        put(to, driver.streams.insert(stream))
    }

    /// Takes a stream away; its work runs to its end, as with the driver.
    pub(crate) fn end_stream(&self, driver: &mut Driver, handle: Handle) {
        let Some(stream) = driver.streams.remove(handle) else { return };
        if let Some(capture) = stream.capture {
            driver.invalidate(capture);
        }
        if let Some(queue) = stream.queue {
            self.process.gpus.drop_queue(queue);
        }
    }

    fn destroy_stream(&self, handle: Handle) -> Outcome {
        self.lock().streams.used(handle);
        let own = self.lock().stream(handle)?.role == Role::Own;
        if !own {
            return Err(INVALID_HANDLE);
        }
        self.wait_for_put_off(handle);
        self.end_stream(&mut self.lock(), handle);
        Ok(())
    }

    /// What is asked of the stream that a handle means.
    fn ask<T>(&self, handle: Handle, what: impl FnOnce(&Driver, &Stream) -> T) -> Result<T, Error> {
        let mut driver = self.lock();
        let handle = self.resolve(&mut driver, handle)?;
        let stream = driver.stream(handle)?;
        Ok(what(&driver, stream))
    }

    /// The index of a stream's device.
    pub(crate) fn stream_device(&self, handle: Handle) -> Result<usize, Error> {
        let device = |driver: &Driver, stream: &Stream| {
            driver.context(stream.context).map(|context| context.device)
        };
        self.ask(handle, device)?
    }
}

exports! { STREAM;
    "cuStreamCreate" 2000 call fn cuStreamCreate(to: *mut Handle, flags: u32) |call| {
        call.create_stream(to, flags, 0)
    }

    "cuStreamCreateWithPriority" 5050 call fn cuStreamCreateWithPriority(
        to: *mut Handle, flags: u32, priority: c_int,
    ) |call| { call.create_stream(to, flags, priority) }

    "cuStreamDestroy" 2000 call fn cuStreamDestroy(stream: Handle) |call| {
        call.destroy_stream(stream)
    }

    "cuStreamDestroy" 4000 call fn cuStreamDestroy_v2(stream: Handle) |call| {
        call.destroy_stream(stream)
    }

    "cuStreamQuery" 2000 call [cuStreamQuery_ptsz 7000] fn cuStreamQuery(stream: Handle) |call| {
        let stream = call.checked_for_waiting(stream)?;
        if call.is_idle(stream)? { Ok(()) } else { Err(NOT_READY) }
    }

    "cuStreamSynchronize" 2000 call [cuStreamSynchronize_ptsz 7000] fn cuStreamSynchronize(
        stream: Handle,
    ) |call| {
        let stream = call.checked_for_waiting(stream)?;
        call.synchronise_stream(stream)
    }

    "cuStreamGetPriority" 5050 call [cuStreamGetPriority_ptsz 7000] fn cuStreamGetPriority(
        stream: Handle, to: *mut c_int,
    ) |call| { put(to, call.ask(stream, |_, stream| stream.priority)?) }

    "cuStreamGetFlags" 5050 call [cuStreamGetFlags_ptsz 7000] fn cuStreamGetFlags(
        stream: Handle, to: *mut u32,
    ) |call| { put(to, call.ask(stream, |_, stream| stream.flags)?) }

    "cuStreamGetId" 12000 call [cuStreamGetId_ptsz 12000] fn cuStreamGetId(
        stream: Handle, to: *mut u64,
    ) |call| { put(to, call.ask(stream, |_, stream| stream.id)?) }

    "cuStreamGetCtx" 9020 call [cuStreamGetCtx_ptsz 9020] fn cuStreamGetCtx(
        stream: Handle, to: *mut Handle,
    ) |call| { put(to, call.ask(stream, |_, stream| stream.context)?) }

    "cuStreamGetCtx" 12050 call [cuStreamGetCtx_v2_ptsz 12050] fn cuStreamGetCtx_v2(
        stream: Handle, to: *mut Handle, green: *mut Handle,
    ) |call| {
        put_if(green, 0);
        put(to, call.ask(stream, |_, stream| stream.context)?)
    }

    "cuStreamGetGreenCtx" 12040 call fn cuStreamGetGreenCtx(stream: Handle, to: *mut Handle) |call| {
        call.ask(stream, |_, _| ())?;
        put(to, 0)
    }

    "cuStreamGetDevice" 12080 call [cuStreamGetDevice_ptsz 12080] fn cuStreamGetDevice(
        stream: Handle, to: *mut c_int,
    ) |call| { put(to, c_int::try_from(call.stream_device(stream)?).unwrap_or(0)) }

    "cuStreamCopyAttributes" 11000 call [cuStreamCopyAttributes_ptsz 11000] fn cuStreamCopyAttributes(to: Handle, from: Handle) |call| {
        let priority = call.ask(from, |_, stream| stream.priority)?;
        let mut driver = call.lock();
        let to = call.resolve(&mut driver, to)?;
        driver.stream_mut(to)?.priority = priority;
        Ok(())
    }

    "cuStreamGetAttribute" 11000 call [cuStreamGetAttribute_ptsz 11000] fn cuStreamGetAttribute(
        stream: Handle, attribute: u32, to: *mut [u64; 8],
    ) |call| {
        const PRIORITY: u32 = 8;
        let priority = call.ask(stream, |_, stream| stream.priority)?;
        let mut value = [0; 8];
        if attribute == PRIORITY {
            value[0] = u64::from(priority.cast_unsigned());
        }
        put(to, value)
    }

    "cuStreamSetAttribute" 11000 call [cuStreamSetAttribute_ptsz 11000] fn cuStreamSetAttribute(
        stream: Handle, _attribute: u32, value: *const [u64; 8],
    ) |call| {
        call.ask(stream, |_, _| ())?;
        get(value).map(|_| ())
    }

    "cuStreamAttachMemAsync" 6000 call [cuStreamAttachMemAsync_ptsz 7000] fn cuStreamAttachMemAsync(
        stream: Handle, _address: u64, _bytes: usize, _flags: u32,
    ) |call| { call.ask(stream, |_, _| ()) }
}
