//! `cuMemAlloc` and its relatives.

use std::ffi::c_uint;

use caps::Kind;

use super::amount::Amount;
use super::ground::{self, booked, capped, correct, given, keep};
use super::kept::Name;
use crate::abi::{Code, DevicePtr, NOT_FOUND, OUT_OF_MEMORY, OldPtr, SUCCESS, read};
use crate::driver;
use crate::entry::hooks::hooks;

/// What rows of pitched memory are rounded up to before the driver has said it, in bytes.
const PITCH: u64 = 512;

hooks! { NOT_FOUND;
    fn allocate(to: *mut DevicePtr, bytes: usize) as "cuMemAlloc": cuMemAlloc_v2 3020;
    fn allocate_old(to: *mut OldPtr, bytes: c_uint) as "cuMemAlloc": cuMemAlloc 2000;
    fn allocate_pitch(
        to: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize, element: c_uint
    ) as "cuMemAllocPitch":
        cuMemAllocPitch_v2 3020;
    fn allocate_pitch_old(
        to: *mut OldPtr, pitch: *mut c_uint, width: c_uint, height: c_uint, element: c_uint
    ) as "cuMemAllocPitch":
        cuMemAllocPitch 2000;
    fn allocate_managed(to: *mut DevicePtr, bytes: usize, flags: c_uint) as "cuMemAllocManaged":
        cuMemAllocManaged 6000;
    fn free(address: DevicePtr) as "cuMemFree": cuMemFree_v2 3020;
    fn free_old(address: OldPtr) as "cuMemFree": cuMemFree 2000;
}

/// Counts memory of a known size, whatever the width of the address.
unsafe fn linear<Address: Copy + Into<u64>>(
    call: impl Fn() -> Code,
    to: *mut Address,
    bytes: u64,
    kind: Kind,
) -> Code {
    let (tenant, gpu) = given!(ground::current(), call);
    let amount = Amount::of(bytes);
    let code = booked(tenant, gpu, kind, amount, call);
    // SAFETY: the driver has written it.
    if let (SUCCESS, Some(address)) = (code, unsafe { read(to) }) {
        keep(tenant, gpu, Name::Address(address.into()), kind, amount);
    }
    code
}

unsafe fn allocate(call: impl Fn() -> Code, to: *mut DevicePtr, bytes: usize) -> Code {
    // SAFETY: the caller's.
    unsafe { linear(call, to, bytes as u64, Kind::Plain) }
}

unsafe fn allocate_old(call: impl Fn() -> Code, to: *mut OldPtr, bytes: c_uint) -> Code {
    // SAFETY: the caller's.
    unsafe { linear(call, to, bytes.into(), Kind::Plain) }
}

unsafe fn allocate_managed(
    call: impl Fn() -> Code,
    to: *mut DevicePtr,
    bytes: usize,
    _flags: c_uint,
) -> Code {
    // SAFETY: the caller's.
    unsafe { linear(call, to, bytes as u64, Kind::Managed) }
}

/// Counts rows: as wide as they are expected to be before the call, as they are after it.
unsafe fn pitched<Address: Copy + Into<u64>, Pitch: Copy + TryInto<u64>>(
    call: impl Fn() -> Code,
    to: *mut Address,
    pitch: *mut Pitch,
    (width, height): (u64, u64),
) -> Code {
    let (tenant, gpu) = given!(ground::current(), call);
    let row = width.checked_next_multiple_of(PITCH).unwrap_or(u64::MAX);
    let expected = Amount::of(row.saturating_mul(height));
    let code = booked(tenant, gpu, Kind::Plain, expected, call);
    // SAFETY: the driver has written them.
    let (address, pitch) = unsafe { (read(to), read(pitch)) };
    let (SUCCESS, Some(address)) = (code, address) else { return code };
    let address = address.into();
    let row = pitch.and_then(|pitch| pitch.try_into().ok()).unwrap_or(row);
    let actual = Amount::of(row.saturating_mul(height));
    if correct(gpu, Kind::Plain, expected, actual) {
        // SAFETY: allocated above, and nobody knows it yet.
        unsafe { driver::free(address) };
        gpu.release(Kind::Plain, actual);
        return OUT_OF_MEMORY;
    }
    keep(tenant, gpu, Name::Address(address), Kind::Plain, actual);
    code
}

unsafe fn allocate_pitch(
    call: impl Fn() -> Code,
    to: *mut DevicePtr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    _element: c_uint,
) -> Code {
    // SAFETY: the caller's.
    unsafe { pitched(call, to, pitch, (width as u64, height as u64)) }
}

unsafe fn allocate_pitch_old(
    call: impl Fn() -> Code,
    to: *mut OldPtr,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    _element: c_uint,
) -> Code {
    // SAFETY: the caller's.
    unsafe { pitched(call, to, pitch, (width.into(), height.into())) }
}

unsafe fn free(call: impl Fn() -> Code, address: DevicePtr) -> Code {
    let tenant = capped!(call);
    let name = Name::Address(address);
    if tenant.kept.get(name).is_some() {
        return ground::given_back(tenant, name, call);
    }
    let code = tenant.pools.given_back(tenant, address, call);
    if code == SUCCESS {
        // Not one of ours by address: it is of a pool or of a graph.
        super::settle(tenant);
    }
    code
}

unsafe fn free_old(call: impl Fn() -> Code, address: OldPtr) -> Code {
    // SAFETY: the caller's.
    unsafe { free(call, address.into()) }
}
