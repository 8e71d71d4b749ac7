//! Primary contexts: one for each GPU and process, for as long as somebody retains it.
//!
//! A green context is a part of the primary one and keeps it (`cuda.h`): it counts as a hold of that.

use std::ffi::{c_uint, c_void};
use std::sync::{MutexGuard, PoisonError};

use caps::Kind;

use super::amount::Amount;
use super::context::{made, with_contents};
use super::ground::{self, capped, given};
use super::kept::primary_of;
use super::own;
use crate::abi::{Code, Device, Handle, NOT_FOUND, SUCCESS, read, write};
use crate::entry::hooks::hooks;
use crate::tenant::{Gpu, Tenant};
use crate::{compute, driver};

hooks! { NOT_FOUND;
    fn retain(to: *mut Handle, device: Device) as "cuDevicePrimaryCtxRetain":
        cuDevicePrimaryCtxRetain 7000;
    fn release(device: Device) as "cuDevicePrimaryCtxRelease":
        cuDevicePrimaryCtxRelease 7000, cuDevicePrimaryCtxRelease_v2 11000;
    fn reset(device: Device) as "cuDevicePrimaryCtxReset":
        cuDevicePrimaryCtxReset 7000, cuDevicePrimaryCtxReset_v2 11000;
    fn create_green(
        to: *mut Handle, resources: *mut c_void, device: Device, flags: c_uint
    ) as "cuGreenCtxCreate":
        cuGreenCtxCreate 12040;
    fn destroy_green(green: Handle) as "cuGreenCtxDestroy": cuGreenCtxDestroy 12040;
}

/// A GPU's primary context in this process.
#[derive(Default)]
pub(crate) struct Primary {
    /// How many times the process has retained it, green contexts included.
    retained: u32,
    /// Its address while it is retained; 0 if it is not known.
    context: u64,
    /// What is booked for it, in bytes; `None` if it is not in the books.
    booked: Option<u64>,
    /// What the last context took, in bytes: of any of the process on this GPU.
    pub(super) last: u64,
    /// Green contexts that keep it.
    greens: Vec<usize>,
}

pub(super) fn primary(gpu: &Gpu) -> MutexGuard<'_, Primary> {
    gpu.primary.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A hold of the primary context is taken by a call; `undo` takes it back.
fn held_once_more(
    tenant: &Tenant,
    gpu: &Gpu,
    call: impl Fn() -> Code,
    undo: impl Fn(),
) -> Result<(), Code> {
    // A second thread, or a callback of the first one, finds it in the making and passes.
    let begins = {
        let mut primary = primary(gpu);
        let begins = primary.booked.is_none();
        primary.booked.get_or_insert(0);
        begins
    };
    let done = if begins {
        made(tenant, gpu, call, undo)
    } else {
        match call() {
            SUCCESS => Ok(0),
            code => Err(code),
        }
    };
    let mut primary = primary(gpu);
    if begins {
        primary.booked = done.ok();
    } else if done.is_ok() && primary.booked.is_none() {
        // The one that was in the books has been given back meanwhile, so this is another.
        primary.booked = Some(primary.last);
        gpu.settle(Kind::Context, 0, primary.last);
    }
    done?;
    primary.retained = primary.retained.saturating_add(1);
    Ok(())
}

unsafe fn retain(call: impl Fn() -> Code, to: *mut Handle, device: Device) -> Code {
    let (tenant, gpu) = given!(ground::for_context(device), call);
    let undo = || {
        // SAFETY: retained just before.
        unsafe { driver::release_primary(device) };
    };
    if let Err(code) = held_once_more(tenant, gpu, call, undo) {
        // SAFETY: the client's place, or null.
        unsafe { write(to, std::ptr::null_mut()) };
        return code;
    }
    // SAFETY: the driver has written it.
    primary(gpu).context = unsafe { read(to) }.map_or(0, |context| context.addr() as u64);
    SUCCESS
}

unsafe fn release(call: impl Fn() -> Code, device: Device) -> Code {
    let tenant = capped!(call);
    let Some(gpu) = tenant.gpu(device) else { return call() };
    let_go(tenant, gpu, call)
}

/// A hold of the primary context is given back by a call.
fn let_go(tenant: &Tenant, gpu: &Gpu, call: impl Fn() -> Code) -> Code {
    let (before, context) = {
        let mut primary = primary(gpu);
        let before = primary.retained;
        primary.retained = before.saturating_sub(1);
        (before, primary.context)
    };
    let is_last = before <= 1;
    let code = if is_last {
        let contents = tenant.kept.take_of_context(primary_of(gpu.device));
        // Others may hold it past us, or have taken hold of it meanwhile.
        with_contents(tenant, contents, context, call, || !is_active(gpu.device))
    } else {
        call()
    };
    let mut primary = primary(gpu);
    if code != SUCCESS {
        primary.retained = primary.retained.saturating_add(before.min(1));
    } else if is_last && !is_active(gpu.device) {
        let booked = primary.booked.take().unwrap_or(0);
        primary.context = 0;
        drop(primary);
        gpu.release(Kind::Context, Amount::Own(booked));
        own::context_gone(gpu);
        super::settle(tenant);
    }
    code
}

/// Whether the process has a primary context of the GPU.
fn is_active(device: Device) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: places of ours.
    let code = unsafe { driver::primary_state(device, &raw mut flags, &raw mut active) };
    code == SUCCESS && active != 0
}

/// The contents go. The context itself stays in the books while it is retained: the driver makes it
/// anew at the next use.
unsafe fn reset(call: impl Fn() -> Code, device: Device) -> Code {
    let tenant = capped!(call);
    let Some(gpu) = tenant.gpu(device) else { return call() };
    let context = primary(gpu).context;
    let contents = tenant.kept.take_of_context(primary_of(device));
    let code = with_contents(tenant, contents, context, call, || true);
    if code == SUCCESS {
        own::context_gone(gpu);
        super::settle(tenant);
    }
    code
}

unsafe fn create_green(
    call: impl Fn() -> Code,
    to: *mut Handle,
    _resources: *mut c_void,
    device: Device,
    _flags: c_uint,
) -> Code {
    let (tenant, gpu) = given!(ground::for_context(device), call);
    let undo = || {
        // SAFETY: made just before, and nobody knows it yet.
        unsafe {
            if let Some(green) = read(to) {
                driver::destroy_green(green);
            }
        }
    };
    if let Err(code) = held_once_more(tenant, gpu, call, undo) {
        // SAFETY: the client's place, or null.
        unsafe { write(to, std::ptr::null_mut()) };
        return code;
    }
    // SAFETY: the driver has written it.
    if let Some(green) = unsafe { read(to) } {
        primary(gpu).greens.push(green.addr());
    }
    SUCCESS
}

unsafe fn destroy_green(call: impl Fn() -> Code, green: Handle) -> Code {
    let tenant = capped!(call);
    // Before the call: afterwards the address may be another's.
    let taken = |gpu: &&Gpu| {
        let greens = &mut primary(gpu).greens;
        let at = greens.iter().position(|known| *known == green.addr());
        at.map(|at| greens.swap_remove(at)).is_some()
    };
    let Some(gpu) = tenant.gpus().find(taken) else { return call() };
    let (context, ending) = (compute::context_of_green(green), compute::ending());
    let code = let_go(tenant, gpu, call);
    if code != SUCCESS {
        primary(gpu).greens.push(green.addr());
    } else {
        ending.context_gone(context);
    }
    code
}
