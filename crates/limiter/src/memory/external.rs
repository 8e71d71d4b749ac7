//! Memory of other interfaces (Vulkan, Direct3D, buffers of the system): `cuImportExternalMemory`.

use caps::Kind;

use super::amount::Amount;
use super::ground::{self, booked, capped, given, keep};
use super::kept::Name;
use crate::abi::{Code, ExternalMemory, Handle, NOT_FOUND, SUCCESS, read};
use crate::entry::hooks::hooks;

hooks! { NOT_FOUND;
    fn import(to: *mut Handle, from: *const ExternalMemory) as "cuImportExternalMemory":
        cuImportExternalMemory 10000;
    fn destroy(memory: Handle) as "cuDestroyExternalMemory": cuDestroyExternalMemory 10000;
}

/// What memory is known by that was exported as a handle of the system: its size. Never 0.
///
/// * `bytes` — the size.
pub(crate) fn size_key(bytes: u64) -> u64 {
    bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

unsafe fn import(call: impl Fn() -> Code, to: *mut Handle, from: *const ExternalMemory) -> Code {
    if from.is_null() {
        return call();
    }
    let (tenant, gpu) = given!(ground::current(), call);
    // SAFETY: the client's description, which is not null.
    let bytes = unsafe { (&raw const (*from).size).read_unaligned() };
    let counted = if gpu.exported(size_key(bytes)) { 0 } else { bytes };
    let amount = Amount::Own(counted);
    let code = booked(tenant, gpu, Kind::Imported, amount, call);
    // SAFETY: the driver has written it.
    if let (SUCCESS, Some(memory)) = (code, unsafe { read(to) }) {
        keep(tenant, gpu, Name::External(memory.addr() as u64), Kind::Imported, amount);
    }
    code
}

unsafe fn destroy(call: impl Fn() -> Code, memory: Handle) -> Code {
    let tenant = capped!(call);
    ground::given_back(tenant, Name::External(memory.addr() as u64), call)
}
