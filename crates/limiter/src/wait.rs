//! Calls that wait for the GPU: when they return, pools may have given memory back, and the turn may pass.

use std::ffi::c_void;

use crate::abi::{Code, DevicePtr, Handle, NOT_FOUND, SUCCESS};
use crate::compute::Awaited;
use crate::entry::hooks::hooks;
use crate::{compute, memory};

hooks! { NOT_FOUND;
    streamed stream(stream: Handle) as "cuStreamSynchronize":
        cuStreamSynchronize 2000, cuStreamSynchronize_ptsz 7000 per_thread;
    fn event(event: Handle) as "cuEventSynchronize": cuEventSynchronize 2000;
    fn context() as "cuCtxSynchronize": cuCtxSynchronize 2000;
    streamed copy_back(to: *mut c_void, from: DevicePtr, bytes: usize) as "cuMemcpyDtoH":
        cuMemcpyDtoH_v2 3020, cuMemcpyDtoH_v2_ptds 7000 per_thread;
    fn given_context(context: Handle) as "cuCtxSynchronize": cuCtxSynchronize_v2 13000;
}

/// Waits, and does what follows a wait that has ended well.
fn wait(call: impl Fn() -> Code, what: Awaited) -> Code {
    let since = compute::waits();
    let code = call();
    if code == SUCCESS {
        memory::waited();
        compute::waited(since, what);
    }
    code
}

unsafe fn stream(call: impl Fn() -> Code, per_thread: bool, stream: Handle) -> Code {
    wait(call, Awaited::Stream(stream, per_thread))
}

unsafe fn event(call: impl Fn() -> Code, _event: Handle) -> Code {
    wait(call, Awaited::Event)
}

unsafe fn context(call: impl Fn() -> Code) -> Code {
    wait(call, Awaited::All)
}

/// Results are fetched: all before them in the stream is done. A copy is no wait for pools, which give
/// nothing back then.
unsafe fn copy_back(
    call: impl Fn() -> Code,
    per_thread: bool,
    _to: *mut c_void,
    _from: DevicePtr,
    _bytes: usize,
) -> Code {
    let since = compute::waits();
    let code = call();
    if code == SUCCESS {
        compute::waited(since, Awaited::Stream(std::ptr::null_mut(), per_thread));
    }
    code
}

/// Another context than the thread's may be on another GPU, so nothing is known of ours.
unsafe fn given_context(call: impl Fn() -> Code, context: Handle) -> Code {
    wait(call, if context.is_null() { Awaited::All } else { Awaited::Event })
}
