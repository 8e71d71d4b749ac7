//! `cuInit`: where a process becomes one of its tenant's.

use std::ffi::c_uint;

use crate::abi::{Code, NOT_FOUND, SUCCESS};
use crate::entry::hooks::hooks;
use crate::tenant;

hooks! { NOT_FOUND;
    fn begin(flags: c_uint) as "cuInit": cuInit 2000;
}

unsafe fn begin(call: impl Fn() -> Code, _flags: c_uint) -> Code {
    let code = call();
    if code != SUCCESS {
        return code;
    }
    // A client that cannot be held to its caps does not begin.
    tenant::begin().err().unwrap_or(SUCCESS)
}
