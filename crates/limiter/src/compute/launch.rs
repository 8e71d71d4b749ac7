//! Launches: kernels and graphs. Each asks whether the process may, and waits if it may not yet.

use std::ffi::{c_int, c_uint, c_void};

use caps::pace::{self, Entered, Launch, MarkId};

use crate::abi::{Code, Handle, NOT_FOUND, SUCCESS, read};
use crate::entry::hooks::hooks;

use super::marks::{Begun, Look};
use super::pacer::{self, Pacer};
use super::streams::Stream;
use super::{capture, clock, door, watch};

/// How long a launch sleeps before it looks again whether the GPU has come further, in µs.
const LOOK_US: u64 = 50;
/// How much longer than a mark's own time is waited for another thread that asks about it, in µs.
const ASKED_MAX_US: u64 = 1_000_000;

hooks! { NOT_FOUND;
    streamed kernel(
        function: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) as "cuLaunchKernel": cuLaunchKernel 4000, cuLaunchKernel_ptsz 7000 per_thread;
    streamed kernel_ex(
        config: *const Config, function: Handle, parameters: *mut *mut c_void,
        extra: *mut *mut c_void
    ) as "cuLaunchKernelEx": cuLaunchKernelEx 11060, cuLaunchKernelEx_ptsz 11060 per_thread;
    streamed cooperative(
        function: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Handle, parameters: *mut *mut c_void
    ) as "cuLaunchCooperativeKernel":
        cuLaunchCooperativeKernel 9000, cuLaunchCooperativeKernel_ptsz 9000 per_thread;
    streamed graph(exec: Handle, stream: Handle) as "cuGraphLaunch":
        cuGraphLaunch 10000, cuGraphLaunch_ptsz 10000 per_thread;
    fn old(function: Handle) as "cuLaunch": cuLaunch 2000;
    fn old_grid(function: Handle, width: c_int, height: c_int) as "cuLaunchGrid":
        cuLaunchGrid 2000;
    fn old_grid_async(function: Handle, width: c_int, height: c_int, stream: Handle)
        as "cuLaunchGridAsync": cuLaunchGridAsync 2000;
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *const c_void,
    count: c_uint,
}
const _: () = assert!(std::mem::offset_of!(Config, stream) == 32);

/// The kind of a launch of a function, by its grid.
pub(crate) fn kind(function: Handle, grid: [c_uint; 3], block: [c_uint; 3]) -> u64 {
    let product = |sizes: [c_uint; 3]| {
        sizes.iter().fold(1u64, |all, size| all.saturating_mul((*size).into()))
    };
    let threads = u32::try_from(product(block)).unwrap_or(u32::MAX);
    pace::key(function.addr() as u64, product(grid), threads)
}

/// A launch of a function; the kind is known by its grid.
#[inline]
fn run(
    call: impl Fn() -> Code,
    function: Handle,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    (stream, own): (Handle, bool),
) -> Code {
    let Some(pacer) = pacer::current() else { return call() };
    let kind = kind(function, grid, block);
    let stream = Stream::of(stream, own);
    if capture::any() && stream.handle().is_some_and(capture::is_recorded) {
        return call();
    }
    let Some(go) = pacer.admitted(stream, kind) else { return call() };
    let code = call();
    pacer.launched(stream, kind, go, code != SUCCESS);
    code
}

impl Pacer {
    /// The driver has been asked for a launch that was admitted.
    pub(crate) fn launched(&self, stream: Stream, kind: u64, go: Go, failed: bool) {
        let mut inner = self.lock();
        let after = inner.member.launched(stream.number(), go.ns, failed, clock::now_us);
        drop(inner);
        if after.mark || after.homeless || go.begun.is_some() {
            self.see_to(stream, kind, after, go.begun, failed);
        }
    }

    #[cold]
    fn see_to(
        &self,
        stream: Stream,
        kind: u64,
        after: Entered,
        mut begun: Option<Begun>,
        failed: bool,
    ) {
        let mark = after.mark || begun.is_some();
        door::asking(|| {
            let context = stream.context();
            if context != 0 {
                self.lock().member.work.in_context(stream.number(), context);
            }
            if let Some(begun) = begun.take_if(|_| !failed) {
                self.end_sample(begun, stream);
            }
            if mark && !failed {
                self.put(stream, context);
            }
        });
        if let Some(begun) = begun {
            let mut inner = self.lock();
            inner.marks.lose(&begun);
            inner.member.costs.lost(kind);
        }
    }

    /// Waits until the launch may be made. `None`: nothing is to be followed, as no turns are taken.
    pub(crate) fn admitted(&'static self, stream: Stream, kind: u64) -> Option<Go> {
        let mut waited_us = 0u64;
        loop {
            let board = self.board();
            let word = board.watched();
            let seen = word.load(std::sync::atomic::Ordering::SeqCst);
            let mut inner = self.lock();
            match inner.member.launch(board, kind, stream.number(), clock::now_us) {
                Launch::Free => {
                    self.count(&mut inner, clock::now_us(), false);
                    return None;
                }
                Launch::Go { ns, sample } => {
                    inner.held_back(waited_us);
                    drop(inner);
                    watch::rouse();
                    return Some(if sample { self.sampled(stream, kind, ns) } else { Go::of(ns) });
                }
                Launch::Turn { until_us } => {
                    drop(inner);
                    // It may be this process that has to hand the turn on.
                    watch::rouse();
                    let now_us = clock::now_us();
                    clock::wait_shared(word, seen, until_us.saturating_sub(now_us).max(1));
                    waited_us = waited_us.saturating_add(clock::now_us().saturating_sub(now_us));
                }
                Launch::Unseated => self.be_alone(&mut inner),
                Launch::Settle { mark, until_us } => {
                    drop(inner);
                    let Some(look) = door::asking(|| self.look(mark)) else {
                        return Some(self.unwatched(kind, waited_us));
                    };
                    self.settle(mark, look, until_us);
                }
                Launch::Mark { stream } => {
                    drop(inner);
                    if door::asking(|| self.put_by_number(stream)).is_none() {
                        return Some(self.unwatched(kind, waited_us));
                    }
                }
            }
        }
    }

    /// A mark has been looked at: waits a little if it has not passed, or finds it late.
    fn settle(&self, mark: MarkId, look: Look, until_us: u64) {
        // Whoever asks about it may be held up in the driver.
        let patience_us = match look {
            Look::Passed => return,
            Look::Waits => 0,
            Look::Asked => ASKED_MAX_US,
        };
        let now_us = clock::now_us();
        if now_us >= until_us.saturating_add(patience_us) {
            self.lock().member.work.late(mark, now_us);
        } else {
            watch::rouse();
            clock::sleep_us(LOOK_US);
        }
    }

    /// Lets a launch go that is to be measured.
    fn sampled(&self, stream: Stream, kind: u64, ns: u64) -> Go {
        let begun = door::asking(|| self.begin_sample(stream, kind)).flatten();
        if begun.is_none() {
            self.lock().member.costs.lost(kind);
        }
        Go { ns, begun }
    }

    /// Lets a launch go while it cannot be asked whether there is room, as a stream is recorded. It is paid
    /// by what it is expected to cost.
    fn unwatched(&self, kind: u64, waited_us: u64) -> Go {
        let mut inner = self.lock();
        let (ns, _) = inner.member.go(self.board(), kind, clock::now_us);
        inner.member.costs.lost(kind);
        inner.held_back(waited_us);
        drop(inner);
        watch::rouse();
        Go::of(ns)
    }
}

/// A launch that may be made.
pub(crate) struct Go {
    ns: u64,
    begun: Option<Begun>,
}

impl Go {
    fn of(ns: u64) -> Self {
        Self { ns, begun: None }
    }
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
unsafe fn kernel(
    call: impl Fn() -> Code,
    per_thread: bool,
    function: Handle,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    _shared: c_uint,
    stream: Handle,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Code {
    run(call, function, [x, y, z], [bx, by, bz], (stream, per_thread))
}

/// A launch described by a structure of the client's.
unsafe fn kernel_ex(
    call: impl Fn() -> Code,
    per_thread: bool,
    config: *const Config,
    function: Handle,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Code {
    // SAFETY: the client's structure, or null: then the driver says what is wrong.
    match unsafe { read(config) } {
        Some(config) => run(call, function, config.grid, config.block, (config.stream, per_thread)),
        None => call(),
    }
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
unsafe fn cooperative(
    call: impl Fn() -> Code,
    per_thread: bool,
    function: Handle,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    _shared: c_uint,
    stream: Handle,
    _parameters: *mut *mut c_void,
) -> Code {
    run(call, function, [x, y, z], [bx, by, bz], (stream, per_thread))
}

/// A graph costs what it was measured to cost, whatever is in it.
unsafe fn graph(call: impl Fn() -> Code, per_thread: bool, exec: Handle, stream: Handle) -> Code {
    run(call, exec, [0; 3], [0; 3], (stream, per_thread))
}

unsafe fn old(call: impl Fn() -> Code, function: Handle) -> Code {
    run(call, function, [1; 3], [0; 3], (std::ptr::null_mut(), false))
}

unsafe fn old_grid(call: impl Fn() -> Code, function: Handle, width: c_int, height: c_int) -> Code {
    let grid = [width.unsigned_abs(), height.unsigned_abs(), 1];
    run(call, function, grid, [0; 3], (std::ptr::null_mut(), false))
}

unsafe fn old_grid_async(
    call: impl Fn() -> Code,
    function: Handle,
    width: c_int,
    height: c_int,
    stream: Handle,
) -> Code {
    let grid = [width.unsigned_abs(), height.unsigned_abs(), 1];
    run(call, function, grid, [0; 3], (stream, false))
}
