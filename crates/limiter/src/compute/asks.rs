//! The driver's functions that this folder calls.

use std::ffi::{c_int, c_uint};

use crate::abi::{Device, Handle, NOT_FOUND, SUCCESS};
use crate::driver;
use crate::entry::hooks::calls;

/// `CU_EVENT_DISABLE_TIMING`.
const UNTIMED: c_uint = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

calls! { NOT_FOUND;
    /// Makes an event in the thread's context.
    fn create_event(event: *mut Handle, flags: c_uint) = "cuEventCreate";
    /// Puts an event into a stream.
    fn record_event(event: Handle, stream: Handle) = "cuEventRecord";
    /// Whether an event is done.
    fn query_event(event: Handle) = "cuEventQuery";
    /// Time between two events, in ms.
    fn elapsed_time(ms: *mut f32, begin: Handle, end: Handle) = "cuEventElapsedTime";
    /// Makes a context the thread's.
    fn push_context(context: Handle) = "cuCtxPushCurrent_v2";
    /// Undoes it.
    fn pop_context(context: *mut Handle) = "cuCtxPopCurrent_v2";
    /// Whether a stream is being recorded.
    fn is_capturing(stream: Handle, status: *mut c_int) = "cuStreamIsCapturing";
    /// The context of a stream.
    fn context_of_stream(stream: Handle, context: *mut Handle) = "cuStreamGetCtx";
    /// The context of a green context, by which streams of it are known.
    fn context_from_green(context: *mut Handle, green: Handle) = "cuCtxFromGreenCtx";
    /// What the thread may do while others record.
    fn exchange_mode(mode: *mut c_int) = "cuThreadExchangeStreamCaptureMode";
}

/// A new event of the thread's context.
pub(crate) fn event(timed: bool) -> Option<Handle> {
    let mut event = std::ptr::null_mut();
    // SAFETY: a place of ours.
    let code = unsafe { create_event(&raw mut event, if timed { 0 } else { UNTIMED }) };
    (code == SUCCESS).then_some(event)
}

/// Puts an event into a stream; whether it worked.
pub(crate) fn record(event: Handle, stream: Handle) -> bool {
    // SAFETY: an event of ours, and a stream that the client uses.
    unsafe { record_event(event, stream) == SUCCESS }
}

/// Whether an event has passed. One that cannot be asked counts as passed: nobody waits for it for ever.
pub(crate) fn has_passed(event: Handle) -> bool {
    /// `CUDA_ERROR_NOT_READY`.
    const NOT_READY: c_int = 600;
    // SAFETY: an event of ours.
    unsafe { query_event(event) != NOT_READY }
}

/// Time between two events that have passed, in ns.
pub(crate) fn between(begin: Handle, end: Handle) -> Option<u64> {
    let mut ms = 0f32;
    // SAFETY: events of ours and a place of ours.
    let code = unsafe { elapsed_time(&raw mut ms, begin, end) };
    // A float that is no number, or negative, becomes 0.
    (code == SUCCESS).then_some((f64::from(ms) * 1e6) as u64)
}

/// The context of a stream; 0 if it is not known.
pub(crate) fn context_of(stream: Handle) -> u64 {
    let mut context = std::ptr::null_mut();
    // SAFETY: a stream that is the client's, and a place of ours.
    let code = unsafe { context_of_stream(stream, &raw mut context) };
    if code == SUCCESS { context.expose_provenance() as u64 } else { 0 }
}

/// The context of a green context; 0 if it is not known.
pub(crate) fn context_of_green(green: Handle) -> u64 {
    let mut context = std::ptr::null_mut();
    // SAFETY: a green context of the client's, and a place of ours.
    let code = unsafe { context_from_green(&raw mut context, green) };
    if code == SUCCESS { context.expose_provenance() as u64 } else { 0 }
}

/// The GPU of a stream.
pub(crate) fn device_of(stream: Handle) -> Option<Device> {
    within(context_of(stream), driver::device).flatten()
}

/// Does something in a context; `None` if that is gone.
pub(crate) fn within<T>(context: u64, what: impl FnOnce() -> T) -> Option<T> {
    if context == 0 {
        return None;
    }
    if context == driver::context() {
        return Some(what());
    }
    let context = std::ptr::with_exposed_provenance_mut(usize::try_from(context).ok()?);
    // SAFETY: a context that was the client's when its event was made; the driver knows if it is gone.
    if unsafe { push_context(context) } != SUCCESS {
        return None;
    }
    let result = what();
    let mut popped = std::ptr::null_mut();
    // SAFETY: a place of ours.
    unsafe { pop_context(&raw mut popped) };
    Some(result)
}

/// Lets this thread do what is refused to others while a stream is recorded.
pub(crate) fn relax() {
    let mut mode = RELAXED;
    // SAFETY: a place of ours.
    unsafe { exchange_mode(&raw mut mode) };
}
