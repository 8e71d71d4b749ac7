//! The same figures by NVML, for programs that ask there, such as `nvidia-smi`. They may never begin with
//! CUDA, so the caps are read on their own.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use caps::{Caps, Ledger, ProcessId, Standing};

use crate::abi::{Code, Handle, NVML_NOT_FOUND, NvmlMemory, NvmlMemory2, SUCCESS, read, write};
use crate::driver;
use crate::entry::hooks::hooks;
use crate::tenant::{self, Now, ledger_path, load_caps};

hooks! { NVML_NOT_FOUND;
    fn memory(device: Handle, to: *mut NvmlMemory) as "nvmlDeviceGetMemoryInfo":
        nvmlDeviceGetMemoryInfo 0;
    fn memory_v2(device: Handle, to: *mut NvmlMemory2) as "nvmlDeviceGetMemoryInfo_v2":
        nvmlDeviceGetMemoryInfo_v2 0;
}

/// Room for a UUID as text (`NVML_DEVICE_UUID_V2_BUFFER_SIZE`).
const UUID_ROOM: u32 = 96;

/// The caps, read once; `None` without any. A lock would not do: in a forked process a thread may have it
/// that is no more.
fn caps() -> Option<&'static Caps> {
    static CAPS: AtomicPtr<Option<Caps>> = AtomicPtr::new(null_mut());
    let mut known = CAPS.load(Ordering::Acquire);
    if known.is_null() {
        let read = Box::into_raw(Box::new(load_caps().ok().flatten().map(|(caps, _)| caps)));
        // Whoever is later takes what is there, and his own is left: it may happen once a thread.
        let first = CAPS.compare_exchange(known, read, Ordering::AcqRel, Ordering::Acquire);
        known = first.map_or_else(|there| there, |_| read);
    }
    // SAFETY: made above by some thread, and never freed.
    unsafe { known.as_ref() }?.as_ref()
}

/// The cap of a device and what the tenant's processes hold of it, in bytes; `None` without a cap.
fn cap_and_held(device: Handle) -> Option<(u64, u64)> {
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
    let uuid = unsafe { CStr::from_ptr(text.as_ptr()) };
    if tenant::has_begun()
        && let Now::Capped(tenant) = tenant::now()
        && let Some(gpu) = tenant.gpus().find(|gpu| gpu.uuid() == uuid)
    {
        return Some((gpu.cap()?, gpu.held()));
    }
    let name = uuid.to_str().ok()?;
    let Standing::Given(given) = caps()?.standing(&[name], ordinal(name, index)) else {
        return None;
    };
    let cap = given.memory_bytes?;
    // Books that nobody has made yet are empty.
    let held =
        Ledger::open(&ledger_path(given, name)).map_or(0, |ledger| ledger.reap(ProcessId::own()));
    Some((cap, held))
}

/// The number that CUDA gives a device, which counts those that `CUDA_VISIBLE_DEVICES` names, in its order;
/// one of none if it is not among them.
///
/// * `index` — NVML's number.
fn ordinal(uuid: &str, index: u32) -> u32 {
    let Some(visible) = std::env::var_os("CUDA_VISIBLE_DEVICES") else { return index };
    let visible = visible.to_string_lossy();
    let same = |name: &str| match name.parse::<u32>() {
        Ok(number) => number == index,
        // A UUID may be cut short.
        Err(_) => !name.is_empty() && uuid.starts_with(name),
    };
    let at = visible.split(',').position(|name| same(name.trim()));
    at.and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX)
}

unsafe fn memory(call: impl Fn() -> Code, device: Handle, to: *mut NvmlMemory) -> Code {
    let code = call();
    // SAFETY: NVML has written it.
    if let (SUCCESS, Some(shown)) = (code, unsafe { read(to) })
        && let Some((cap, held)) = cap_and_held(device)
    {
        let total = shown.total.min(cap);
        let used = held.min(total);
        // SAFETY: as above.
        unsafe { write(to, NvmlMemory { total, free: total.saturating_sub(used), used }) };
    }
    code
}

unsafe fn memory_v2(call: impl Fn() -> Code, device: Handle, to: *mut NvmlMemory2) -> Code {
    let code = call();
    // SAFETY: NVML has written it.
    if let (SUCCESS, Some(shown)) = (code, unsafe { read(to) })
        && let Some((cap, held)) = cap_and_held(device)
    {
        let total = shown.total.min(cap);
        let used = held.min(total);
        let free = total.saturating_sub(used);
        // What the driver keeps for itself lies outside the cap.
        let shown = NvmlMemory2 { version: shown.version, total, reserved: 0, free, used };
        // SAFETY: as above.
        unsafe { write(to, shown) };
    }
    code
}
