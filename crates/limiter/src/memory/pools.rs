//! What is known of the process's memory pools, and how the books follow them.
//!
//! No lock is held over a call of the driver: an allocation may wait for work that another thread must
//! let go on. What is under way is noted with the pool instead, and a figure that was asked for before
//! something else was noted is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use caps::{Kind, OverCap};

use super::amount::{Amount, blocks};
use crate::abi::{Code, Device, DevicePtr, Handle, SUCCESS};
use crate::tenant::{Gpu, Tenant};
use crate::{compute, driver};

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED: c_int = 5;
/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
const USED: c_int = 7;
/// How often a figure is asked for again that was overtaken.
const TRIES: u32 = 3;

/// A pool of a GPU.
#[derive(Clone, Copy)]
struct Pool {
    device: Device,
    /// What is booked for it, in bytes.
    booked: u64,
    /// What the driver is being asked for, in bytes.
    coming: u64,
    /// How often it was noted that something comes or has come.
    changes: u64,
    /// Allocations of it that have not been freed.
    lent: u32,
    /// It has been destroyed: what it has stays until the last allocation is freed, and nobody can ask how
    /// much that is.
    gone: bool,
}

/// The pools of the process.
#[derive(Default)]
pub(crate) struct Pools {
    table: Mutex<Table>,
    /// Whether any has ever been allocated from.
    used: AtomicBool,
}

/// By numbers of our own, for a pool that is gone may have lent what is still in use.
#[derive(Default)]
struct Table {
    last: u64,
    pools: BTreeMap<u64, Pool>,
    /// Those that are not gone, by handle.
    handles: BTreeMap<usize, u64>,
    /// Handles of pools that the process has made elsewhere than on a GPU.
    elsewhere: BTreeSet<usize>,
    /// By address of what a pool has lent.
    lent: BTreeMap<DevicePtr, u64>,
}

/// A pool by its handle and our number.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    handle: usize,
    number: u64,
}

impl Table {
    /// The pool of a handle, noted if it was not known.
    fn of(&mut self, handle: usize, device: Device) -> Known {
        let Self { last, pools, handles, elsewhere, .. } = self;
        elsewhere.remove(&handle);
        let number = *handles.entry(handle).or_insert_with(|| {
            *last = last.saturating_add(1);
            let pool = Pool { device, booked: 0, coming: 0, changes: 0, lent: 0, gone: false };
            pools.insert(*last, pool);
            *last
        });
        Known { handle, number }
    }

    /// An allocation is the client's.
    fn lend(&mut self, tenant: &Tenant, address: DevicePtr, number: u64) {
        if let Some(pool) = self.pools.get_mut(&number) {
            pool.lent = pool.lent.saturating_add(1);
        }
        if let Some(before) = self.lent.insert(address, number) {
            self.one_less(tenant, before);
        }
    }

    /// An allocation of a pool has been freed.
    fn one_less(&mut self, tenant: &Tenant, number: u64) {
        if let Some(pool) = self.pools.get_mut(&number) {
            pool.lent = pool.lent.saturating_sub(1);
        }
        self.sweep(tenant, number);
    }

    /// With the last allocation of a pool that is gone its memory is gone too.
    fn sweep(&mut self, tenant: &Tenant, number: u64) {
        let Some(pool) = self.pools.get(&number).copied() else { return };
        if pool.gone && pool.lent == 0 && pool.coming == 0 {
            if let Some(gpu) = tenant.gpu(pool.device) {
                gpu.settle(Kind::Pool, pool.booked, 0);
            }
            self.pools.remove(&number);
        }
    }
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pool of a GPU, noted if it was not known.
    pub(crate) fn known(&self, handle: usize, device: Device) -> Known {
        self.used.store(true, Ordering::Relaxed);
        self.lock().of(handle, device)
    }

    /// Notes a pool that the process has made.
    ///
    /// * `device` — the GPU whose memory it takes, if it does.
    pub(crate) fn made(&self, handle: usize, device: Option<Device>) {
        let mut table = self.lock();
        match device {
            Some(device) => {
                table.of(handle, device);
            }
            None => {
                table.elsewhere.insert(handle);
            }
        }
    }

    /// The GPU of a pool, `None` inside for one elsewhere; `None` if it is not known.
    pub(crate) fn place_of(&self, handle: usize) -> Option<Option<Device>> {
        let table = self.lock();
        let number = table.handles.get(&handle);
        let device = number.and_then(|number| table.pools.get(number)).map(|pool| pool.device);
        let elsewhere = || table.elsewhere.contains(&handle).then_some(None);
        device.map(Some).or_else(elsewhere)
    }

    /// Destroys a pool by a call.
    pub(crate) fn destroyed(
        &self,
        tenant: &Tenant,
        handle: usize,
        call: impl Fn() -> Code,
    ) -> Code {
        // Before the call: afterwards the handle may be another pool's.
        let was_elsewhere = self.lock().elsewhere.remove(&handle);
        let number = self.lock().handles.get(&handle).copied();
        let Some(number) = number else {
            let code = call();
            if code != SUCCESS && was_elsewhere {
                self.lock().elsewhere.insert(handle);
            }
            return code;
        };
        let has_lent = self.lock().pools.get(&number).is_some_and(|pool| pool.lent > 0);
        if has_lent && !compute::any_capturing() {
            // It is to be known how much stays.
            self.trim_unused(tenant, Known { handle, number });
        }
        self.lock().handles.remove(&handle);
        let code = call();
        let mut table = self.lock();
        if code == SUCCESS {
            if let Some(pool) = table.pools.get_mut(&number) {
                pool.gone = true;
            }
            table.sweep(tenant, number);
        } else {
            table.handles.insert(handle, number);
        }
        code
    }

    /// Those that can be asked, of one GPU or of all.
    fn to_ask(&self, gpu: Option<&Gpu>) -> Vec<Known> {
        let table = self.lock();
        let on = |number: &u64| {
            let device = table.pools.get(number).map(|pool| pool.device);
            gpu.is_none_or(|gpu| device == Some(gpu.device))
        };
        let known = table.handles.iter().filter(|(_, number)| on(number));
        known.map(|(handle, number)| Known { handle: *handle, number: *number }).collect()
    }

    /// Makes the books follow what the driver says that the pools have reserved.
    pub(crate) fn settle(&self, tenant: &Tenant) {
        if self.used.load(Ordering::Relaxed) {
            for pool in self.to_ask(None) {
                self.follow(tenant, pool);
            }
        }
    }

    /// Lets the pools of a GPU give back what they do not use; whether there are any.
    pub(crate) fn trim(&self, tenant: &Tenant, gpu: &Gpu) -> bool {
        if !self.used.load(Ordering::Relaxed) || compute::any_capturing() {
            return false;
        }
        let known = self.to_ask(Some(gpu));
        for pool in &known {
            self.trim_unused(tenant, *pool);
        }
        !known.is_empty()
    }

    /// Makes the books of a pool follow the driver. A figure that something has overtaken is asked for
    /// again; after that whoever has overtaken it follows himself.
    fn follow(&self, tenant: &Tenant, known: Known) {
        for _ in 0..TRIES {
            let Some(before) = self.lock().pools.get(&known.number).copied() else { return };
            let Some(gpu) = tenant.gpu(before.device) else { return };
            if before.gone {
                return;
            }
            let (reserved, used) = (figure(known.handle, RESERVED), figure(known.handle, USED));
            let coming = match before.coming {
                0 => 0,
                // It may be among what is used by now, and then counts twice for a moment.
                bytes => blocks(used.unwrap_or(0).saturating_add(bytes)),
            };
            let now = reserved.unwrap_or(0).max(coming);
            let mut table = self.lock();
            let Some(pool) = table.pools.get_mut(&known.number) else { return };
            if reserved.is_none() && pool.lent > 0 {
                // It has just been destroyed, and has what it had.
                return;
            }
            if pool.changes == before.changes && !pool.gone {
                gpu.settle(Kind::Pool, pool.booked, now);
                pool.booked = now;
                return;
            }
        }
    }

    pub(crate) fn trim_unused(&self, tenant: &Tenant, pool: Known) {
        if let Some(used) = figure(pool.handle, USED) {
            // SAFETY: a pool that the driver has just known.
            unsafe { driver::trim_pool(as_handle(pool.handle), used as usize) };
        }
        self.follow(tenant, pool);
    }

    /// Books by how much a pool must grow at least for an allocation, which is under way from then on.
    pub(crate) fn book_growth(
        &self,
        tenant: &Tenant,
        gpu: &Gpu,
        known: Known,
        bytes: u64,
    ) -> Result<(), OverCap> {
        self.follow(tenant, known);
        let used = figure(known.handle, USED).unwrap_or(0);
        let mut table = self.lock();
        let Some(pool) = table.pools.get_mut(&known.number) else { return Ok(()) };
        let wanted = blocks(used.saturating_add(pool.coming).saturating_add(bytes));
        let need = wanted.saturating_sub(pool.booked);
        gpu.reserve(Kind::Pool, Amount::Own(need))?;
        pool.booked = pool.booked.saturating_add(need);
        pool.coming = pool.coming.saturating_add(bytes);
        pool.changes = pool.changes.saturating_add(1);
        Ok(())
    }

    /// The driver has answered an allocation; what it has given is lent at once, for the pool may be
    /// destroyed at any moment.
    pub(crate) fn has_come(
        &self,
        tenant: &Tenant,
        known: Known,
        bytes: u64,
        address: Option<DevicePtr>,
    ) {
        {
            let mut table = self.lock();
            if let Some(pool) = table.pools.get_mut(&known.number) {
                pool.coming = pool.coming.saturating_sub(bytes);
                pool.changes = pool.changes.saturating_add(1);
            }
            if let Some(address) = address {
                table.lend(tenant, address, known.number);
            }
            table.sweep(tenant, known.number);
        }
        self.follow(tenant, known);
    }

    /// Frees what a pool may have lent by a call.
    pub(crate) fn given_back(
        &self,
        tenant: &Tenant,
        address: DevicePtr,
        call: impl Fn() -> Code,
    ) -> Code {
        // Before the call: afterwards the address may be another's.
        let number = self.lock().lent.remove(&address);
        let code = call();
        if let Some(number) = number {
            let mut table = self.lock();
            if code == SUCCESS {
                table.one_less(tenant, number);
            } else {
                table.lent.insert(address, number);
            }
        }
        code
    }
}

fn as_handle(handle: usize) -> Handle {
    std::ptr::with_exposed_provenance_mut(handle)
}

/// A figure of a pool; `None` if the driver does not know the pool any more, or no such figure.
pub(crate) fn figure(handle: usize, attribute: c_int) -> Option<u64> {
    let mut value = 0;
    // SAFETY: a place of ours. A pool that is gone is an error that the driver reports.
    let code = unsafe { driver::pool_attribute(as_handle(handle), attribute, &raw mut value) };
    (code == SUCCESS).then_some(value)
}
