//! The same figures by NVML, for programs that ask there, such as `nvidia-smi`. They may never begin with
//! CUDA, so the caps are read on their own.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use caps::{Caps, Ledger, ProcessId, Standing};

use crate::abi::{Code, Handle, NVML_NOT_FOUND, NvmlMemory, NvmlMemory2, SUCCESS};
use crate::driver;
use crate::entry::hooks::hooks;
use crate::tenant::{ledger_path, load_caps};

hooks! { NVML_NOT_FOUND;
    fn memory(device: Handle, to: *mut NvmlMemory) as "nvmlDeviceGetMemoryInfo":
        nvmlDeviceGetMemoryInfo 0;
    fn memory_v2(device: Handle, to: *mut NvmlMemory2) as "nvmlDeviceGetMemoryInfo_v2":
        nvmlDeviceGetMemoryInfo_v2 0;
}

/// Room for a UUID as text (`NVML_DEVICE_UUID_V2_BUFFER_SIZE`).
const UUID_ROOM: u32 = 96;

/// The cap of a device and what the tenant's processes hold of it, in bytes; `None` without a cap.
fn cap_and_held(device: Handle) -> Option<(u64, u64)> {
    static CAPS: OnceLock<Option<Caps>> = OnceLock::new();
    let caps = CAPS.get_or_init(|| load_caps().ok().flatten().map(|(caps, _)| caps)).as_ref()?;
    let mut text = [0 as c_char; UUID_ROOM as usize];
    let mut index = u32::MAX;
    // SAFETY: places of ours, and the client's device.
    unsafe {
        if driver::nvml_uuid(device, text.as_mut_ptr(), UUID_ROOM) != SUCCESS {
            return None;
        }
        // A MIG device has none.
        driver::nvml_index(device, &raw mut index);
    }
    // SAFETY: NVML ends the text within the room it was given.
    let name = unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok()?;
    let Standing::Given(given) = caps.standing(&[name], index) else { return None };
    let cap = given.memory_bytes?;
    // Books that nobody has made yet are empty.
    let held =
        Ledger::open(&ledger_path(given, name)).map_or(0, |ledger| ledger.reap(ProcessId::own()));
    Some((cap, held))
}

unsafe fn memory(call: impl Fn() -> Code, device: Handle, to: *mut NvmlMemory) -> Code {
    let code = call();
    // SAFETY: NVML has written it.
    if let (SUCCESS, Some(shown)) = (code, unsafe { to.as_mut() })
        && let Some((cap, held)) = cap_and_held(device)
    {
        shown.total = shown.total.min(cap);
        shown.used = held.min(shown.total);
        shown.free = shown.total.saturating_sub(shown.used);
    }
    code
}

unsafe fn memory_v2(call: impl Fn() -> Code, device: Handle, to: *mut NvmlMemory2) -> Code {
    let code = call();
    // SAFETY: NVML has written it.
    if let (SUCCESS, Some(shown)) = (code, unsafe { to.as_mut() })
        && let Some((cap, held)) = cap_and_held(device)
    {
        shown.total = shown.total.min(cap);
        // What the driver keeps for itself lies outside the cap.
        shown.reserved = 0;
        shown.used = held.min(shown.total);
        shown.free = shown.total.saturating_sub(shown.used);
    }
    code
}
