//! Device memory: blocks that are booked on a GPU, and the allocations in them.
//!
//! The bytes lie in host memory, at the addresses that clients are told. Nothing of it is there until
//! it is written.

use fake_gpu::{Claim, MemoryKind};

use crate::addresses::{Addresses, LARGE};
use crate::calls::{Call, Process};
use crate::driver::Driver;
use crate::handles::Handle;
use crate::mapping;
use crate::result::{Error, INVALID_CONTEXT, INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use crate::sharing::SharedFile;

/// Steps in which a GPU gives memory out, in bytes.
pub(crate) const GRANULARITY: u64 = LARGE;
/// Allocations below this share blocks of [`GRANULARITY`], which stay until they are empty; larger ones
/// are rounded up to it.
const SMALL: u64 = 1 << 20;
/// Alignment of addresses: cuda.h's functions promise at least 256.
pub(crate) const ALIGNMENT: u64 = 512;

/// Memory that was booked in one piece.
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// None for host memory.
    pub(crate) claim: Option<Claim>,
    /// What of it is free, if allocations share it.
    pub(crate) parts: Option<Addresses>,
    /// Bytes have been written in it, or may have been.
    pub(crate) touched: bool,
    /// The file in which it lies since another process has been offered it.
    pub(crate) file: Option<SharedFile>,
}

/// What an allocation is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Plain,
    Managed,
    /// Of that pool.
    Pool(Handle),
    /// Of a graph's node.
    Graph,
    /// Host memory of the driver's, with its flags.
    Host(u32),
    /// The client's host memory, with its flags.
    Registered(u32),
    /// Of another process, by an IPC handle.
    Opened,
    /// Of another process's pool.
    Imported,
    /// Mapped from that physical memory, at an offset.
    Mapped(Handle, u64),
    /// A variable of a module.
    Variable,
    /// The memory behind an array.
    Array,
}

/// Memory at an address.
#[derive(Clone)]
pub(crate) struct Allocation {
    pub(crate) size: u64,
    pub(crate) context: Handle,
    /// Index of the device.
    pub(crate) device: usize,
    pub(crate) what: What,
    /// The block in which it lies; 0 if in none.
    pub(crate) block: Handle,
    /// Unlike that of any other allocation of the process.
    pub(crate) serial: u64,
    /// What flags a client has set on it.
    pub(crate) sync_operations: bool,
}

/// What is wanted of memory.
pub(crate) struct Wanted {
    pub(crate) bytes: u64,
    pub(crate) kind: MemoryKind,
    pub(crate) what: What,
}

impl Driver {
    /// The allocation that an address lies in, and its start.
    pub(crate) fn allocation(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, found) = self.allocations.range(..=address).next_back()?;
        (address - start < found.size).then_some((*start, found))
    }

    /// Whether a range is memory that the driver knows, without gaps.
    pub(crate) fn knows(&self, address: u64, bytes: u64) -> bool {
        let mut at = address;
        let Some(end) = address.checked_add(bytes) else { return false };
        loop {
            let Some((start, found)) = self.allocation(at) else { return false };
            at = start + found.size;
            if at >= end {
                return true;
            }
        }
    }

    /// Books a block on a device. `parts` says that allocations share it.
    pub(crate) fn make_block(
        &mut self,
        process: &Process,
        device: usize,
        kind: MemoryKind,
        size: u64,
        parts: bool,
    ) -> Result<Handle, Error> {
        let place = self.devices.get(device).ok_or(INVALID_CONTEXT)?.place;
        let claim = process.gpus.take(place, kind, size).map_err(|_| OUT_OF_MEMORY)?;
        let Some(address) = self.arena.take(size, LARGE) else {
            process.gpus.give(claim);
            return Err(OUT_OF_MEMORY);
        };
        let parts = parts.then(|| Addresses::of(address, size));
        // What others may write without being seen counts as written.
        let touched = kind == MemoryKind::Managed;
        let block = Block { address, size, claim: Some(claim), parts, touched, file: None };
        Ok(self.blocks.insert(block))
    }

    /// Gives a block back.
    pub(crate) fn drop_block(&mut self, process: &Process, handle: Handle) {
        let Some(block) = self.blocks.remove(handle) else { return };
        if let Some(file) = block.file {
            mapping::unmap_file(block.address, block.size);
            file.remove();
        } else if block.touched {
            mapping::forget(block.address, block.size);
        }
        self.arena.give(block.address, block.size);
        block.claim.map(|claim| process.gpus.give(claim));
    }

    /// Keeps an allocation at an address.
    pub(crate) fn keep(&mut self, address: u64, allocation: Allocation) -> u64 {
        let serial = self.next_serial();
        self.allocations.insert(address, Allocation { serial, ..allocation });
        address
    }

    /// Notes that bytes in a range have been written.
    pub(crate) fn touch(&mut self, address: u64) {
        let block = self.allocation(address).map(|(_, found)| found.block);
        if let Some(block) = block.and_then(|block| self.blocks.get_mut(block)) {
            block.touched = true;
        }
    }

    /// Frees what starts at an address, whatever kind of device memory it is.
    pub(crate) fn free(&mut self, process: &Process, address: u64) -> Outcome {
        let found = self.allocations.get(&address).ok_or(INVALID_VALUE)?.clone();
        match found.what {
            What::Plain | What::Managed | What::Array => {
                self.allocations.remove(&address);
                self.release(process, found.context, found.block, address, found.size);
            }
            What::Pool(pool) => {
                self.allocations.remove(&address);
                self.give_to_pool(process, pool, found.block, address, found.size);
            }
            What::Graph => {
                self.allocations.remove(&address);
                self.end_graph_memory(found.device, address);
            }
            What::Imported => self.close_opened(process, address)?,
            What::Host(_)
            | What::Registered(_)
            | What::Opened
            | What::Mapped(..)
            | What::Variable => return Err(INVALID_VALUE),
        }
        Ok(())
    }

    /// Lets a range of a block go, and the block with its last one.
    fn release(&mut self, process: &Process, context: Handle, block: Handle, at: u64, bytes: u64) {
        let Some(found) = self.blocks.get_mut(block) else { return };
        if let Some(parts) = &mut found.parts {
            parts.give(at, bytes.next_multiple_of(ALIGNMENT));
            if !parts.is_whole() {
                return;
            }
            if let Some(context) = self.contexts.get_mut(context) {
                context.small_blocks.retain(|other| *other != block);
            }
        }
        self.drop_block(process, block);
    }

    /// Room for a small allocation: a block of the context, and where in it.
    fn small(
        &mut self,
        process: &Process,
        context: Handle,
        bytes: u64,
    ) -> Result<(Handle, u64), Error> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let blocks = &mut self.blocks;
        let of = self.contexts.get(context).ok_or(INVALID_CONTEXT)?;
        let room = |handle: &Handle| {
            let parts = blocks.get_mut(*handle)?.parts.as_mut()?;
            if parts.left() < bytes { None } else { Some((*handle, parts.take(bytes, ALIGNMENT)?)) }
        };
        if let Some(found) = of.small_blocks.iter().rev().find_map(room) {
            return Ok(found);
        }
        let device = of.device;
        let block = self.make_block(process, device, MemoryKind::Plain, GRANULARITY, true)?;
        self.context_mut(context)?.small_blocks.push(block);
        let parts = self.blocks.get_mut(block).and_then(|block| block.parts.as_mut());
        let at = parts.and_then(|parts| parts.take(bytes, ALIGNMENT)).ok_or(OUT_OF_MEMORY)?;
        Ok((block, at))
    }

    /// Allocates device memory in a context.
    pub(crate) fn allocate(
        &mut self,
        process: &Process,
        context: Handle,
        wanted: Wanted,
    ) -> Result<u64, Error> {
        let device = self.context(context)?.device;
        let bytes = wanted.bytes;
        let (block, address) = if bytes < SMALL && wanted.kind == MemoryKind::Plain {
            self.small(process, context, bytes)?
        } else {
            let size = bytes.checked_next_multiple_of(GRANULARITY).ok_or(OUT_OF_MEMORY)?;
            let block = self.make_block(process, device, wanted.kind, size, false)?;
            (block, self.blocks.get(block).map_or(0, |block| block.address))
        };
        let allocation = Allocation {
            size: bytes,
            context,
            device,
            what: wanted.what,
            block,
            serial: 0,
            sync_operations: false,
        };
        Ok(self.keep(address, allocation))
    }

    /// Takes address space for host memory of the driver's.
    pub(crate) fn allocate_host(
        &mut self,
        context: Handle,
        bytes: u64,
        flags: u32,
    ) -> Result<u64, Error> {
        let device = self.context(context)?.device;
        let size = bytes.checked_next_multiple_of(4096).ok_or(OUT_OF_MEMORY)?;
        let address = self.arena.take(size, 4096).ok_or(OUT_OF_MEMORY)?;
        let block = Block { address, size, claim: None, parts: None, touched: true, file: None };
        let block = self.blocks.insert(block);
        let what = What::Host(flags);
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
}

impl Call {
    /// Frees all memory of a context.
    pub(crate) fn free_all_of(&self, driver: &mut Driver, context: Handle) {
        let mine = |(address, found): (&u64, &Allocation)| {
            (found.context == context).then_some((*address, found.what, found.block))
        };
        let all: Vec<_> = driver.allocations.iter().filter_map(mine).collect();
        for (address, what, block) in all {
            match what {
                What::Plain | What::Managed | What::Array => {
                    let _ = driver.free(self.process, address);
                }
                What::Host(_) => {
                    driver.allocations.remove(&address);
                    driver.drop_block(self.process, block);
                }
                What::Registered(_) => {
                    driver.allocations.remove(&address);
                }
                What::Opened | What::Imported => {
                    let _ = driver.close_opened(self.process, address);
                }
                // Pools, graphs' memory and mappings belong to the device, variables to modules.
                What::Pool(_) | What::Graph | What::Mapped(..) | What::Variable => {}
            }
        }
    }
}
