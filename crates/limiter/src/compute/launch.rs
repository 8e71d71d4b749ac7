//! Launches: kernels and graphs. Each asks whether the process may, and waits if it may not yet.

use std::ffi::{c_int, c_uint, c_void};

use caps::pace::{self, Launch};

use crate::abi::{Code, Handle, NOT_FOUND, SUCCESS, read};
use crate::entry::hooks::hooks;

use super::pacer::{self, Inner, Pacer};
use super::streams::Stream;
use super::{capture, clock, watch};

/// How long a launch sleeps before it looks again whether the GPU has come further, in µs.
const LOOK_US: u64 = 50;

hooks! { NOT_FOUND;
    fn kernel(
        function: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) as "cuLaunchKernel": cuLaunchKernel 4000;
    fn kernel_own(
        function: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) as "cuLaunchKernel": cuLaunchKernel_ptsz 7000 per_thread;
    fn kernel_ex(
        config: *const Config, function: Handle, parameters: *mut *mut c_void,
        extra: *mut *mut c_void
    ) as "cuLaunchKernelEx": cuLaunchKernelEx 11060;
    fn kernel_ex_own(
        config: *const Config, function: Handle, parameters: *mut *mut c_void,
        extra: *mut *mut c_void
    ) as "cuLaunchKernelEx": cuLaunchKernelEx_ptsz 11060 per_thread;
    fn cooperative(
        function: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Handle, parameters: *mut *mut c_void
    ) as "cuLaunchCooperativeKernel": cuLaunchCooperativeKernel 9000;
    fn cooperative_own(
        function: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Handle, parameters: *mut *mut c_void
    ) as "cuLaunchCooperativeKernel": cuLaunchCooperativeKernel_ptsz 9000 per_thread;
    fn graph(exec: Handle, stream: Handle) as "cuGraphLaunch": cuGraphLaunch 10000;
    fn graph_own(exec: Handle, stream: Handle) as "cuGraphLaunch":
        cuGraphLaunch_ptsz 10000 per_thread;
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
    let product = |sizes: [c_uint; 3]| {
        sizes.iter().fold(1u64, |all, size| all.saturating_mul((*size).into()))
    };
    let threads = u32::try_from(product(block)).unwrap_or(u32::MAX);
    let kind = pace::key(function.addr() as u64, product(grid), threads);
    let stream = Stream::of(stream, own);
    if capture::any() && capture::is_recorded(stream.handle()) {
        return call();
    }
    pacer.launch(call, stream, kind)
}

impl Pacer {
    fn launch(&'static self, call: impl Fn() -> Code, stream: Stream, kind: u64) -> Code {
        let Some(go) = self.admitted(stream, kind) else { return call() };
        let code = call();
        let mut inner = self.lock();
        let Inner { member, marks, .. } = &mut *inner;
        let failed = code != SUCCESS;
        let mark = member.launched(stream.number(), go.ns, failed, clock::now_us);
        if mark || go.begun.is_some() {
            let lost = go.begun.as_ref().is_some_and(|_| capture::any());
            let done = capture::asking(|| {
                if let Some(begun) = go.begun {
                    marks.end(member, begun, stream, failed);
                }
                if !failed {
                    marks.put(member, stream, clock::now_us());
                }
            });
            if done.is_none() && lost {
                member.costs.lost(kind);
            }
        }
        code
    }

    /// Waits until the launch may be made. `None`: nothing is to be followed, as no turns are taken, or
    /// a stream is recorded and it cannot be asked whether there is room.
    fn admitted(&'static self, stream: Stream, kind: u64) -> Option<Go> {
        let mut waiting_since = None;
        loop {
            let word = self.board().watched();
            let seen = word.load(std::sync::atomic::Ordering::SeqCst);
            let mut inner = self.lock();
            let Inner { member, marks, .. } = &mut *inner;
            match member.launch(self.board(), kind, stream.number(), clock::now_us) {
                Launch::Free => {
                    self.count(&mut inner, clock::now_us(), false);
                    return None;
                }
                Launch::Go { ns, sample } => {
                    let begin = || marks.begin(stream, kind, clock::now_us());
                    let begun = if sample { capture::asking(begin).flatten() } else { None };
                    if sample && begun.is_none() {
                        member.costs.lost(kind);
                    }
                    if let Some(since) = waiting_since {
                        let (launches, us) = inner.held_back;
                        let waited = clock::now_us().saturating_sub(since);
                        inner.held_back = (launches.saturating_add(1), us.saturating_add(waited));
                    }
                    drop(inner);
                    watch::rouse();
                    return Some(Go { ns, begun });
                }
                Launch::Turn { until_us } => {
                    drop(inner);
                    let now_us = clock::now_us();
                    waiting_since.get_or_insert(now_us);
                    clock::wait_shared(word, seen, until_us.saturating_sub(now_us).max(1));
                }
                Launch::Settle { mark, until_us } => {
                    let now_us = clock::now_us();
                    let passed = capture::asking(|| marks.look(member, mark))?;
                    if !passed && now_us >= until_us {
                        member.work.late(mark, now_us);
                    } else if !passed {
                        drop(inner);
                        waiting_since.get_or_insert(now_us);
                        clock::sleep_us(LOOK_US);
                    }
                }
                Launch::Mark { stream } => {
                    let put = || marks.put(member, Stream::numbered(stream), clock::now_us());
                    capture::asking(put)?;
                }
            }
        }
    }
}

/// A launch that may be made.
struct Go {
    ns: u64,
    begun: Option<super::marks::Begun>,
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
unsafe fn kernel(
    call: impl Fn() -> Code,
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
    run(call, function, [x, y, z], [bx, by, bz], (stream, false))
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
unsafe fn kernel_own(
    call: impl Fn() -> Code,
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
    run(call, function, [x, y, z], [bx, by, bz], (stream, true))
}

/// A launch described by a structure of the client's.
unsafe fn described(
    call: impl Fn() -> Code,
    config: *const Config,
    function: Handle,
    own: bool,
) -> Code {
    // SAFETY: the client's structure, or null: then the driver says what is wrong.
    match unsafe { read(config) } {
        Some(config) => run(call, function, config.grid, config.block, (config.stream, own)),
        None => call(),
    }
}

unsafe fn kernel_ex(
    call: impl Fn() -> Code,
    config: *const Config,
    function: Handle,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Code {
    // SAFETY: the caller's.
    unsafe { described(call, config, function, false) }
}

unsafe fn kernel_ex_own(
    call: impl Fn() -> Code,
    config: *const Config,
    function: Handle,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Code {
    // SAFETY: the caller's.
    unsafe { described(call, config, function, true) }
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
unsafe fn cooperative(
    call: impl Fn() -> Code,
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
    run(call, function, [x, y, z], [bx, by, bz], (stream, false))
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
unsafe fn cooperative_own(
    call: impl Fn() -> Code,
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
    run(call, function, [x, y, z], [bx, by, bz], (stream, true))
}

/// A graph costs what it was measured to cost, whatever is in it.
unsafe fn graph(call: impl Fn() -> Code, exec: Handle, stream: Handle) -> Code {
    run(call, exec, [0; 3], [0; 3], (stream, false))
}

unsafe fn graph_own(call: impl Fn() -> Code, exec: Handle, stream: Handle) -> Code {
    run(call, exec, [0; 3], [0; 3], (stream, true))
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
