//! Memory limits that the driver itself holds on a cgroup: hard, whatever the tenant does.
//!
//! NVML's newest calls, root only: driver r615 or newer, cgroup v2, no MIG devices. Layouts and codes
//! are read in NVIDIA's header `nvml.h` 13.5 (`nvmlSetMemoryLimits_v1_t`, `nvmlGetMemoryLimits_v1_t`).
//! Whether a machine can do it is found by trying on a scratch cgroup, see [`probe`].

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::nvmlDevice_t;
use thiserror::Error;

use crate::backend::Enforcement;
use crate::driver::{Driver, DriverError, check};

const SET: &str = "nvmlDeviceSetMemoryLimits_v1";
const GET: &str = "nvmlDeviceGetMemoryLimits_v1";
/// NVML's word for no limit.
const UNLIMITED: u64 = u64::MAX;
/// How long a folder may stay busy after its last process has ended.
const PATIENCE: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;
const TOO_OLD: &str = "the driver lacks them; r615 or newer has them";
/// Limit that the probe sets on an empty cgroup.
const PROBE_MIB: u64 = 64;

/// `nvmlSetMemoryLimits_v1_t`.
#[repr(C)]
struct RawSet {
    name_space: *const c_char,
    soft_limit: u64,
    hard_limit: u64,
}

/// `nvmlGetMemoryLimits_v1_t`.
#[repr(C)]
struct RawGet {
    name_space: *const c_char,
    soft_limit: u64,
    hard_limit: u64,
    current_used: u64,
}

type SetCall = unsafe extern "C" fn(nvmlDevice_t, *mut RawSet) -> u32;
type GetCall = unsafe extern "C" fn(nvmlDevice_t, *mut RawGet) -> u32;

/// Why a limit cannot be set or read.
#[derive(Debug, Error)]
pub enum LimitError {
    /// The driver refuses.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The cgroup's folder cannot be made or removed, or its name holds a zero byte.
    #[error("{}: {source}; hotpot needs a cgroup v2 folder that it may write to", path.display())]
    Cgroup {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The limit does not fit into 64 bits of bytes.
    #[error("{0} MiB is no amount of device memory")]
    Amount(u64),
}

/// What is in force for one cgroup on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Allocations beyond this fail, in MiB; `None` for no limit.
    pub hard_mib: Option<u64>,
    /// In use now, in MiB, rounded up.
    pub used_mib: u64,
}

/// The driver's two calls.
#[derive(Debug)]
pub struct MemoryLimits<'driver> {
    set: SetCall,
    get: GetCall,
    driver: &'driver Driver,
}

impl<'driver> MemoryLimits<'driver> {
    /// Finds the calls.
    ///
    /// # Errors
    /// [`crate::driver::Fault::TooOld`] if the driver lacks them.
    #[allow(unsafe_code, reason = "two functions that the table lacks")]
    pub fn of(driver: &'driver Driver) -> Result<Self, DriverError> {
        // SAFETY: the types are those of the header.
        let (set, get) = unsafe { (driver.symbol(SET)?, driver.symbol(GET)?) };
        Ok(Self { set, get, driver })
    }

    /// Limits what the processes of a cgroup may allocate on a GPU.
    ///
    /// * `gpu` — UUID of the physical GPU.
    ///
    /// # Errors
    /// The driver's refusal: not root, more than the GPU has, no such cgroup.
    pub fn set(&self, gpu: &str, cgroup: &Path, hard_mib: u64) -> Result<(), LimitError> {
        let bytes = hard_mib.checked_mul(MIB).ok_or(LimitError::Amount(hard_mib))?;
        self.set_bytes(gpu, cgroup, bytes)
    }

    /// Takes the limit away.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn clear(&self, gpu: &str, cgroup: &Path) -> Result<(), LimitError> {
        self.set_bytes(gpu, cgroup, UNLIMITED)
    }

    #[allow(unsafe_code, reason = "a call that the table lacks")]
    fn set_bytes(&self, gpu: &str, cgroup: &Path, bytes: u64) -> Result<(), LimitError> {
        let (device, name) = (self.driver.device(gpu)?, c_path(cgroup)?);
        let mut limits = RawSet { name_space: name.as_ptr(), soft_limit: 0, hard_limit: bytes };
        // SAFETY: the handle is of this library, `limits` and `name` outlive the call.
        let code = unsafe { (self.set)(handle(&device), &raw mut limits) };
        Ok(check(SET, code).map_err(|error| error.on(gpu))?)
    }

    /// What is in force.
    ///
    /// # Errors
    /// The driver's refusal.
    #[allow(unsafe_code, reason = "a call that the table lacks")]
    pub fn get(&self, gpu: &str, cgroup: &Path) -> Result<InForce, LimitError> {
        let (device, name) = (self.driver.device(gpu)?, c_path(cgroup)?);
        let mut limits =
            RawGet { name_space: name.as_ptr(), soft_limit: 0, hard_limit: 0, current_used: 0 };
        // SAFETY: the handle is of this library, `limits` and `name` outlive the call.
        let code = unsafe { (self.get)(handle(&device), &raw mut limits) };
        check(GET, code).map_err(|error| error.on(gpu))?;
        let hard_mib = (limits.hard_limit != UNLIMITED).then_some(limits.hard_limit / MIB);
        Ok(InForce { hard_mib, used_mib: limits.current_used.div_ceil(MIB) })
    }
}

#[allow(unsafe_code, reason = "the handle goes to calls of the same library")]
fn handle(device: &Device<'_>) -> nvmlDevice_t {
    // SAFETY: only handed to a call while `device` lives.
    unsafe { device.handle() }
}

fn c_path(path: &Path) -> Result<CString, LimitError> {
    let zero =
        |_| LimitError::Cgroup { path: path.into(), source: io::ErrorKind::InvalidInput.into() };
    CString::new(path.as_os_str().as_bytes()).map_err(zero)
}

/// A cgroup of our own, below a folder that may be divided.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes the cgroup of a tenant, or takes the one that is there.
    ///
    /// * `parent` — a cgroup v2 folder that has been delegated to us.
    /// * `name` — one word, unique among the parent's children.
    ///
    /// # Errors
    /// The system's, with the folder.
    pub fn create(parent: &Path, name: &str) -> Result<Self, LimitError> {
        let path = parent.join(name);
        let word = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        let made =
            if word { fs::create_dir(&path) } else { Err(io::ErrorKind::InvalidInput.into()) };
        match made {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => {
                Err(LimitError::Cgroup { path, source })
            }
            _ => Ok(Self(path)),
        }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Moves a process and its threads in; children that it makes later are in it too.
    ///
    /// # Errors
    /// The system's: no such process, or not permitted.
    pub fn add(&self, pid: u32) -> Result<(), LimitError> {
        let path = self.0.join("cgroup.procs");
        fs::write(&path, pid.to_string()).map_err(|source| LimitError::Cgroup { path, source })
    }

    /// Removes it, which also removes its limits; that it is gone already is fine.
    ///
    /// # Errors
    /// Processes are still in it, or the system's.
    pub fn remove(self) -> Result<(), LimitError> {
        let begun = Instant::now();
        loop {
            match fs::remove_dir(&self.0) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy
                        && begun.elapsed() < PATIENCE =>
                {
                    sleep(Duration::from_millis(5));
                }
                Err(source) => return Err(LimitError::Cgroup { path: self.0, source }),
            }
        }
    }
}

/// Whether the driver holds memory limits on this GPU: sets one on a scratch cgroup and reads it back.
///
/// * `parent` — the cgroup below which tenants would get theirs; `None` if we have none.
pub fn probe(driver: &Driver, gpu: &str, parent: Option<&Path>) -> Enforcement {
    let limits = match MemoryLimits::of(driver) {
        Ok(limits) => limits,
        Err(_) => return absent(TOO_OLD),
    };
    let Some(parent) = parent else {
        return absent("no cgroup v2 folder has been delegated to hotpot");
    };
    let scratch = match Cgroup::create(parent, &format!("hotpot-probe-{}", std::process::id())) {
        Ok(scratch) => scratch,
        Err(error) => return absent(&error.to_string()),
    };
    let tried = try_on(&limits, gpu, scratch.path());
    // What was found out counts, whether or not the scratch folder can be removed.
    let _left = scratch.remove();
    match tried {
        Ok(Some(PROBE_MIB)) => Enforcement::Hard,
        Ok(other) => absent(&format!("set to {PROBE_MIB} MiB, the driver reports {other:?}")),
        Err(error) => absent(&error.to_string()),
    }
}

/// What can be said without trying, for those who only look: whether the driver has the calls.
pub fn untried(driver: &Driver) -> Enforcement {
    match MemoryLimits::of(driver) {
        Ok(_) => {
            Enforcement::Unknown("not tried: whoever grants a share tries it on a cgroup".into())
        }
        Err(_) => absent(TOO_OLD),
    }
}

fn try_on(limits: &MemoryLimits<'_>, gpu: &str, cgroup: &Path) -> Result<Option<u64>, LimitError> {
    limits.set(gpu, cgroup, PROBE_MIB)?;
    let found = limits.get(gpu, cgroup)?.hard_mib;
    limits.clear(gpu, cgroup)?;
    Ok(found)
}

fn absent(why: &str) -> Enforcement {
    Enforcement::Absent(format!("memory limits on a cgroup: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and offsets of the header's structures on 64-bit machines.
    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<RawSet>(), 24);
        assert_eq!(size_of::<RawGet>(), 32);
        assert_eq!(std::mem::offset_of!(RawSet, hard_limit), 16);
        assert_eq!(std::mem::offset_of!(RawGet, current_used), 24);
    }

    #[test]
    fn a_cgroup_stays_below_its_parent() {
        let parent = std::env::temp_dir().join(format!("hotpot-cgroup-{}", std::process::id()));
        fs::create_dir_all(&parent).unwrap();
        for name in ["", "..", "a/b", "."] {
            assert!(Cgroup::create(&parent, name).is_err(), "{name}");
        }
        let first = Cgroup::create(&parent, "task").unwrap();
        let again = Cgroup::create(&parent, "task").unwrap();
        assert_eq!(first.path(), again.path());
        first.remove().unwrap();
        again.remove().unwrap();
        fs::remove_dir(&parent).unwrap();
    }
}
