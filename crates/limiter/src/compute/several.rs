//! Launches of one program on several GPUs at once.

use std::ffi::{c_uint, c_void};

use crate::abi::{Code, Device, Handle, NOT_FOUND, SUCCESS, read};
use crate::entry::hooks::hooks;

use super::launch::{Go, kind};
use super::pacer::{self, Pacer};
use super::streams::Stream;
use super::{asks, door};

hooks! { NOT_FOUND;
    fn several(list: *const One, count: c_uint, flags: c_uint)
        as "cuLaunchCooperativeKernelMultiDevice": cuLaunchCooperativeKernelMultiDevice 9000;
}

/// `CUDA_LAUNCH_PARAMS`: the launch on one GPU.
#[derive(Clone, Copy)]
#[repr(C)]
struct One {
    function: Handle,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    parameters: *mut *mut c_void,
}
const _: () = assert!(std::mem::offset_of!(One, stream) == 40 && size_of::<One>() == 56);

/// Longer lists are left to the driver, which refuses them.
const MOST: usize = 64;

/// One launch of those that are counted.
struct Part {
    device: Device,
    pacer: &'static Pacer,
    stream: Stream,
    kind: u64,
    go: Option<Go>,
}

/// The launches on GPUs with a cap of time, in the order of the GPUs: in that order all programs wait for
/// their turns, so that none waits for another one that waits for it.
fn parts(list: *const One, count: usize) -> Vec<Part> {
    let part = |at: usize| {
        // SAFETY: the client's list, which has `count` entries.
        let one = unsafe { read(list.wrapping_add(at)) }?;
        let stream = Stream::of(one.stream, false);
        let device = asks::device_of(stream.handle()?)?;
        let (pacer, kind) = (pacer::of(device)?, kind(one.function, one.grid, one.block));
        Some(Part { device, pacer, stream, kind, go: None })
    };
    let mut parts: Vec<Part> = (0..count).filter_map(part).collect();
    parts.sort_by_key(|part| part.device);
    parts
}

/// Each is a launch on its GPU, and each turn is waited for.
unsafe fn several(
    call: impl Fn() -> Code,
    list: *const One,
    count: c_uint,
    _flags: c_uint,
) -> Code {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // The first launch of a process may be this one.
    pacer::current();
    let can_be_read = !list.is_null() && count <= MOST && pacer::any();
    let parts = can_be_read.then(|| door::asking(|| parts(list, count))).flatten();
    let mut parts = parts.unwrap_or_default();
    for part in &mut parts {
        part.go = part.pacer.admitted(part.stream, part.kind);
    }
    let code = call();
    for Part { pacer, stream, kind, go, .. } in parts {
        if let Some(go) = go {
            pacer.launched(stream, kind, go, code != SUCCESS);
        }
    }
    code
}
