//! Arrays and mipmapped arrays. Their size follows from their shape; the driver rounds it up to its
//! blocks as it does plain memory.

use std::ffi::{c_int, c_uint};

use caps::Kind;

use super::amount::Amount;
use super::ground::{self, booked, capped, given, keep};
use super::kept::Name;
use crate::abi::{
    Array3dShape, ArrayShape, Code, Handle, NOT_FOUND, OldArray3dShape, OldArrayShape, SUCCESS,
    read,
};
use crate::entry::hooks::hooks;

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: memory is mapped later, by hand.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

hooks! { NOT_FOUND;
    fn create(to: *mut Handle, shape: *const ArrayShape) as "cuArrayCreate": cuArrayCreate_v2 3020;
    fn create_old(to: *mut Handle, shape: *const OldArrayShape) as "cuArrayCreate":
        cuArrayCreate 2000;
    fn create_3d(to: *mut Handle, shape: *const Array3dShape) as "cuArray3DCreate":
        cuArray3DCreate_v2 3020;
    fn create_3d_old(to: *mut Handle, shape: *const OldArray3dShape) as "cuArray3DCreate":
        cuArray3DCreate 2000;
    fn create_mipmapped(
        to: *mut Handle, shape: *const Array3dShape, levels: c_uint
    ) as "cuMipmappedArrayCreate":
        cuMipmappedArrayCreate 5000;
    fn destroy(array: Handle) as "cuArrayDestroy": cuArrayDestroy 2000;
    fn destroy_mipmapped(array: Handle) as "cuMipmappedArrayDestroy": cuMipmappedArrayDestroy 5000;
}

/// Bits of one element with all its channels (`CUarray_format`, `cuda.h`). Formats of video in planes,
/// which are rare, count as their largest.
fn element_bits(format: c_int, channels: u32) -> u64 {
    let channels = u64::from(channels.max(1));
    match format {
        0x01 | 0x08 => channels.saturating_mul(8),
        0x02 | 0x09 | 0x10 => channels.saturating_mul(16),
        0x03 | 0x0a | 0x20 => channels.saturating_mul(32),
        // Compressed in blocks of 4 x 4: 8 or 16 bytes.
        0x91 | 0x92 | 0x97 | 0x98 => 4,
        0x93..=0x96 | 0x99..=0x9e => 8,
        0xc0 | 0xc6 => 8,
        0xc1 | 0xc3 | 0xc7 | 0xc9 => 16,
        0xc2 | 0xc4 | 0xc8 | 0xca => 32,
        0xc5 | 0xcb => 64,
        // NV12 and 8-bit 4:2:0.
        0xb0 | 0x53 | 0x59 => 12,
        0x50 | 0xa5 | 0xa8 | 0xa9 => 32,
        _ => 64,
    }
}

/// What a shape takes, in bytes. Sides that are not used are 0.
fn size(shape: &Array3dShape) -> u64 {
    if shape.flags & WITHOUT_MEMORY != 0 {
        return 0;
    }
    let side = |length: usize| (length as u64).max(1);
    let elements =
        side(shape.width).saturating_mul(side(shape.height)).saturating_mul(side(shape.depth));
    elements.saturating_mul(element_bits(shape.format, shape.channels)).div_ceil(8)
}

/// All levels of a shape: each half as long as the one before, to 1 at least. Layers (flag 1) and the
/// faces of a cube (flag 4) stay as many as they are.
fn size_of_levels(shape: &Array3dShape, levels: u32) -> u64 {
    const LAYERS: u32 = 0x01 | 0x04;
    let mut shape = *shape;
    let mut sum = 0_u64;
    // No side is longer than 2^63.
    for _ in 0..levels.clamp(1, 64) {
        sum = sum.saturating_add(size(&shape));
        shape.width = (shape.width >> 1).max(1);
        shape.height = if shape.height > 0 { (shape.height >> 1).max(1) } else { 0 };
        if shape.flags & LAYERS == 0 && shape.depth > 0 {
            shape.depth = (shape.depth >> 1).max(1);
        }
    }
    sum
}

/// Counts an array of so many bytes; `None` if the client gave no shape.
unsafe fn counted(call: impl Fn() -> Code, to: *mut Handle, bytes: Option<u64>) -> Code {
    let Some(bytes) = bytes else { return call() };
    let (tenant, gpu) = given!(ground::current(), call);
    let amount = Amount::of(bytes);
    let code = booked(tenant, gpu, Kind::Array, amount, call);
    // SAFETY: the driver has written it.
    if let (SUCCESS, Some(array)) = (code, unsafe { read(to) }) {
        keep(tenant, gpu, Name::Array(array.addr() as u64), Kind::Array, amount);
    }
    code
}

unsafe fn create(call: impl Fn() -> Code, to: *mut Handle, shape: *const ArrayShape) -> Code {
    // SAFETY: the caller's.
    let shape = unsafe { read(shape) };
    let bytes = shape.map(|ArrayShape { width, height, format, channels }| {
        size(&Array3dShape { width, height, depth: 0, format, channels, flags: 0 })
    });
    // SAFETY: the caller's.
    unsafe { counted(call, to, bytes) }
}

unsafe fn create_old(
    call: impl Fn() -> Code,
    to: *mut Handle,
    shape: *const OldArrayShape,
) -> Code {
    // SAFETY: the caller's.
    let shape = unsafe { read(shape) };
    let bytes = shape.map(|OldArrayShape { width, height, format, channels }| {
        let (width, height) = (width as usize, height as usize);
        size(&Array3dShape { width, height, depth: 0, format, channels, flags: 0 })
    });
    // SAFETY: the caller's.
    unsafe { counted(call, to, bytes) }
}

unsafe fn create_3d(call: impl Fn() -> Code, to: *mut Handle, shape: *const Array3dShape) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, read(shape).map(|shape| size(&shape))) }
}

unsafe fn create_3d_old(
    call: impl Fn() -> Code,
    to: *mut Handle,
    shape: *const OldArray3dShape,
) -> Code {
    // SAFETY: the caller's.
    let shape = unsafe { read(shape) };
    let bytes = shape.map(|OldArray3dShape { width, height, depth, format, channels, flags }| {
        let (width, height, depth) = (width as usize, height as usize, depth as usize);
        size(&Array3dShape { width, height, depth, format, channels, flags })
    });
    // SAFETY: the caller's.
    unsafe { counted(call, to, bytes) }
}

unsafe fn create_mipmapped(
    call: impl Fn() -> Code,
    to: *mut Handle,
    shape: *const Array3dShape,
    levels: c_uint,
) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, read(shape).map(|shape| size_of_levels(&shape, levels))) }
}

unsafe fn destroy(call: impl Fn() -> Code, array: Handle) -> Code {
    let tenant = capped!(call);
    ground::given_back(tenant, Name::Array(array.addr() as u64), call)
}

unsafe fn destroy_mipmapped(call: impl Fn() -> Code, array: Handle) -> Code {
    // SAFETY: the caller's.
    unsafe { destroy(call, array) }
}
