//! Memory of other interfaces (Vulkan, Direct3D, buffers of the system): `cuImportExternalMemory`.

use caps::Kind;

use super::amount::Amount;
use super::ground::{self, booked, capped, given};
use super::kept::{Held, Name};
use crate::abi::{Code, ExternalMemory, Handle, NOT_FOUND, SUCCESS, read};
use crate::entry::hooks::hooks;
use crate::tenant::Gpu;

hooks! { NOT_FOUND;
    fn import(to: *mut Handle, from: *const ExternalMemory) as "cuImportExternalMemory":
        cuImportExternalMemory 10000;
    fn destroy(memory: Handle) as "cuDestroyExternalMemory": cuDestroyExternalMemory 10000;
}

/// How many pieces of the same size can be told apart.
const SAME_SIZE: u64 = 64;

/// What memory is known by that was exported as a handle of the system: its size, and a number among those
/// of the same size. Never 0.
fn size_key(bytes: u64, number: u64) -> u64 {
    bytes.wrapping_add(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Notes memory of this process that others of the tenant may import; what it is known by.
///
/// * `bytes` — its size.
pub(crate) fn export(gpu: &Gpu, bytes: u64) -> u64 {
    let key = keys(bytes).find(|key| !gpu.exported(*key)).unwrap_or(size_key(bytes, 0));
    gpu.export(key, bytes);
    key
}

/// Opens memory of this size that another process of the tenant has exported, if there is any; what it is
/// known by. What this process has open already is another piece.
pub(crate) fn open(gpu: &Gpu, bytes: u64) -> Option<u64> {
    keys(bytes).find(|key| !gpu.has_open(*key) && gpu.open(*key))
}

/// Sizes are multiples of 2 MiB, so the numbers of one size do not meet those of the next.
fn keys(bytes: u64) -> impl Iterator<Item = u64> {
    (0..SAME_SIZE).map(move |number| size_key(bytes, number))
}

unsafe fn import(call: impl Fn() -> Code, to: *mut Handle, from: *const ExternalMemory) -> Code {
    if from.is_null() {
        return call();
    }
    let (tenant, gpu) = given!(ground::current(), call);
    // SAFETY: the client's description, which is not null.
    let bytes = unsafe { (&raw const (*from).size).read_unaligned() };
    let key = open(gpu, bytes).unwrap_or(0);
    let (paid, unpaid) = if key == 0 { (bytes, 0) } else { (0, bytes) };
    let (kind, amount) = (Kind::Imported, Amount::Own(paid));
    let code = booked(tenant, gpu, kind, amount, call);
    // SAFETY: the driver has written it.
    if let (SUCCESS, Some(memory)) = (code, unsafe { read(to) }) {
        gpu.note_opened(unpaid, 0);
        let context = ground::context(tenant, gpu);
        let held = Held { device: gpu.device, kind, amount, context, key, unpaid, ..Held::NONE };
        ground::note(tenant, Name::External(memory.addr() as u64), held);
    } else if key != 0 {
        gpu.close(key);
    }
    code
}

unsafe fn destroy(call: impl Fn() -> Code, memory: Handle) -> Code {
    let tenant = capped!(call);
    ground::given_back(tenant, Name::External(memory.addr() as u64), call)
}
