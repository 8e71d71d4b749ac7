//! Memory that another process has exported: `cuIpcOpenMemHandle`.
//!
//! What a process of the tenant has exported is in its books for as long as it has it, and then in those
//! of another that has it open. Memory of other tenants counts here.

use std::ffi::c_uint;

use caps::Kind;

use super::amount::{Amount, blocks};
use super::ground::{self, capped, given};
use super::kept::{Held, Name};
use crate::abi::{Code, DevicePtr, IpcHandle, NOT_FOUND, SUCCESS, read, write};
use crate::driver;
use crate::entry::hooks::hooks;
use crate::hash::fnv1a;

hooks! { NOT_FOUND;
    fn export(to: *mut IpcHandle, address: DevicePtr) as "cuIpcGetMemHandle":
        cuIpcGetMemHandle 4010;
    fn open(to: *mut DevicePtr, handle: IpcHandle, flags: c_uint) as "cuIpcOpenMemHandle":
        cuIpcOpenMemHandle 4010, cuIpcOpenMemHandle_v2 11000;
    fn close(address: DevicePtr) as "cuIpcCloseMemHandle": cuIpcCloseMemHandle 4010;
}

/// What a handle is known by in the books; never 0.
fn key(handle: &IpcHandle) -> u64 {
    fnv1a(&handle.0) | 1 << 63
}

/// Where the allocation around an address begins, and its bytes.
fn around(address: DevicePtr) -> Option<(DevicePtr, u64)> {
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: places of ours.
    let code = unsafe { driver::address_range(&raw mut base, &raw mut bytes, address) };
    (code == SUCCESS).then_some((base, bytes as u64))
}

unsafe fn export(call: impl Fn() -> Code, to: *mut IpcHandle, address: DevicePtr) -> Code {
    let (tenant, gpu) = given!(ground::current(), call);
    let code = call();
    // SAFETY: the driver has written it.
    if let (SUCCESS, Some(handle)) = (code, unsafe { read(to) })
        && let Some((base, bytes)) = around(address)
        && tenant.kept.set_key(Name::Address(base), key(&handle))
    {
        gpu.export(key(&handle), blocks(bytes));
    }
    code
}

unsafe fn open(
    call: impl Fn() -> Code,
    to: *mut DevicePtr,
    handle: IpcHandle,
    _flags: c_uint,
) -> Code {
    let (tenant, gpu) = given!(ground::current(), call);
    let code = call();
    // SAFETY: the driver has written it.
    let (SUCCESS, Some(address)) = (code, unsafe { read(to) }) else { return code };
    let name = Name::Opened(address);
    if tenant.kept.again(name) {
        return code;
    }
    let key = key(&handle);
    let ours = gpu.open(key);
    let bytes = around(address).map_or(0, |(_, bytes)| blocks(bytes));
    let (paid, unpaid) = if ours { (0, bytes) } else { (bytes, 0) };
    let (kind, amount) = (Kind::Imported, Amount::Own(paid));
    if let Err(over) = ground::reserve(tenant, gpu, kind, amount) {
        // SAFETY: opened above; the client does not learn of it.
        unsafe {
            driver::close_ipc(address);
            write(to, 0);
        }
        return over;
    }
    gpu.note_opened(unpaid, 0);
    let context = ground::context(tenant, gpu);
    let key = if ours { key } else { 0 };
    let held = Held { device: gpu.device, kind, amount, context, key, unpaid, ..Held::NONE };
    ground::note(tenant, name, held);
    code
}

unsafe fn close(call: impl Fn() -> Code, address: DevicePtr) -> Code {
    let tenant = capped!(call);
    let name = Name::Opened(address);
    let Some(held) = tenant.kept.take(name) else { return call() };
    let code = call();
    if code == SUCCESS && held.times <= 1 {
        ground::forget(tenant, held);
    } else {
        let less = u32::from(code == SUCCESS);
        ground::keep_again(tenant, name, Held { times: held.times.saturating_sub(less), ..held });
    }
    code
}
