//! The functions behind our hooks: those of the driver that the process has.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::entry::dlsym::{real_dlopen, real_dlsym};

/// A library whose functions we stand before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// The driver.
    Cuda,
    /// The management library.
    Nvml,
}

/// Handles of the libraries, once they are known to be loaded. Never closed, so that functions that we
/// have found stay.
static HANDLES: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];

impl Library {
    /// The library that has a function of this name.
    pub(crate) const fn of(name: &CStr) -> Self {
        match name.to_bytes().first() {
            Some(b'n') => Self::Nvml,
            _ => Self::Cuda,
        }
    }

    /// The name by which programs load it.
    const fn name(self) -> &'static CStr {
        match self {
            Self::Cuda => c"libcuda.so.1",
            Self::Nvml => c"libnvidia-ml.so.1",
        }
    }

    /// How its file is named, whatever its version.
    const fn stem(self) -> &'static [u8] {
        match self {
            Self::Cuda => b"libcuda.so",
            Self::Nvml => b"libnvidia-ml.so",
        }
    }

    /// Its handle; null if it is not loaded (and, if `load`, cannot be).
    fn handle(self, load: bool) -> *mut c_void {
        let [cuda, nvml] = &HANDLES;
        let known = match self {
            Self::Cuda => cuda,
            Self::Nvml => nvml,
        };
        let mut handle = known.load(Ordering::Relaxed);
        if handle.is_null() {
            let open = real_dlopen();
            // SAFETY: the name ends. A library that is loaded already is only counted.
            handle = unsafe { open(self.name().as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
            if handle.is_null() && load {
                // SAFETY: what the caller of our function must have done by some way.
                handle = unsafe { open(self.name().as_ptr(), libc::RTLD_NOW) };
            }
            known.store(handle, Ordering::Relaxed);
        }
        handle
    }
}

/// Whose a function is.
pub(crate) enum Owner {
    /// This library's.
    Ours,
    /// One's that we stand before.
    Other(Library),
}

/// Whose the function at an address is, if it is one of these.
pub(crate) fn owner(address: *const c_void) -> Option<Owner> {
    let about = about(address)?;
    if self::about(owner as *const c_void).is_some_and(|own| own.dli_fbase == about.dli_fbase) {
        return Some(Owner::Ours);
    }
    if about.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own string, which lives as long as the library.
    let path = unsafe { CStr::from_ptr(about.dli_fname) }.to_bytes();
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let known = [Library::Cuda, Library::Nvml];
    known.into_iter().find(|library| file.starts_with(library.stem())).map(Owner::Other)
}

/// What the loader knows of an address.
fn about(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: plain data, filled by the call.
    let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only looked up.
    (unsafe { libc::dladdr(address, &raw mut about) } != 0).then_some(about)
}

/// A function of a library, looked for once.
pub(crate) struct Real {
    name: &'static CStr,
    /// Null until looked for, [`MISSING`] if the library lacks it.
    found: AtomicPtr<c_void>,
}

/// Stands for "looked for and not there". No function lies at this address.
const MISSING: *mut c_void = std::ptr::without_provenance_mut(1);

impl Real {
    /// The function of this name, which ends with a NUL.
    pub(crate) const fn new(name: &'static str) -> Self {
        let name = match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// Its exported name.
    pub(crate) const fn name(&self) -> &'static CStr {
        self.name
    }

    /// Its address; `None` if the library lacks it. Loads the library if nobody has.
    #[inline]
    pub(crate) fn get(&self) -> Option<*mut c_void> {
        let found = self.found.load(Ordering::Relaxed);
        if found > MISSING { Some(found) } else { self.find(found, true) }
    }

    /// Whether the process has the library, and the function in it. Loads nothing.
    pub(crate) fn is_there(&self) -> bool {
        let found = self.found.load(Ordering::Relaxed);
        found > MISSING || self.find(found, false).is_some()
    }

    /// Whether it is at this address.
    pub(crate) fn is(&self, address: *const c_void) -> bool {
        self.is_there() && self.found.load(Ordering::Relaxed).cast_const() == address
    }

    /// What the driver has given as this function. Taken if it is not exported.
    pub(crate) fn offer(&self, address: *mut c_void) {
        if !self.is_there() && address > MISSING {
            self.found.store(address, Ordering::Relaxed);
        }
    }

    #[cold]
    fn find(&self, before: *mut c_void, load: bool) -> Option<*mut c_void> {
        if before == MISSING {
            return None;
        }
        let library = Library::of(self.name).handle(load);
        if library.is_null() {
            return None;
        }
        // SAFETY: a handle that is never closed, and a name that ends.
        let found = unsafe { real_dlsym()(library, self.name.as_ptr()) };
        self.found.store(if found.is_null() { MISSING } else { found }, Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}
