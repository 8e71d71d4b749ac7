//! Memory pools: what they have reserved on a GPU, what of it is in use, and when the rest goes back.

use std::collections::BTreeMap;
use std::ffi::c_int;

use fake_gpu::MemoryKind;

use crate::addresses::{Addresses, LARGE};
use crate::calls::Process;
use crate::driver::Driver;
use crate::handles::Handle;
use crate::layouts::{Location, PoolProperties};
use crate::memory::{ALIGNMENT, Allocation, Block, GRANULARITY, What};
use crate::result::{Error, INVALID_VALUE, OUT_OF_MEMORY};

/// A pool.
pub(crate) struct Pool {
    /// Index of the device; that of the first for host memory.
    pub(crate) device: usize,
    pub(crate) properties: PoolProperties,
    /// It came with the device and cannot be destroyed.
    pub(crate) is_default: bool,
    /// Another process's: nothing can be allocated in it.
    pub(crate) imported: bool,
    /// What it keeps, in bytes, when streams are waited for.
    pub(crate) threshold: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// Whether freed memory may be used again, by the first three attributes.
    pub(crate) reuse: [c_int; 3],
    blocks: Vec<Handle>,
    /// Rights of other devices.
    pub(crate) access: BTreeMap<c_int, c_int>,
}

/// Steps in which pools grow, in bytes; smaller ones are taken only when there is no room for one.
const STEP: u64 = 32 << 20;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(crate) const PINNED: c_int = 1;
/// `CU_MEM_ALLOCATION_TYPE_MANAGED`.
pub(crate) const MANAGED: c_int = 2;

impl Pool {
    pub(crate) fn new(device: usize, properties: PoolProperties) -> Self {
        Self {
            device,
            properties,
            is_default: false,
            imported: false,
            threshold: 0,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            reuse: [1; 3],
            blocks: Vec::new(),
            access: BTreeMap::new(),
        }
    }

    /// The pool with which a device comes.
    pub(crate) fn default_of(device: usize) -> Self {
        let id = c_int::try_from(device).unwrap_or(0);
        let location = Location { kind: Location::DEVICE, id };
        let properties = PoolProperties { kind: PINNED, location, ..PoolProperties::default() };
        Self { is_default: true, ..Self::new(device, properties) }
    }

    /// The pool of managed memory with which a device comes.
    pub(crate) fn managed_of(device: usize) -> Self {
        let mut pool = Self::default_of(device);
        pool.properties.kind = MANAGED;
        pool
    }

    pub(crate) fn is_managed_default(&self) -> bool {
        self.is_default && self.properties.kind == MANAGED
    }

    pub(crate) fn handle_types(&self) -> u32 {
        self.properties.handle_types.cast_unsigned()
    }

    fn is_on_device(&self) -> bool {
        self.properties.location.kind == Location::DEVICE
    }
}

impl Driver {
    pub(crate) fn pool(&self, handle: Handle) -> Result<&Pool, Error> {
        self.pools.get(handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn pool_mut(&mut self, handle: Handle) -> Result<&mut Pool, Error> {
        self.pools.get_mut(handle).ok_or(INVALID_VALUE)
    }

    /// Allocates from a pool.
    pub(crate) fn take_from_pool(
        &mut self,
        process: &Process,
        context: Handle,
        handle: Handle,
        bytes: u64,
    ) -> Result<u64, Error> {
        let size = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(OUT_OF_MEMORY)?;
        let pool = self.pool(handle)?;
        if pool.imported || bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let device = pool.device;
        let blocks = &mut self.blocks;
        let room = |block: &Handle| {
            let parts = blocks.get_mut(*block)?.parts.as_mut()?;
            if parts.left() < size { None } else { Some((*block, parts.take(size, ALIGNMENT)?)) }
        };
        let found = self.pools.get(handle).and_then(|pool| pool.blocks.iter().find_map(room));
        let (block, address) = match found {
            Some(found) => found,
            None => {
                let block = self.grow_pool(process, handle, size)?;
                let parts = self.blocks.get_mut(block).and_then(|block| block.parts.as_mut());
                let at = parts.and_then(|parts| parts.take(size, ALIGNMENT));
                (block, at.ok_or(OUT_OF_MEMORY)?)
            }
        };
        let pool = self.pool_mut(handle)?;
        pool.used += size;
        pool.used_high = pool.used_high.max(pool.used);
        let what = What::Pool(handle);
        let allocation = Allocation {
            size: bytes,
            context,
            device,
            what,
            block,
            serial: 0,
            sync_operations: false,
        };
        Ok(self.keep(address, allocation))
    }

    /// Reserves more for a pool: a step if there is room for one, else what is needed, and what other
    /// blocks do not need is given back before it fails.
    fn grow_pool(
        &mut self,
        process: &Process,
        handle: Handle,
        needed: u64,
    ) -> Result<Handle, Error> {
        let exact = needed.checked_next_multiple_of(GRANULARITY).ok_or(OUT_OF_MEMORY)?;
        let steps = needed.checked_next_multiple_of(STEP).ok_or(OUT_OF_MEMORY)?;
        for (size, trim) in [(steps, false), (exact, false), (exact, true)] {
            if trim {
                self.trim_pool(process, handle, 0);
            }
            let pool = self.pool(handle)?;
            let most = match pool.properties.size_max as u64 {
                0 => u64::MAX,
                most => most.next_multiple_of(GRANULARITY),
            };
            if pool.reserved + size > most {
                continue;
            }
            let (device, on_device) = (pool.device, pool.is_on_device());
            let made = if on_device {
                self.make_block(process, device, MemoryKind::Pool, size, true)
            } else {
                self.make_host_block(size)
            };
            if let Ok(block) = made {
                let pool = self.pool_mut(handle)?;
                pool.blocks.push(block);
                pool.reserved += size;
                pool.reserved_high = pool.reserved_high.max(pool.reserved);
                return Ok(block);
            }
        }
        Err(OUT_OF_MEMORY)
    }

    fn make_host_block(&mut self, size: u64) -> Result<Handle, Error> {
        let address = self.arena.take(size, LARGE).ok_or(OUT_OF_MEMORY)?;
        let parts = Some(Addresses::of(address, size));
        Ok(self.blocks.insert(Block {
            address,
            size,
            claim: None,
            parts,
            touched: true,
            file: None,
        }))
    }

    /// Takes back what was allocated from a pool.
    pub(crate) fn give_to_pool(
        &mut self,
        process: &Process,
        handle: Handle,
        block: Handle,
        at: u64,
        bytes: u64,
    ) {
        let size = bytes.next_multiple_of(ALIGNMENT);
        if let Some(parts) = self.blocks.get_mut(block).and_then(|block| block.parts.as_mut()) {
            parts.give(at, size);
        }
        match self.pools.get_mut(handle) {
            Some(pool) => pool.used = pool.used.saturating_sub(size),
            // The pool was destroyed before its last allocation.
            None => {
                let whole = self.blocks.get(block).and_then(|block| block.parts.as_ref());
                if whole.is_some_and(Addresses::is_whole) {
                    self.drop_block(process, block);
                }
            }
        }
    }

    /// Gives blocks back that are not in use, until a pool has reserved no more than `keep`.
    pub(crate) fn trim_pool(&mut self, process: &Process, handle: Handle, keep: u64) {
        let Some(pool) = self.pools.get(handle) else { return };
        let (mut reserved, blocks) = (pool.reserved, pool.blocks.clone());
        let mut left = Vec::new();
        for block in blocks {
            let found = self.blocks.get(block);
            let whole =
                found.and_then(|found| found.parts.as_ref()).is_some_and(Addresses::is_whole);
            let size = found.map_or(0, |found| found.size);
            if whole && reserved > keep {
                reserved -= size;
                self.drop_block(process, block);
            } else {
                left.push(block);
            }
        }
        if let Some(pool) = self.pools.get_mut(handle) {
            (pool.reserved, pool.blocks) = (reserved, left);
        }
    }

    /// What happens to pools when somebody waits: those of the context's device shrink to what they
    /// are to keep.
    pub(crate) fn trim_pools(&mut self, process: &Process, context: Handle) {
        let Some(device) = self.contexts.get(context).map(|context| context.device) else { return };
        let of =
            |pool: &Pool| pool.device == device && pool.reserved > pool.threshold.max(pool.used);
        for pool in self.pools.find(of) {
            let keep = self.pools.get(pool).map_or(0, |pool| pool.threshold);
            self.trim_pool(process, pool, keep);
        }
    }

    /// Ends a pool; its memory goes with its last allocation.
    pub(crate) fn end_pool(&mut self, process: &Process, handle: Handle) {
        self.trim_pool(process, handle, 0);
        self.pools.remove(handle);
        for (default, current) in &mut self.device_pools {
            if *current == handle {
                *current = *default;
            }
        }
    }
}
