//! Recording of graphs ("stream capture").
//!
//! What a thread asks the driver while a stream is recorded can spoil the recording, also from another
//! thread. So while any is, this folder asks nothing: the door ([`super::door`]) is closed, and whoever
//! begins a recording waits until nobody is inside.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{Code, Handle, NOT_FOUND, SUCCESS};
use crate::entry::hooks::hooks;

use super::streams::Stream;
use super::{asks, clock, door, pacer};

/// Recordings that are on.
static ON: AtomicU32 = AtomicU32::new(0);
/// The streams in which recordings have begun.
static RECORDED: Mutex<Vec<Recorded>> = Mutex::new(Vec::new());

/// A stream that is recorded.
#[derive(Clone, Copy)]
pub(crate) struct Recorded {
    stream: Stream,
    /// The context that it ends with.
    context: u64,
    /// When it began, or was last known to be on.
    since_us: u64,
}

impl Recorded {
    /// To be asked before the recording begins. Stream 0 is the thread's own here, for the legacy stream
    /// cannot be recorded.
    fn of(handle: Handle) -> Self {
        let mut context = std::ptr::null_mut();
        // SAFETY: the client's stream and a place of ours.
        let known = handle.addr() > STREAMS_WITHOUT_NAME
            && unsafe { asks::context_of_stream(handle, &raw mut context) } == SUCCESS;
        let context =
            if known { context.expose_provenance() as u64 } else { crate::driver::context() };
        Self { stream: Stream::of(handle, true), context, since_us: clock::now_us() }
    }
}

/// Stream handles up to this one stand for streams of the thread's context.
const STREAMS_WITHOUT_NAME: usize = 2;

/// A recording that has lasted so long, in µs, may have ended in a way that we have not seen.
const DOUBTFUL_US: u64 = 10_000_000;

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

/// The forked process has neither our threads nor a driver that works.
pub(crate) fn forked() {
    ON.store(0, Ordering::SeqCst);
}

fn begun(call: impl Fn() -> Code, stream: Handle) -> Code {
    let recorded = Recorded::of(stream);
    let noted = |code| {
        if code == SUCCESS {
            note(recorded);
        }
        code
    };
    if !pacer::any() {
        return noted(call());
    }
    ON.fetch_add(1, Ordering::SeqCst);
    door::wait_outside();
    let code = noted(call());
    ON.fetch_sub(1, Ordering::SeqCst);
    code
}

fn recorded() -> MutexGuard<'static, Vec<Recorded>> {
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a recording that has begun. One of before in the same stream has ended unseen.
pub(crate) fn note(begun: Recorded) {
    let mut recorded = recorded();
    match recorded.iter_mut().find(|known| known.stream == begun.stream) {
        Some(known) => *known = begun,
        None => {
            recorded.push(begun);
            ON.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A stream is gone, and with it its recording, which is returned.
pub(crate) fn stream_gone(stream: Handle) -> Option<Recorded> {
    if any() { take(Stream::of(stream, true)) } else { None }
}

fn take(stream: Stream) -> Option<Recorded> {
    let mut recorded = recorded();
    let at = recorded.iter().position(|known| known.stream == stream)?;
    ON.fetch_sub(1, Ordering::SeqCst);
    Some(recorded.swap_remove(at))
}

/// Forgets recordings that have lasted long and of which the driver says that they are over. Another thread's
/// own stream cannot be asked about: its recording lasts until its thread begins another one, or its
/// context ends.
pub(crate) fn review() {
    let now_us = clock::now_us();
    let doubtful = |known: &Recorded| now_us.saturating_sub(known.since_us) > DOUBTFUL_US;
    let find = || recorded().iter().find(|known| doubtful(known)).copied();
    while let Some(known) = find() {
        // Inside, so that whoever ends the stream waits for us.
        let over = door::reviewing(|| {
            let there = recorded().iter().any(|other| other.stream == known.stream);
            there && known.stream.handle().is_some_and(|stream| !is_recorded(stream))
        });
        if over == Some(true) {
            take(known.stream);
        } else {
            let mut recorded = recorded();
            let same = recorded.iter_mut().find(|other| other.stream == known.stream);
            same.into_iter().for_each(|known| known.since_us = now_us);
        }
    }
}

/// A context is gone, and with it the recordings in its streams.
pub(crate) fn context_gone(context: u64) {
    if any() {
        recorded().retain(|known| {
            let stays = known.context != context;
            ON.fetch_sub(u32::from(!stays), Ordering::SeqCst);
            stays
        });
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
