//! Memory pools: `cuMemAllocAsync` and its relatives.
//!
//! A pool counts by what it has reserved, in use or not. Before an allocation the growth that it must
//! cause at least is booked; afterwards, and whenever the pool may have shrunk, the books follow what the
//! driver says. Pools of the host do not count, and are passed through.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use caps::Kind;

use super::amount::{Amount, blocks};
use super::ground::{self, capped, given};
use super::kept::Name;
use crate::abi::{
    Code, Device, DevicePtr, Handle, NOT_FOUND, OUT_OF_MEMORY, Placed, SUCCESS, read,
};
use crate::entry::hooks::hooks;
use crate::tenant::{Gpu, Tenant};
use crate::{compute, driver};

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED: c_int = 5;
/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
const USED: c_int = 7;
/// Stream handles up to this one stand for the thread's GPU (legacy and per-thread streams).
const STREAMS_WITHOUT_GPU: usize = 2;

hooks! { NOT_FOUND;
    fn allocate(to: *mut DevicePtr, bytes: usize, stream: Handle) as "cuMemAllocAsync":
        cuMemAllocAsync 11020, cuMemAllocAsync_ptsz 11020 per_thread;
    fn allocate_from(
        to: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle
    ) as "cuMemAllocFromPoolAsync":
        cuMemAllocFromPoolAsync 11020, cuMemAllocFromPoolAsync_ptsz 11020 per_thread;
    fn free(address: DevicePtr, stream: Handle) as "cuMemFreeAsync":
        cuMemFreeAsync 11020, cuMemFreeAsync_ptsz 11020 per_thread;
    fn create(to: *mut Handle, properties: *const Placed) as "cuMemPoolCreate":
        cuMemPoolCreate 11020;
    fn destroy(pool: Handle) as "cuMemPoolDestroy": cuMemPoolDestroy 11020;
    fn trim(pool: Handle, keep: usize) as "cuMemPoolTrimTo": cuMemPoolTrimTo 11020;
}

/// A pool of a GPU: which, and what is booked for it in bytes.
#[derive(Clone, Copy)]
struct Pool {
    device: Device,
    booked: u64,
}

/// The pools of the process, by handle.
#[derive(Default)]
pub(crate) struct Pools {
    known: Mutex<BTreeMap<usize, Pool>>,
    /// Whether any has ever been allocated from.
    used: AtomicBool,
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Pool>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the books follow what the driver says that the pools have reserved.
    pub(crate) fn settle(&self, tenant: &Tenant) {
        if self.used.load(Ordering::Relaxed) {
            for (handle, pool) in self.lock().iter_mut() {
                if let Some(gpu) = tenant.gpu(pool.device) {
                    follow(gpu, *handle, pool);
                }
            }
        }
    }

    /// Lets the pools of a GPU give back what they do not use; whether there are any.
    pub(crate) fn trim(&self, gpu: &Gpu) -> bool {
        if !self.used.load(Ordering::Relaxed) || compute::any_capturing() {
            return false;
        }
        let mut known = self.lock();
        let mut any = false;
        for (handle, pool) in known.iter_mut().filter(|(_, pool)| pool.device == gpu.device) {
            trim_unused(gpu, *handle, pool);
            any = true;
        }
        any
    }
}

fn as_handle(handle: usize) -> Handle {
    std::ptr::with_exposed_provenance_mut(handle)
}

/// A figure of a pool; `None` if the driver does not know the pool any more.
fn figure(handle: usize, attribute: c_int) -> Option<u64> {
    let mut value = 0;
    // SAFETY: a place of ours. A pool that is gone is an error that the driver reports.
    let code = unsafe { driver::pool_attribute(as_handle(handle), attribute, &raw mut value) };
    (code == SUCCESS).then_some(value)
}

/// Books what the pool has reserved now.
fn follow(gpu: &Gpu, handle: usize, pool: &mut Pool) {
    let reserved = figure(handle, RESERVED).unwrap_or(0);
    gpu.settle(Kind::Pool, pool.booked, reserved);
    pool.booked = reserved;
}

fn trim_unused(gpu: &Gpu, handle: usize, pool: &mut Pool) {
    if let Some(used) = figure(handle, USED) {
        // SAFETY: a pool that the driver has just known.
        unsafe { driver::trim_pool(as_handle(handle), used as usize) };
    }
    follow(gpu, handle, pool);
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
    to: *mut DevicePtr,
    bytes: usize,
    stream: Handle,
) -> Code {
    if compute::capturing(stream) {
        return call();
    }
    let (tenant, gpu) = given!(ground::named(device_of(stream)), call);
    let mut pool = std::ptr::null_mut();
    // SAFETY: a place of ours.
    if unsafe { driver::current_pool(&raw mut pool, gpu.device) } != SUCCESS {
        return call();
    }
    grow(tenant, gpu, pool.expose_provenance(), bytes as u64, || {
        let code = call();
        // SAFETY: the driver has written it.
        (code, if code == SUCCESS { unsafe { read(to) } } else { None }, stream)
    })
}

unsafe fn allocate_from(
    call: impl Fn() -> Code,
    to: *mut DevicePtr,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> Code {
    if compute::capturing(stream) {
        return call();
    }
    let (tenant, gpu) = given!(ground::found(|tenant| device_of_pool(tenant, pool)), call);
    grow(tenant, gpu, pool.expose_provenance(), bytes as u64, || {
        let code = call();
        // SAFETY: the driver has written it.
        (code, if code == SUCCESS { unsafe { read(to) } } else { None }, stream)
    })
}

/// The GPU of a pool: one that the process has made, or the GPU's own; `None` for pools of the host.
fn device_of_pool(tenant: &Tenant, pool: Handle) -> Option<Device> {
    if let Some(known) = tenant.pools.lock().get(&pool.expose_provenance()) {
        return Some(known.device);
    }
    let own = |gpu: &&Gpu| {
        let mut own = std::ptr::null_mut();
        // SAFETY: a place of ours.
        let code = unsafe { driver::default_pool(&raw mut own, gpu.device) };
        code == SUCCESS && own == pool
    };
    tenant.gpus().find(own).map(|gpu| gpu.device)
}

/// An allocation from a pool: books the growth, calls, and follows what has become of the pool.
///
/// * `call` — the code, and on success the address and the stream.
fn grow(
    tenant: &Tenant,
    gpu: &Gpu,
    handle: usize,
    bytes: u64,
    call: impl Fn() -> (Code, Option<DevicePtr>, Handle),
) -> Code {
    tenant.pools.used.store(true, Ordering::Relaxed);
    let mut known = tenant.pools.lock();
    let pool = known.entry(handle).or_insert(Pool { device: gpu.device, booked: 0 });
    follow(gpu, handle, pool);
    if let Err(first) = book_growth(gpu, handle, pool, bytes) {
        drop(known);
        // Others' pools too may have what they do not use.
        tenant.pools.trim(gpu);
        known = tenant.pools.lock();
        let pool = known.entry(handle).or_insert(Pool { device: gpu.device, booked: 0 });
        if let Err(over) = book_growth(gpu, handle, pool, bytes) {
            gpu.note_over(caps::OverCap { asked: first.asked.max(bytes), ..over });
            return OUT_OF_MEMORY;
        }
    }
    let (code, address, stream) = call();
    let Some(pool) = known.get_mut(&handle) else { return code };
    follow(gpu, handle, pool);
    if code == OUT_OF_MEMORY {
        gpu.note_full(bytes);
    }
    let Some(address) = address.filter(|_| gpu.is_over()) else { return code };
    // The pool has taken more than was asked for, and that was too much.
    // SAFETY: allocated above, and nobody knows it yet.
    unsafe { driver::free_async(address, stream) };
    trim_unused(gpu, handle, pool);
    OUT_OF_MEMORY
}

/// Books by how much the pool must grow at least.
fn book_growth(gpu: &Gpu, handle: usize, pool: &mut Pool, bytes: u64) -> Result<(), caps::OverCap> {
    let used = figure(handle, USED).unwrap_or(0);
    let need = blocks(used.saturating_add(bytes)).saturating_sub(pool.booked);
    gpu.reserve(Kind::Pool, Amount::Own(need))?;
    pool.booked = pool.booked.saturating_add(need);
    Ok(())
}

unsafe fn free(call: impl Fn() -> Code, address: DevicePtr, stream: Handle) -> Code {
    if compute::capturing(stream) {
        return call();
    }
    let tenant = capped!(call);
    // Memory of a pool stays the pool's until a wait; plain memory may be freed this way too.
    ground::given_back(tenant, Name::Address(address), call)
}

unsafe fn create(call: impl Fn() -> Code, to: *mut Handle, properties: *const Placed) -> Code {
    let tenant = capped!(call);
    let code = call();
    // SAFETY: the driver has read and written them.
    let (pool, properties) = unsafe { (read(to), read(properties)) };
    if let (SUCCESS, Some(pool), Some(properties)) = (code, pool, properties)
        && let Some(device) = properties.location.device()
    {
        tenant.pools.lock().insert(pool.expose_provenance(), Pool { device, booked: 0 });
    }
    code
}

unsafe fn destroy(call: impl Fn() -> Code, pool: Handle) -> Code {
    let tenant = capped!(call);
    let before = tenant.pools.lock().remove(&pool.expose_provenance());
    let code = call();
    let Some(before) = before else { return code };
    if code == SUCCESS {
        // What is still in use goes when it is freed, but nobody can ask the pool any more.
        if let Some(gpu) = tenant.gpu(before.device) {
            gpu.settle(Kind::Pool, before.booked, 0);
        }
    } else {
        tenant.pools.lock().insert(pool.expose_provenance(), before);
    }
    code
}

unsafe fn trim(call: impl Fn() -> Code, _pool: Handle, _keep: usize) -> Code {
    let tenant = capped!(call);
    let code = call();
    tenant.pools.settle(tenant);
    code
}
