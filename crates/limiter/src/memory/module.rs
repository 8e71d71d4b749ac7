//! Modules and libraries of code: their code and variables take memory when they are loaded.
//!
//! Where NVML shows this process, `own` finds what they take: also what is loaded at first use, as is
//! usual. Else what the driver's free memory has shrunk by counts, less what the tenant's own books have
//! grown by, and not more than a little: others may take memory at the same time.

use std::ffi::{c_uint, c_void};

use caps::Kind;

use super::amount::Amount;
use super::ground::{self, capped, given, keep};
use super::kept::Name;
use super::own;
use crate::abi::{Code, Handle, NOT_FOUND, SUCCESS, read, write};
use crate::entry::hooks::hooks;
use crate::tenant::Tenant;
use crate::{compute, driver};

hooks! { NOT_FOUND;
    fn load(to: *mut Handle, path: *const c_void) as "cuModuleLoad": cuModuleLoad 2000;
    fn load(to: *mut Handle, image: *const c_void) as "cuModuleLoadData": cuModuleLoadData 2000;
    fn load(to: *mut Handle, image: *const c_void) as "cuModuleLoadFatBinary":
        cuModuleLoadFatBinary 2000;
    fn load_with(
        to: *mut Handle, image: *const c_void, count: c_uint, options: *mut c_void,
        values: *mut c_void
    ) as "cuModuleLoadDataEx":
        cuModuleLoadDataEx 2010;
    fn unload(module: Handle) as "cuModuleUnload": cuModuleUnload 2000;
    fn library(
        to: *mut Handle, code: *const c_void, jit: *mut c_void, jit_values: *mut c_void,
        jits: c_uint, options: *mut c_void, values: *mut c_void, count: c_uint
    ) as "cuLibraryLoadData":
        cuLibraryLoadData 12000;
    fn library(
        to: *mut Handle, path: *const c_void, jit: *mut c_void, jit_values: *mut c_void,
        jits: c_uint, options: *mut c_void, values: *mut c_void, count: c_uint
    ) as "cuLibraryLoadFromFile":
        cuLibraryLoadFromFile 12000;
    fn unload_library(library: Handle) as "cuLibraryUnload": cuLibraryUnload 12000;
}

/// What is loaded, and how it is ended again.
#[derive(Clone, Copy)]
struct Sort {
    name: fn(u64) -> Name,
    end: unsafe fn(Handle) -> Code,
}

const MODULE: Sort = Sort { name: Name::Module, end: driver::unload_module };
const LIBRARY: Sort = Sort { name: Name::Library, end: driver::unload_library };

/// Counts what a load takes.
unsafe fn counted(call: impl Fn() -> Code, to: *mut Handle, sort: Sort) -> Code {
    let (tenant, gpu) = given!(ground::current(), call);
    if compute::any_capturing() {
        return call();
    }
    if own::is_known(gpu) {
        return own::beside(tenant, call);
    }
    let (code, taken) = own::shrunk(gpu, call);
    // SAFETY: the driver has written it.
    let (SUCCESS, Some(loaded)) = (code, unsafe { read(to) }) else { return code };
    let amount = Amount::Own(taken);
    if let Err(over) = ground::reserve(tenant, gpu, Kind::Module, amount) {
        // SAFETY: loaded above; the client does not learn of it.
        unsafe {
            (sort.end)(loaded);
            write(to, std::ptr::null_mut());
        }
        return over;
    }
    keep(tenant, gpu, (sort.name)(loaded.addr() as u64), Kind::Module, amount);
    code
}

/// From a file or from an image.
unsafe fn load(call: impl Fn() -> Code, to: *mut Handle, _from: *const c_void) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, MODULE) }
}

unsafe fn load_with(
    call: impl Fn() -> Code,
    to: *mut Handle,
    _image: *const c_void,
    _count: c_uint,
    _options: *mut c_void,
    _values: *mut c_void,
) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, MODULE) }
}

unsafe fn unload(call: impl Fn() -> Code, module: Handle) -> Code {
    let tenant = capped!(call);
    unloaded(tenant, Name::Module(module.addr() as u64), call)
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
unsafe fn library(
    call: impl Fn() -> Code,
    to: *mut Handle,
    _from: *const c_void,
    _jit: *mut c_void,
    _jit_values: *mut c_void,
    _jits: c_uint,
    _options: *mut c_void,
    _values: *mut c_void,
    _count: c_uint,
) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, LIBRARY) }
}

unsafe fn unload_library(call: impl Fn() -> Code, library: Handle) -> Code {
    let tenant = capped!(call);
    unloaded(tenant, Name::Library(library.addr() as u64), call)
}

fn unloaded(tenant: &Tenant, name: Name, call: impl Fn() -> Code) -> Code {
    let code = ground::given_back(tenant, name, call);
    if code == SUCCESS {
        tenant.gpus().for_each(|gpu| own::changed(gpu, 0));
        compute::code_gone();
    }
    code
}
