//! The way to the GPU driver: loads NVML and finds devices and functions in it.
//!
//! R510 is the oldest driver that suffices: memory is asked for by `nvmlDeviceGetMemoryInfo_v2`, which
//! came with it. What newer ones add is looked for, and told where it is missing.
//!
//! Reads go through `nvml-wrapper`; MIG instances through its raw table (`mig::raw`); functions that
//! are newer than the table are looked up by name with [`Driver::symbol`].

mod error;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

pub(crate) use error::check;
pub use error::{DriverError, Fault};

/// Names another library than the system's.
pub const LIBRARY_VARIABLE: &str = "HOTPOT_NVML";
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The loaded driver library. It may be shared between threads.
#[derive(Debug)]
pub struct Driver {
    nvml: Nvml,
    library: libloading::Library,
    path: PathBuf,
}

impl Driver {
    /// Loads the library that `HOTPOT_NVML` names, or the system's.
    ///
    /// # Errors
    /// See [`Driver::open_library`].
    pub fn open() -> Result<Self, DriverError> {
        let named = std::env::var_os(LIBRARY_VARIABLE).filter(|name| !name.is_empty());
        Self::open_library(Path::new(named.as_deref().unwrap_or(OsStr::new(LIBRARY))))
    }

    /// Loads the library in a file.
    ///
    /// # Errors
    /// [`DriverError::NoLibrary`] if it is not there or not a library; [`Fault::NotLoaded`] and
    /// others if it finds no driver in the kernel.
    pub fn open_library(path: &Path) -> Result<Self, DriverError> {
        let no_library = |why: String| DriverError::NoLibrary { path: path.to_owned(), why };
        let nvml = match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => nvml,
            Err(NvmlError::LibloadingError(error)) => return Err(no_library(error.to_string())),
            Err(error) => return Err(DriverError::of("nvmlInit_v2")(error)),
        };
        let library = load(path).map_err(|error| no_library(error.to_string()))?;
        Ok(Self { nvml, library, path: path.to_owned() })
    }

    /// The wrapper's face, for everything that only reads.
    pub fn nvml(&self) -> &Nvml {
        &self.nvml
    }

    /// The library's file or name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The GPU, or the MIG device, with a UUID.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::Lost`] and others, naming the GPU.
    pub fn device(&self, uuid: &str) -> Result<Device<'_>, DriverError> {
        let call = DriverError::of("nvmlDeviceGetHandleByUUID");
        self.nvml.device_by_uuid(uuid).map_err(|error| call(error).on(uuid))
    }

    /// A function by its name, for those that the table lacks.
    ///
    /// # Errors
    /// [`Fault::TooOld`] if the library does not have it.
    ///
    /// # Safety
    /// `T` must be the type of that function in NVIDIA's header.
    #[allow(unsafe_code, reason = "a symbol's type is known only to the caller")]
    pub unsafe fn symbol<T: Copy>(&self, name: &'static str) -> Result<T, DriverError> {
        // SAFETY: the caller vouches for the type; the library stays loaded as long as `self`,
        // and what is returned is used through `self` only.
        let found = unsafe { self.library.get::<T>(name) };
        found.map(|symbol| *symbol).map_err(|_| DriverError::call(name, Fault::TooOld))
    }

    /// Whether the library has a function.
    pub fn has(&self, name: &'static str) -> bool {
        #[allow(unsafe_code, reason = "the address is looked at, not called")]
        // SAFETY: only presence is asked for.
        unsafe {
            self.symbol::<*const ()>(name).is_ok()
        }
    }
}

#[allow(unsafe_code, reason = "loading a library runs its constructors")]
fn load(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: this very library has just been loaded by the wrapper; this only counts it once more.
    unsafe { libloading::Library::new(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_says_the_way_on() {
        let error =
            Driver::open_library(Path::new("/nowhere/libnvidia-ml.so.1")).expect_err("none");
        let text = error.to_string();
        assert!(text.contains("/nowhere/libnvidia-ml.so.1"), "{text}");
        assert!(text.contains("--simulate-gpus"), "{text}");
    }
}
