//! What a client is shown of a GPU's memory: its cap as all there is, and what is left under it.

use crate::abi::{Code, Device, NOT_FOUND, SUCCESS, read, write};
use crate::driver;
use crate::entry::hooks::hooks;
use crate::memory::ground::capped;
use crate::tenant::Gpu;

hooks! { NOT_FOUND;
    fn info(free: *mut usize, total: *mut usize) as "cuMemGetInfo": cuMemGetInfo_v2 3020;
    fn info(free: *mut u32, total: *mut u32) as "cuMemGetInfo": cuMemGetInfo 2000;
    fn total(bytes: *mut usize, device: Device) as "cuDeviceTotalMem": cuDeviceTotalMem_v2 3020;
    fn total(bytes: *mut u32, device: Device) as "cuDeviceTotalMem": cuDeviceTotalMem 2000;
}

/// An amount as the driver shows it: of 64 bits, or of 32 in the functions before CUDA 3.2.
trait Figure: Copy + TryFrom<u64> + Ord {}
impl<Number: Copy + TryFrom<u64> + Ord> Figure for Number {}

/// A figure, no larger than another.
fn at_most<Number: Figure>(figure: Number, limit: u64) -> Number {
    // What does not fit is larger than any figure.
    Number::try_from(limit).map_or(figure, |limit| figure.min(limit))
}

/// Lowers what the driver has shown to what the tenant may have.
unsafe fn lower<Number: Figure>(gpu: &Gpu, free: *mut Number, total: *mut Number) {
    let Some(cap) = gpu.cap() else { return };
    // SAFETY: the driver has written them.
    unsafe {
        if let Some(shown) = read(free) {
            write(free, at_most(shown, cap.saturating_sub(gpu.held())));
        }
        if let Some(shown) = read(total) {
            write(total, at_most(shown, cap));
        }
    }
}

unsafe fn info<Number: Figure>(
    call: impl Fn() -> Code,
    free: *mut Number,
    total: *mut Number,
) -> Code {
    let tenant = capped!(call);
    let code = call();
    if let (SUCCESS, Some(gpu)) = (code, driver::device().and_then(|device| tenant.gpu(device))) {
        // SAFETY: the caller's.
        unsafe { lower(gpu, free, total) };
    }
    code
}

unsafe fn total<Number: Figure>(
    call: impl Fn() -> Code,
    bytes: *mut Number,
    device: Device,
) -> Code {
    let tenant = capped!(call);
    let code = call();
    if let (SUCCESS, Some(gpu)) = (code, tenant.gpu(device)) {
        // SAFETY: the caller's.
        unsafe { lower(gpu, std::ptr::null_mut(), bytes) };
    }
    code
}
