//! Life of the library, and the system's versions and names.

use std::ffi::{CStr, c_char, c_int, c_uint};

use fake_machine::Code;
use nvml_wrapper_sys::bindings::nvmlReturn_t;

use crate::calls::{also, init, nvml, shut_down};
use crate::pointers::{put, put_text};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    init("nvmlInit_v2")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    init("nvmlInitWithFlags")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    shut_down("nvmlShutdown")
}

/// Needs no initialisation, and is not counted as a call.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let text: &CStr = match result {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires restart",
        17 => c"The operating system has blocked the request.",
        18 => c"RM has detected an NVML/RM version mismatch.",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"The requested vgpu operation is not available on the target device because ECC is enabled",
        23 => c"Insufficient Resources",
        24 => c"Frequency Not Supported",
        25 => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"Not Ready",
        28 => c"GPU Not Found",
        29 => c"Invalid State",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

nvml! {
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) |call| {
        put_text(version, length, &call.state.driver)
    }

    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) |call| {
        put_text(version, length, &call.state.nvml)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) |call| {
        put(version, call.state.cuda)
    }

    fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) |_| {
        let path = std::fs::read_link(format!("/proc/{pid}/exe")).map_err(|_| Code::NotFound)?;
        let path = path.to_string_lossy().into_owned();
        // Drivers cut what does not fit.
        let room = (length as usize).saturating_sub(1).min(path.len());
        let cut = (0..=room).rev().find_map(|end| path.get(..end)).unwrap_or("");
        put_text(name, length, cut)
    }
}

also! {
    fn nvmlInit() is nvmlInit_v2;
    fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) is nvmlSystemGetCudaDriverVersion_v2;
}
