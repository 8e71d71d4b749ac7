//! Streams by number, so that the thread's own streams are told apart, and their end.

use std::cell::Cell;

use crate::abi::{Code, Handle, NOT_FOUND};
use crate::entry::hooks::hooks;

use super::pacer;

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

    /// By what the driver knows it here. Another thread's own stream cannot be named: an event in the
    /// legacy stream is done when the work of that one is, too.
    pub(crate) fn handle(self) -> Handle {
        let handle = match self.0 & 7 {
            2 if self == Self::own() => OWN,
            2 => LEGACY,
            _ => usize::try_from(self.0).unwrap_or(LEGACY),
        };
        std::ptr::with_exposed_provenance_mut(handle)
    }
}

/// What is in the stream still runs, so it is marked before its name is gone.
unsafe fn destroy(call: impl Fn() -> Code, stream: Handle) -> Code {
    if let Some(pacer) = pacer::known() {
        pacer.stream_goes(Stream::of(stream, false));
    }
    super::capture::stream_gone(stream);
    call()
}
