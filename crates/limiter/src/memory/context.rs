//! Contexts: each takes memory by itself, before anything is allocated in it.
//!
//! How much is what NVML says that this process uses more than before; where NVML does not show the
//! process, what the agent expects; else what the whole card has grown by, within bounds, for others may
//! take memory at the same time. When a context ends, all that was allocated in it is gone.

use std::ffi::{c_int, c_uint, c_void};
use std::time::Duration;

use caps::{Kind, OverCap};

use super::amount::Amount;
use super::ground::{self, capped, given};
use super::kept::{Held, Name};
use super::own;
use super::primary::primary;
use crate::abi::{Code, Device, Handle, NOT_FOUND, OUT_OF_MEMORY, SUCCESS, read, write};
use crate::entry::hooks::hooks;
use crate::tenant::{Gpu, Tenant};
use crate::{compute, driver};

/// No context counts as more if only the whole card could be looked at, in bytes.
const MOST: u64 = 600 << 20;
/// What a context counts as if nobody tells and nothing can be measured, in bytes: what one takes on
/// GPUs of the last years, by NVML, is between 200 and 600 MiB.
const UNMEASURED: u64 = 400 << 20;

/// How often NVML is asked for a figure that has changed, and how long after the last time.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(3);

hooks! { NOT_FOUND;
    fn create(to: *mut Handle, flags: c_uint, device: Device) as "cuCtxCreate":
        cuCtxCreate 2000, cuCtxCreate_v2 3020;
    fn create_affine(
        to: *mut Handle, affinity: *mut c_void, count: c_int, flags: c_uint, device: Device
    ) as "cuCtxCreate":
        cuCtxCreate_v3 11040;
    fn create_with(
        to: *mut Handle, parameters: *mut c_void, flags: c_uint, device: Device
    ) as "cuCtxCreate":
        cuCtxCreate_v4 12050;
    fn destroy(context: Handle) as "cuCtxDestroy": cuCtxDestroy 2000, cuCtxDestroy_v2 4000;
    fn attach(to: *mut Handle, flags: c_uint) as "cuCtxAttach": cuCtxAttach 2000;
    fn detach(context: Handle) as "cuCtxDetach": cuCtxDetach 2000;
    fn limit(which: c_int, value: usize) as "cuCtxSetLimit": cuCtxSetLimit 3010;
}

/// Makes a context and books what it takes. No lock is held: it may take long, and come back to us on the
/// same thread.
///
/// * `undo` — ends it again.
pub(super) fn made(
    tenant: &Tenant,
    gpu: &Gpu,
    call: impl Fn() -> Code,
    undo: impl Fn(),
) -> Result<u64, Code> {
    let (told, last) = (gpu.given.context_bytes, primary(gpu).last);
    let expected = if own::is_known(gpu) && last > 0 { last } else { told.unwrap_or(last) };
    ground::reserve(tenant, gpu, Kind::Context, Amount::Own(expected))?;
    let making = own::Making::begin(gpu);
    let before = if told.is_none() { used_by_all(gpu) } else { None };
    let code = call();
    if code != SUCCESS {
        gpu.release(Kind::Context, Amount::Own(expected));
        if code == OUT_OF_MEMORY {
            gpu.note_full(expected);
        }
        return Err(code);
    }
    let taken = making.taken(gpu).or(told).or_else(|| grown_since(gpu, before?));
    let taken = taken.unwrap_or(UNMEASURED);
    gpu.settle(Kind::Context, expected, taken);
    if gpu.is_over() {
        undo();
        gpu.release(Kind::Context, Amount::Own(taken));
        let (asked, held, cap) = (taken, gpu.held(), gpu.cap().unwrap_or(u64::MAX));
        gpu.note_over(OverCap { asked, held, cap });
        return Err(OUT_OF_MEMORY);
    }
    primary(gpu).last = taken;
    Ok(taken)
}

fn used_by_all(gpu: &Gpu) -> Option<u64> {
    driver::used_by_all(gpu.own_use.handle(gpu)?)
}

/// By how much the memory in use on the GPU has grown, in bytes. There is no context that takes none, so a
/// growth of none is a figure of before, and asked for again.
fn grown_since(gpu: &Gpu, before: u64) -> Option<u64> {
    for _ in 0..LOOKS {
        let grown = used_by_all(gpu)?.saturating_sub(before);
        if grown > 0 {
            return Some(grown.min(MOST));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    None
}

/// Ends a context by a call: forgets all that was allocated in it, if it is gone then.
///
/// * `contents` — taken out before the call: afterwards its address may be another context's.
pub(super) fn with_contents(
    tenant: &Tenant,
    contents: Vec<(Name, Held)>,
    context: u64,
    call: impl Fn() -> Code,
    is_gone: impl FnOnce() -> bool,
) -> Code {
    let ending = compute::ending();
    let code = call();
    let is_gone = code == SUCCESS && is_gone();
    for (name, held) in contents {
        if is_gone {
            ground::forget(tenant, held);
        } else {
            ground::keep_again(tenant, name, held);
        }
    }
    if is_gone && context != 0 {
        ending.context_gone(context);
    }
    code
}

/// Counts a context of the client's own.
unsafe fn counted(call: impl Fn() -> Code, to: *mut Handle, device: Device) -> Code {
    let (tenant, gpu) = given!(ground::for_context(device), call);
    let undo = || {
        // SAFETY: made just before, and nobody knows it yet.
        unsafe {
            if let Some(context) = read(to) {
                driver::destroy_context(context);
            }
            write(to, std::ptr::null_mut());
        }
    };
    let taken = match made(tenant, gpu, call, undo) {
        Ok(taken) => taken,
        Err(code) => return code,
    };
    // SAFETY: the driver has written it.
    if let Some(context) = unsafe { read(to) } {
        let (device, kind, amount) = (gpu.device, Kind::Context, Amount::Own(taken));
        let name = Name::Context(context.addr() as u64);
        ground::note(tenant, name, Held { device, kind, amount, context: 0, ..Held::NONE });
    }
    SUCCESS
}

unsafe fn create(call: impl Fn() -> Code, to: *mut Handle, _: c_uint, device: Device) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, device) }
}

unsafe fn create_affine(
    call: impl Fn() -> Code,
    to: *mut Handle,
    _affinity: *mut c_void,
    _count: c_int,
    _flags: c_uint,
    device: Device,
) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, device) }
}

unsafe fn create_with(
    call: impl Fn() -> Code,
    to: *mut Handle,
    _parameters: *mut c_void,
    _flags: c_uint,
    device: Device,
) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, device) }
}

unsafe fn destroy(call: impl Fn() -> Code, context: Handle) -> Code {
    ended(call, context)
}

fn ended(call: impl Fn() -> Code, context: Handle) -> Code {
    let tenant = capped!(call);
    let number = context.addr() as u64;
    let device = tenant.kept.get(Name::Context(number)).map(|held| held.device);
    let code = ground::given_back(tenant, Name::Context(number), || {
        let contents = tenant.kept.take_of_context(number);
        with_contents(tenant, contents, number, &call, || true)
    });
    if code == SUCCESS {
        if let Some(gpu) = device.and_then(|device| tenant.gpu(device)) {
            own::context_gone(gpu);
        }
        super::settle(tenant);
    }
    code
}

/// One more use of the thread's context.
unsafe fn attach(call: impl Fn() -> Code, to: *mut Handle, _flags: c_uint) -> Code {
    let tenant = capped!(call);
    let code = call();
    // SAFETY: the driver has written it.
    if let (SUCCESS, Some(context)) = (code, unsafe { read(to) }) {
        tenant.kept.again(Name::Context(context.addr() as u64));
    }
    code
}

/// One use less; with the last one the context ends.
unsafe fn detach(call: impl Fn() -> Code, context: Handle) -> Code {
    let tenant = capped!(call);
    if tenant.kept.once_less(Name::Context(context.addr() as u64)) {
        let code = call();
        if code != SUCCESS {
            tenant.kept.again(Name::Context(context.addr() as u64));
        }
        return code;
    }
    ended(call, context)
}

/// Limits of a context: the heap of kernels, their stacks and their output take memory.
unsafe fn limit(call: impl Fn() -> Code, _which: c_int, _value: usize) -> Code {
    let tenant = capped!(call);
    own::beside(tenant, call)
}
