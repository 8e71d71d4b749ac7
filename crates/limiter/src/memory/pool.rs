//! Memory pools: `cuMemAllocAsync` and its relatives.
//!
//! A pool counts by what it has reserved, in use or not. Before an allocation the growth that it must
//! cause at least is booked; afterwards, and whenever the pool may have shrunk, the books follow what the
//! driver says. Pools of the host do not count, and are passed through.

use std::ffi::c_int;

use caps::OverCap;

use super::ground::{self, capped, given};
use super::kept::Name;
use super::own;
use super::pools::figure;
use crate::abi::{
    Code, Device, DevicePtr, Handle, Location, NOT_FOUND, OUT_OF_MEMORY, Placed, SUCCESS, read,
};
use crate::entry::hooks::hooks;
use crate::tenant::{Gpu, Tenant};
use crate::{compute, driver};

/// `CU_MEMPOOL_ATTR_ALLOCATION_TYPE`.
const ALLOCATION: c_int = 9;
/// `CU_MEMPOOL_ATTR_LOCATION_ID`.
const PLACE: c_int = 11;
/// `CU_MEMPOOL_ATTR_LOCATION_TYPE`.
const PLACE_KIND: c_int = 12;
/// `CU_MEM_ALLOCATION_TYPE_MANAGED`.
const MANAGED: u64 = 2;
/// Stream handles up to this one stand for the thread's GPU (legacy and per-thread streams).
const STREAMS_WITHOUT_GPU: usize = 2;
/// `CU_STREAM_PER_THREAD`: what stream 0 means in the forms of functions for the thread's own stream.
const OWN_STREAM: usize = 2;

hooks! { NOT_FOUND;
    streamed allocate(to: *mut DevicePtr, bytes: usize, stream: Handle) as "cuMemAllocAsync":
        cuMemAllocAsync 11020, cuMemAllocAsync_ptsz 11020 per_thread;
    streamed allocate_from(
        to: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle
    ) as "cuMemAllocFromPoolAsync":
        cuMemAllocFromPoolAsync 11020, cuMemAllocFromPoolAsync_ptsz 11020 per_thread;
    streamed free(address: DevicePtr, stream: Handle) as "cuMemFreeAsync":
        cuMemFreeAsync 11020, cuMemFreeAsync_ptsz 11020 per_thread;
    fn create(to: *mut Handle, properties: *const Placed) as "cuMemPoolCreate":
        cuMemPoolCreate 11020;
    fn destroy(pool: Handle) as "cuMemPoolDestroy": cuMemPoolDestroy 11020;
    fn trim(pool: Handle, keep: usize) as "cuMemPoolTrimTo": cuMemPoolTrimTo 11020;
}

/// The stream that a call names, by a handle that means the same in both forms of it.
fn named(stream: Handle, per_thread: bool) -> Handle {
    let own = per_thread && stream.is_null();
    if own { std::ptr::without_provenance_mut(OWN_STREAM) } else { stream }
}

/// The GPU of a stream; that of the thread's context if the stream has none of its own.
fn device_of(stream: Handle) -> Option<Device> {
    let mut device = 0;
    // SAFETY: a place of ours, and the client's stream.
    if stream.addr() > STREAMS_WITHOUT_GPU
        && unsafe { driver::device_of_stream(stream, &raw mut device) } == SUCCESS
    {
        return Some(device);
    }
    driver::device()
}

unsafe fn allocate(
    call: impl Fn() -> Code,
    per_thread: bool,
    to: *mut DevicePtr,
    bytes: usize,
    stream: Handle,
) -> Code {
    let stream = named(stream, per_thread);
    if compute::capturing(stream) {
        return call();
    }
    let (tenant, gpu) = given!(ground::named(device_of(stream)), call);
    let mut pool = std::ptr::null_mut();
    // SAFETY: a place of ours.
    if unsafe { driver::current_pool(&raw mut pool, gpu.device) } != SUCCESS {
        return call();
    }
    // SAFETY: the caller's.
    unsafe { grow(tenant, gpu, pool.expose_provenance(), (to, bytes), stream, call) }
}

unsafe fn allocate_from(
    call: impl Fn() -> Code,
    per_thread: bool,
    to: *mut DevicePtr,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> Code {
    let stream = named(stream, per_thread);
    if compute::capturing(stream) {
        return call();
    }
    let ground = ground::found(|tenant| device_of_pool(tenant, pool, stream));
    let (tenant, gpu) = given!(ground, call);
    // SAFETY: the caller's.
    unsafe { grow(tenant, gpu, pool.expose_provenance(), (to, bytes), stream, call) }
}

/// The GPU that a pool takes memory of; `None` for pools of the host. Of a pool that is not known the
/// driver is asked (since CUDA 13); what it does not tell, and managed memory of no place, is the
/// stream's GPU's.
fn device_of_pool(tenant: &Tenant, pool: Handle, stream: Handle) -> Option<Device> {
    let handle = pool.expose_provenance();
    if let Some(place) = tenant.pools.place_of(handle) {
        return place.or_else(|| is_managed(handle).then(|| device_of(stream)).flatten());
    }
    let own = |gpu: &&Gpu| {
        let mut own = std::ptr::null_mut();
        // SAFETY: a place of ours.
        let code = unsafe { driver::default_pool(&raw mut own, gpu.device) };
        code == SUCCESS && own == pool
    };
    if let Some(gpu) = tenant.gpus().find(own) {
        return Some(gpu.device);
    }
    // Both figures are numbers of 32 bits.
    match figure(handle, PLACE_KIND).zip(figure(handle, PLACE)) {
        Some((kind, id)) => match Location::of(kind as c_int, id as c_int).device() {
            None if is_managed(handle) => device_of(stream),
            place => place,
        },
        None => device_of(stream),
    }
}

fn is_managed(pool: usize) -> bool {
    figure(pool, ALLOCATION) == Some(MANAGED)
}

/// An allocation from a pool: books the growth, calls, and follows what has become of the pool.
unsafe fn grow(
    tenant: &Tenant,
    gpu: &Gpu,
    handle: usize,
    (to, bytes): (*mut DevicePtr, usize),
    stream: Handle,
    call: impl Fn() -> Code,
) -> Code {
    let (pools, bytes) = (&tenant.pools, bytes as u64);
    own::look_if_due(gpu);
    let known = pools.known(handle, gpu.device);
    if let Err(first) = pools.book_growth(tenant, gpu, known, bytes) {
        // Others' pools too may have what they do not use.
        pools.trim(tenant, gpu);
        own::look_again(gpu);
        if let Err(over) = pools.book_growth(tenant, gpu, known, bytes) {
            gpu.note_over(OverCap { asked: first.asked.max(bytes), ..over });
            return OUT_OF_MEMORY;
        }
    }
    let code = call();
    if code == OUT_OF_MEMORY {
        gpu.note_full(bytes);
    }
    // SAFETY: the driver has written it.
    let address = if code == SUCCESS { unsafe { read(to) } } else { None };
    pools.has_come(tenant, known, bytes, address);
    let Some(address) = address else { return code };
    if gpu.is_over() {
        // The pool has taken more than was asked for, and that was too much.
        // SAFETY: allocated above, and nobody knows it yet.
        pools.given_back(tenant, address, || unsafe { driver::free_async(address, stream) });
        pools.trim_unused(tenant, known);
        return OUT_OF_MEMORY;
    }
    code
}

unsafe fn free(
    call: impl Fn() -> Code,
    per_thread: bool,
    address: DevicePtr,
    stream: Handle,
) -> Code {
    if compute::capturing(named(stream, per_thread)) {
        return call();
    }
    let tenant = capped!(call);
    // Memory of a pool stays the pool's until a wait; plain memory may be freed this way too.
    ground::given_back(tenant, Name::Address(address), || {
        tenant.pools.given_back(tenant, address, &call)
    })
}

unsafe fn create(call: impl Fn() -> Code, to: *mut Handle, properties: *const Placed) -> Code {
    let tenant = capped!(call);
    let code = call();
    // SAFETY: the driver has read and written them.
    let (pool, properties) = unsafe { (read(to), read(properties)) };
    if let (SUCCESS, Some(pool), Some(properties)) = (code, pool, properties) {
        tenant.pools.made(pool.expose_provenance(), properties.location.device());
    }
    code
}

unsafe fn destroy(call: impl Fn() -> Code, pool: Handle) -> Code {
    let tenant = capped!(call);
    tenant.pools.destroyed(tenant, pool.expose_provenance(), call)
}

unsafe fn trim(call: impl Fn() -> Code, _pool: Handle, _keep: usize) -> Code {
    let tenant = capped!(call);
    let code = call();
    tenant.pools.settle(tenant);
    code
}
