//! The cap of GPU time.
//!
//! Tenants of a GPU take turns ([`caps::turns`]); within a turn a process does not run far ahead
//! ([`caps::pace`]). Every launch asks first, and waits in the client's thread while the turn is another
//! one's. A watcher thread sees what the GPU has done, pays, and hands the turn on.
//!
//! * `launch` — the hooks, and what a launch goes through;
//! * `pacer` — one GPU of this process: its board, its place there, its lock;
//! * `marks` — events in streams, by which the GPU's progress is seen, and measured launches;
//! * `watch` — the watcher; `capture` — recording of graphs, during which nothing is asked;
//! * `door` — who is in the driver, so that nobody is while something is recorded or ends;
//! * `several` — launches on several GPUs at once; `streams` — names of streams;
//! * `asks` — the driver's functions; `clock` — time and waiting.
//!
//! *Invariant:* while a stream of the process is recorded, no function of the driver is called on behalf
//! of this folder but the client's own.
//! *Invariant:* no lock of this folder is held in any call of the driver, the client's or ours.
//! *Invariant:* no handle of the client's is used once the client may have ended it.
//! *Invariant:* a launch waits at most as long as `caps::turns` bounds it.

mod asks;
mod capture;
mod clock;
mod door;
mod launch;
mod marks;
mod pacer;
mod several;
mod streams;
mod watch;

use crate::abi::Handle;
use crate::entry::hooks::Hook;

use caps::pace::Moment;

/// The hooks of this folder's files.
pub(crate) static HOOKS: &[&[Hook]] =
    &[launch::HOOKS, several::HOOKS, capture::HOOKS, streams::HOOKS];

/// Whether what is put into this stream is recorded and not run. While it is, nothing is asked of the
/// driver and no lock is taken on its behalf.
pub(crate) fn capturing(stream: Handle) -> bool {
    capture::any() && capture::is_recorded(stream)
}

/// In a forked process, which has neither our threads nor turns.
pub(crate) fn forked() {
    pacer::forked();
}

/// Whether any stream of the process is being recorded.
pub(crate) fn any_capturing() -> bool {
    capture::any()
}

/// What a wait for the GPU waits for.
#[derive(Clone, Copy)]
pub(crate) enum Awaited {
    /// A stream, as the call names it; and whether it is the call's form in which 0 is the thread's own.
    Stream(Handle, bool),
    /// All streams of the context.
    All,
    /// One event.
    Event,
}

/// A wait for the GPU begins: to be given to [`waited`].
pub(crate) fn waits() -> Option<Moment> {
    pacer::known().map(pacer::Pacer::moment)
}

/// A wait for the GPU has ended well.
pub(crate) fn waited(since: Option<Moment>, what: Awaited) {
    if let (Some(since), Some(pacer)) = (since, pacer::known()) {
        pacer.waited(since, what);
    }
}

/// Nobody asks the driver anything on behalf of this folder while this lives.
pub(crate) struct Ending(Option<door::Shut>);

/// A context, and all that was made in it, is about to end. To be kept until
/// [`Ending::context_gone`] has been called or the end has failed: else the driver could be asked about what it is just taking down.
pub(crate) fn ending() -> Ending {
    Ending(pacer::any().then(door::shut))
}

pub(crate) use asks::context_of_green;

impl Ending {
    /// A context and all that was made in it is gone.
    ///
    /// * `context` — its address; 0 if it is not known.
    pub(crate) fn context_gone(&self, context: u64) {
        if context == 0 {
            return;
        }
        capture::context_gone(context);
        if self.0.is_some() {
            pacer::each(|pacer| pacer.context_gone(context));
        }
    }
}

/// A graph that could be launched is gone. What is learned of it is not another's that gets its number.
pub(crate) fn graph_gone(exec: Handle) {
    let kind = launch::kind(exec, [0; 3], [0; 3]);
    pacer::each(|pacer| pacer.lock().member.costs.forget(kind));
}

/// Code is gone, and with it functions, whose numbers may be given again.
pub(crate) fn code_gone() {
    pacer::each(|pacer| pacer.lock().member.costs.doubt());
}
