//! NVML as a client sees it: what it says of a GPU's memory and of the processes on it. Names and types:
//! NVIDIA's `nvml.h`.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use libloading::Library;

/// Processes that are asked for at most.
const PROCESSES_MAX: usize = 64;

/// What NVML shows of a GPU. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) total: u64,
    pub(crate) used: u64,
    /// By process; `None` for what the driver does not tell.
    pub(crate) processes: Vec<(u32, Option<u64>)>,
}

#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    used: u64,
    instance: c_uint,
    part: c_uint,
}

type Init = unsafe extern "C" fn() -> c_int;
type ByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type MemoryInfo = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;
type Processes = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessInfo) -> c_int;

/// NVML.
pub(crate) struct Monitor(Library);

impl Monitor {
    pub(crate) fn open() -> Result<Self, String> {
        // SAFETY: NVIDIA's library, or one that stands for it; loading it has no other effect.
        let library = unsafe { Library::new("libnvidia-ml.so.1") };
        let library = library.map_err(|error| format!("libnvidia-ml.so.1: {error}"))?;
        let monitor = Self(library);
        // SAFETY: the type is that of NVIDIA's header.
        let init = unsafe { monitor.0.get::<Init>(b"nvmlInit_v2") }.map_err(|e| e.to_string())?;
        // SAFETY: it takes nothing.
        said("nvmlInit_v2", unsafe { init() })?;
        Ok(monitor)
    }

    /// * `uuid` — with the word before it.
    pub(crate) fn see(&self, uuid: &str) -> Result<Seen, String> {
        let (name, mut device) = (CString::new(uuid).unwrap_or_default(), null_mut());
        let missing = |error: libloading::Error| error.to_string();
        // SAFETY: the types are those of NVIDIA's header.
        let (by_uuid, memory_info, list) = unsafe {
            (
                self.0.get::<ByUuid>(b"nvmlDeviceGetHandleByUUID").map_err(missing)?,
                self.0.get::<MemoryInfo>(b"nvmlDeviceGetMemoryInfo").map_err(missing)?,
                self.0.get::<Processes>(b"nvmlDeviceGetComputeRunningProcesses_v3").ok(),
            )
        };
        let mut memory = Memory::default();
        // SAFETY: places of ours, and a handle that NVML has given.
        unsafe {
            said("nvmlDeviceGetHandleByUUID", by_uuid(name.as_ptr(), &raw mut device))?;
            said("nvmlDeviceGetMemoryInfo", memory_info(device, &raw mut memory))?;
        }
        let (mut count, mut infos) =
            (PROCESSES_MAX as c_uint, [ProcessInfo::default(); PROCESSES_MAX]);
        // SAFETY: as above; there is room for as many as are said.
        let listed = list
            .is_some_and(|list| unsafe { list(device, &raw mut count, infos.as_mut_ptr()) == 0 });
        let shown = if listed { count as usize } else { 0 };
        let known = |used: u64| (used != u64::MAX).then_some(used);
        let processes = infos.iter().take(shown).map(|info| (info.pid, known(info.used)));
        Ok(Seen { total: memory.total, used: memory.used, processes: processes.collect() })
    }
}

fn said(call: &str, code: c_int) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("{call} answered {code}")) }
}
