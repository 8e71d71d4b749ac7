//! `cuGetProcAddress`: the way by which the CUDA runtime and most programs come to the driver.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::find_by_address;
use super::hooks::hooks;
use crate::abi::{Code, NOT_FOUND, SUCCESS, read, write};
use crate::{driver, log};

/// Flag: forms of functions in which stream 0 means the thread's own stream.
const PER_THREAD: u64 = 2;

/// The newest CUDA version whose functions the table was made for (1000 x major + 10 x minor).
const KNOWN: i32 = 13_050;

hooks! { NOT_FOUND;
    fn look_v1(
        name: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64
    ) as "cuGetProcAddress":
        cuGetProcAddress 11030;
    fn look_v2(
        name: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
    ) as "cuGetProcAddress":
        cuGetProcAddress_v2 12000;
}

unsafe fn look_v1(
    call: impl Fn() -> Code,
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Code {
    let code = call();
    if code == SUCCESS {
        // SAFETY: the driver has read and filled them.
        unsafe { replace(name, to, version, flags) };
    }
    code
}

unsafe fn look_v2(
    call: impl Fn() -> Code,
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    _status: *mut c_int,
) -> Code {
    // SAFETY: the same arguments.
    unsafe { look_v1(call, name, to, version, flags) }
}

/// Puts our function in the place of the one that the driver has found.
unsafe fn replace(name: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64) {
    if name.is_null() {
        return;
    }
    // SAFETY: the driver has read the name and written the address.
    let (asked, found) = unsafe { (CStr::from_ptr(name), read(to)) };
    let Some(found) = found.filter(|found| !found.is_null()) else { return };
    let per_thread = flags & PER_THREAD != 0;
    let Some(hook) = find_by_address(found, asked, version, per_thread) else { return };
    if version > KNOWN && found != as_known(name, flags) {
        newer_than_known(asked);
        return;
    }
    hook.real.offer(found);
    // SAFETY: as above.
    unsafe { write(to, hook.function.cast_mut()) };
}

/// The same function as of the newest CUDA version that we know; null if there is none.
fn as_known(name: *const c_char, flags: u64) -> *mut c_void {
    let mut known = std::ptr::null_mut();
    // SAFETY: the name is the caller's, the rest is ours.
    unsafe {
        if driver::proc_address(name, &raw mut known, KNOWN, flags, std::ptr::null_mut()) != SUCCESS
        {
            driver::proc_address_v1(name, &raw mut known, KNOWN, flags);
        }
    }
    known
}

/// A form of a function that is newer than this library has other arguments than our hook, which would
/// break the client; so it goes past us, and the log says so once.
fn newer_than_known(name: &CStr) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let name = name.to_str().unwrap_or("?");
        log::line(format_args!("{name} of a CUDA newer than {KNOWN} is not watched"));
    }
}
