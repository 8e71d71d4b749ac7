//! Contexts: each takes memory by itself, before anything is allocated in it.
//!
//! How much is told by the agent, or measured as the difference that NVML sees; in that time others
//! may take or give memory too, so it is a guess within bounds. When a context ends, all that was
//! allocated in it is gone.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use caps::{Kind, OverCap};

use super::amount::Amount;
use super::ground::{self, capped, given};
use super::kept::{Held, Name};
use crate::abi::{Code, Device, Handle, NOT_FOUND, OUT_OF_MEMORY, SUCCESS, read, write};
use crate::entry::hooks::hooks;
use crate::tenant::{Gpu, Tenant};
use crate::{compute, driver};

/// No context takes more, in bytes.
const MOST: u64 = 2 << 30;
/// What a context counts as if nobody tells and nothing can be measured, in bytes: what one takes on
/// GPUs of the last years, by NVML, is between 200 and 600 MiB.
const UNMEASURED: u64 = 400 << 20;

/// How often NVML is asked for a figure that has changed, and how long after the last time.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(3);

hooks! { NOT_FOUND;
    fn retain(to: *mut Handle, device: Device) as "cuDevicePrimaryCtxRetain":
        cuDevicePrimaryCtxRetain 7000;
    fn release(device: Device) as "cuDevicePrimaryCtxRelease":
        cuDevicePrimaryCtxRelease 7000, cuDevicePrimaryCtxRelease_v2 11000;
    fn reset(device: Device) as "cuDevicePrimaryCtxReset":
        cuDevicePrimaryCtxReset 7000, cuDevicePrimaryCtxReset_v2 11000;
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
}

/// A GPU's primary context in this process.
#[derive(Default)]
pub(crate) struct Primary {
    /// How many times the process has retained it.
    retained: u32,
    /// Its address while it is retained.
    context: u64,
    /// What is booked for it, in bytes.
    booked: u64,
    /// What the last context took, in bytes: of any of the process on this GPU.
    last: u64,
}

fn primary(gpu: &Gpu) -> MutexGuard<'_, Primary> {
    gpu.primary.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a context and books what it takes.
///
/// * `last` — what the one before took.
/// * `undo` — ends it again.
fn made(
    tenant: &Tenant,
    gpu: &Gpu,
    last: u64,
    call: impl Fn() -> Code,
    undo: impl Fn(),
) -> Result<u64, Code> {
    let told = gpu.given.context_bytes;
    let expected = told.unwrap_or(last);
    ground::reserve(tenant, gpu, Kind::Context, Amount::Own(expected))?;
    let before = if told.is_some() { None } else { driver::used_by_all(gpu.uuid()) };
    let code = call();
    if code != SUCCESS {
        gpu.release(Kind::Context, Amount::Own(expected));
        if code == OUT_OF_MEMORY {
            gpu.note_full(expected);
        }
        return Err(code);
    }
    let taken = told.or_else(|| grown_since(gpu, before?)).unwrap_or(UNMEASURED);
    gpu.settle(Kind::Context, expected, taken);
    if gpu.is_over() {
        undo();
        gpu.release(Kind::Context, Amount::Own(taken));
        let (asked, held, cap) = (taken, gpu.held(), gpu.cap().unwrap_or(u64::MAX));
        gpu.note_over(OverCap { asked, held, cap });
        return Err(OUT_OF_MEMORY);
    }
    Ok(taken)
}

/// By how much the memory in use on the GPU has grown, in bytes. There is no context that takes none, so a
/// growth of none is a figure of before, and asked for again.
fn grown_since(gpu: &Gpu, before: u64) -> Option<u64> {
    for _ in 0..LOOKS {
        let grown = driver::used_by_all(gpu.uuid())?.saturating_sub(before);
        if grown > 0 {
            return Some(grown.min(MOST));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    None
}

unsafe fn retain(call: impl Fn() -> Code, to: *mut Handle, device: Device) -> Code {
    let (tenant, gpu) = given!(ground::for_context(device), call);
    let mut primary = primary(gpu);
    if primary.retained == 0 {
        let undo = || {
            // SAFETY: retained just before.
            unsafe { driver::release_primary(device) };
        };
        match made(tenant, gpu, primary.last, &call, undo) {
            Ok(taken) => (primary.booked, primary.last) = (taken, taken),
            Err(code) => {
                // SAFETY: the client's place, or null.
                unsafe { write(to, std::ptr::null_mut()) };
                return code;
            }
        }
    } else {
        let code = call();
        if code != SUCCESS {
            return code;
        }
    }
    primary.retained = primary.retained.saturating_add(1);
    // SAFETY: the driver has written it.
    primary.context = unsafe { read(to) }.map_or(0, |context| context.addr() as u64);
    SUCCESS
}

unsafe fn release(call: impl Fn() -> Code, device: Device) -> Code {
    let tenant = capped!(call);
    let Some(gpu) = tenant.gpu(device) else { return call() };
    let mut primary = primary(gpu);
    if primary.retained > 1 {
        let code = call();
        primary.retained = primary.retained.saturating_sub(u32::from(code == SUCCESS));
        return code;
    }
    let code = with_contents(tenant, primary.context, call);
    if code == SUCCESS {
        gpu.release(Kind::Context, Amount::Own(primary.booked));
        *primary = Primary { last: primary.last, ..Primary::default() };
        super::settle(tenant);
    }
    code
}

/// The contents go. The context itself stays in the books while it is retained: the driver makes it
/// anew at the next use.
unsafe fn reset(call: impl Fn() -> Code, device: Device) -> Code {
    let tenant = capped!(call);
    let Some(gpu) = tenant.gpu(device) else { return call() };
    let primary = primary(gpu);
    let code = with_contents(tenant, primary.context, call);
    if code == SUCCESS {
        super::settle(tenant);
    }
    code
}

/// Ends a context by a call: forgets all that was allocated in it.
fn with_contents(tenant: &Tenant, context: u64, call: impl Fn() -> Code) -> Code {
    // Before the call: afterwards its address may be another context's.
    let contents = if context == 0 { Vec::new() } else { tenant.kept.take_of_context(context) };
    let code = call();
    for (name, held) in contents {
        if code == SUCCESS {
            ground::forget(tenant, held);
        } else {
            tenant.kept.put(name, held);
        }
    }
    if code == SUCCESS && context != 0 {
        compute::context_gone(context);
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
    let last = primary(gpu).last;
    let taken = match made(tenant, gpu, last, call, undo) {
        Ok(taken) => taken,
        Err(code) => return code,
    };
    primary(gpu).last = taken;
    // SAFETY: the driver has written it.
    if let Some(context) = unsafe { read(to) } {
        let (device, kind, amount) = (gpu.device, Kind::Context, Amount::Own(taken));
        let name = Name::Context(context.addr() as u64);
        tenant.kept.put(name, Held { device, kind, amount, context: 0, times: 1, key: 0 });
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
    let tenant = capped!(call);
    let number = context.addr() as u64;
    let code =
        ground::given_back(tenant, Name::Context(number), || with_contents(tenant, number, &call));
    if code == SUCCESS {
        super::settle(tenant);
    }
    code
}
