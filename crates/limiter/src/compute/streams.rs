//! Streams by number, so that the thread's own streams are told apart, and their end.

use std::cell::Cell;

use crate::abi::{Code, Handle, NOT_FOUND, SUCCESS};
use crate::entry::hooks::hooks;

use super::{asks, capture, door, pacer};
use crate::driver;

/// `CU_STREAM_LEGACY`: the stream of the whole context.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`: each thread's own.
const OWN: usize = 2;

hooks! { NOT_FOUND;
    fn destroy(stream: Handle) as "cuStreamDestroy": cuStreamDestroy 2000, cuStreamDestroy_v2 4000;
}

/// A stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream(u64);

thread_local! {
    /// Its address stands for the thread.
    static THREAD: Cell<u8> = const { Cell::new(0) };
}

impl Stream {
    /// As a call names it.
    ///
    /// * `per_thread` — it is the form of the call in which 0 is the thread's own stream.
    pub(crate) fn of(handle: Handle, per_thread: bool) -> Self {
        match handle.expose_provenance() {
            0 if per_thread => Self::own(),
            OWN => Self::own(),
            0 => Self(LEGACY as u64),
            other => Self(other as u64),
        }
    }

    fn own() -> Self {
        let thread = THREAD.with(|thread| std::ptr::from_ref(thread).addr() as u64);
        // Handles are addresses of things of the driver, so their lowest bits are 0.
        Self(thread << 3 | OWN as u64)
    }

    /// By its number.
    pub(crate) fn numbered(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// By what the driver knows it here; `None` for another thread's own stream, which only that thread can
    /// name.
    pub(crate) fn handle(self) -> Option<Handle> {
        let handle = match self.0 & 7 {
            2 if self == Self::own() => OWN,
            2 => return None,
            _ => usize::try_from(self.0).ok()?,
        };
        Some(std::ptr::with_exposed_provenance_mut(handle))
    }

    /// Its context, for the thread that uses it; 0 if it is not known. A stream without a handle of its own is
    /// one of the thread's context.
    pub(crate) fn context(self) -> u64 {
        match self.handle() {
            Some(handle) if handle.addr() > OWN => asks::context_of(handle),
            _ => driver::context(),
        }
    }
}

/// What is in the stream still runs, so it is marked before its name is gone; and nobody else may be about to
/// mark it then.
unsafe fn destroy(call: impl Fn() -> Code, handle: Handle) -> Code {
    let stream = Stream::of(handle, false);
    if door::inside() || handle.addr() <= OWN {
        return call();
    }
    let recorded = if pacer::knows(stream) || capture::any() {
        let shut = door::shut();
        let context = shut.asking(|| stream.context()).unwrap_or(0);
        // Whichever GPU it is on: the thread's may be another one.
        pacer::each(|pacer| pacer.stream_goes(stream, context, &shut));
        // Before the call: afterwards its name may be another's.
        capture::stream_gone(handle)
    } else {
        None
    };
    let code = call();
    if let Some(recorded) = recorded.filter(|_| code != SUCCESS) {
        capture::note(recorded);
    }
    code
}
