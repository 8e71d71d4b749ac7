//! Recording of graphs ("stream capture").
//!
//! What a thread asks the driver while a stream is recorded can spoil the recording, also from another
//! thread. So while any is, this folder asks nothing: [`asking`] is the only door to the driver, and
//! whoever begins a recording waits until nobody is inside.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::abi::{Code, Handle, NOT_FOUND, SUCCESS};
use crate::entry::hooks::hooks;

use super::{asks, clock};

/// Recordings that are on.
static ON: AtomicU32 = AtomicU32::new(0);
/// Threads of ours in the driver.
static ASKING: AtomicU32 = AtomicU32::new(0);
/// The streams in which recordings have begun.
static STREAMS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A recording does not wait longer for threads of ours that are in the driver, in µs.
const PATIENCE_US: u64 = 1_000_000;

hooks! { NOT_FOUND;
    fn begin_old(stream: Handle) as "cuStreamBeginCapture":
        cuStreamBeginCapture 10000, cuStreamBeginCapture_ptsz 10000 per_thread;
    fn begin(stream: Handle, mode: c_int) as "cuStreamBeginCapture":
        cuStreamBeginCapture_v2 10010, cuStreamBeginCapture_v2_ptsz 10010 per_thread;
    fn begin_to(
        stream: Handle, graph: Handle, after: *const Handle, edges: *const c_void, count: usize,
        mode: c_int
    ) as "cuStreamBeginCaptureToGraph":
        cuStreamBeginCaptureToGraph 12030, cuStreamBeginCaptureToGraph_ptsz 12030 per_thread;
    fn begin_again(
        stream: Handle, mode: c_int, graph: Handle, callback: *const c_void, data: *mut c_void
    ) as "cuStreamBeginRecaptureToGraph":
        cuStreamBeginRecaptureToGraph 13030, cuStreamBeginRecaptureToGraph_ptsz 13030 per_thread;
    fn end(stream: Handle, graph: *mut Handle) as "cuStreamEndCapture":
        cuStreamEndCapture 10000, cuStreamEndCapture_ptsz 10000 per_thread;
}

/// Whether any stream is recorded: one load.
#[inline]
pub(crate) fn any() -> bool {
    ON.load(Ordering::SeqCst) != 0
}

/// Whether a stream is, or may be, one of them. The driver is asked, as a stream joins a recording by
/// waiting for an event of it; this question is allowed.
pub(crate) fn is_recorded(stream: Handle) -> bool {
    let mut status = 0;
    // SAFETY: the client's stream and a place of ours.
    let code = unsafe { asks::is_capturing(stream, &raw mut status) };
    code != SUCCESS || status != 0
}

/// Asks the driver something, unless a stream is recorded.
pub(crate) fn asking<T>(what: impl FnOnce() -> T) -> Option<T> {
    ASKING.fetch_add(1, Ordering::SeqCst);
    let result = if any() { None } else { Some(what()) };
    ASKING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// The process ends: nothing is asked any more, and nobody is inside.
pub(crate) fn close() {
    ON.fetch_add(1, Ordering::SeqCst);
    wait_outside(PATIENCE_US);
}

/// Waits until no thread of ours is in the driver.
fn wait_outside(patience_us: u64) {
    let until = clock::now_us().saturating_add(patience_us);
    while ASKING.load(Ordering::SeqCst) != 0 && clock::now_us() < until {
        std::thread::yield_now();
    }
}

/// The forked process has neither our threads nor a driver that works.
pub(crate) fn forked() {
    ON.store(0, Ordering::SeqCst);
    ASKING.store(0, Ordering::SeqCst);
}

fn begun(call: impl Fn() -> Code, stream: Handle) -> Code {
    if super::pacer::known().is_none() {
        return noted(call(), stream);
    }
    ON.fetch_add(1, Ordering::SeqCst);
    wait_outside(PATIENCE_US);
    let code = noted(call(), stream);
    ON.fetch_sub(1, Ordering::SeqCst);
    code
}

/// Notes a recording that has begun.
fn noted(code: Code, stream: Handle) -> Code {
    if code == SUCCESS {
        let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
        streams.push(stream.expose_provenance());
        ON.fetch_add(1, Ordering::SeqCst);
    }
    code
}

/// A stream is gone, and with it its recording.
pub(crate) fn stream_gone(stream: Handle) {
    if !any() {
        return;
    }
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = streams.iter().position(|known| *known == stream.addr()) {
        streams.swap_remove(at);
        ON.fetch_sub(1, Ordering::SeqCst);
    }
}

unsafe fn begin_old(call: impl Fn() -> Code, stream: Handle) -> Code {
    begun(call, stream)
}

unsafe fn begin(call: impl Fn() -> Code, stream: Handle, _mode: c_int) -> Code {
    begun(call, stream)
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
unsafe fn begin_to(
    call: impl Fn() -> Code,
    stream: Handle,
    _graph: Handle,
    _after: *const Handle,
    _edges: *const c_void,
    _count: usize,
    _mode: c_int,
) -> Code {
    begun(call, stream)
}

unsafe fn begin_again(
    call: impl Fn() -> Code,
    stream: Handle,
    _mode: c_int,
    _graph: Handle,
    _callback: *const c_void,
    _data: *mut c_void,
) -> Code {
    begun(call, stream)
}

/// A recording ends also by failures of recordings (`CUDA_ERROR_STREAM_CAPTURE_…`), but for the one that
/// says that it is another thread's.
unsafe fn end(call: impl Fn() -> Code, stream: Handle, _graph: *mut Handle) -> Code {
    let code = call();
    if any() && (code == SUCCESS || (900..908).contains(&code)) {
        stream_gone(stream);
    }
    code
}
