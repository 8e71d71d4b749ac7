//! Memory of graphs' allocation nodes. It is taken when a graph is launched and kept, once freed, for
//! other launches on the device until it is trimmed.

use std::ffi::{c_int, c_void};

use fake_gpu::{Claim, MemoryKind};

use crate::addresses::LARGE;
use crate::calls::{Process, exports};
use crate::driver::Driver;
use crate::graph::NodeKind;
use crate::memory::{Allocation, GRANULARITY, What};
use crate::pointers::{get, put};
use crate::result::{Error, INVALID_VALUE, OUT_OF_MEMORY, Outcome};

/// What graphs hold of one device.
#[derive(Default)]
pub(crate) struct GraphMemory {
    parts: Vec<Part>,
    used_high: u64,
    reserved_high: u64,
}

/// Memory that was taken in one piece.
struct Part {
    claim: Claim,
    size: u64,
    /// The allocation that has it.
    address: Option<u64>,
}

impl GraphMemory {
    fn reserved(&self) -> u64 {
        self.parts.iter().map(|part| part.size).sum()
    }

    fn used(&self) -> u64 {
        self.parts.iter().filter(|part| part.address.is_some()).map(|part| part.size).sum()
    }
}

impl Driver {
    /// The address that an allocation node will have at each launch, and the node. Addresses are never
    /// used for anything else again.
    pub(crate) fn graph_allocation(
        &mut self,
        device: usize,
        bytes: u64,
    ) -> Result<(u64, NodeKind), Error> {
        let size = bytes.checked_next_multiple_of(GRANULARITY).ok_or(INVALID_VALUE)?;
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        let address = self.arena.take(size, LARGE).ok_or(OUT_OF_MEMORY)?;
        Ok((address, NodeKind::Alloc { device, bytes, address }))
    }

    /// Backs an allocation node with memory for a launch.
    pub(crate) fn begin_graph_memory(
        &mut self,
        process: &Process,
        device: usize,
        bytes: u64,
        address: u64,
    ) -> Outcome {
        let size = bytes.next_multiple_of(GRANULARITY);
        let place = self.devices.get(device).ok_or(INVALID_VALUE)?.place;
        let kept = self.graph_memory.get_mut(device).ok_or(INVALID_VALUE)?;
        let fits = |part: &&mut Part| part.address.is_none() && part.size >= size;
        match kept.parts.iter_mut().filter(fits).min_by_key(|part| part.size) {
            Some(part) => part.address = Some(address),
            None => {
                let mut claim = process.gpus.take(place, MemoryKind::Graph, size);
                if claim.is_err() {
                    trim(process, kept);
                    claim = process.gpus.take(place, MemoryKind::Graph, size);
                }
                let claim = claim.map_err(|_| OUT_OF_MEMORY)?;
                kept.parts.push(Part { claim, size, address: Some(address) });
            }
        }
        kept.used_high = kept.used_high.max(kept.used());
        kept.reserved_high = kept.reserved_high.max(kept.reserved());
        self.keep(
            address,
            Allocation {
                size: bytes,
                context: 0,
                device,
                what: What::Graph,
                block: 0,
                serial: 0,
                sync_operations: false,
            },
        );
        Ok(())
    }

    /// Whether the memory of an allocation node is there.
    pub(crate) fn is_graph_memory(&self, address: u64) -> bool {
        self.allocations.get(&address).is_some_and(|found| found.what == What::Graph)
    }

    /// Keeps what an allocation had for others.
    pub(crate) fn end_graph_memory(&mut self, device: usize, address: u64) {
        let kept = self.graph_memory.get_mut(device);
        for part in kept.into_iter().flat_map(|kept| &mut kept.parts) {
            if part.address == Some(address) {
                part.address = None;
            }
        }
    }
}

fn trim(process: &Process, kept: &mut GraphMemory) {
    let unused = |part: &Part| part.address.is_none();
    for part in kept.parts.iter().filter(|part| unused(part)) {
        process.gpus.give(part.claim);
    }
    kept.parts.retain(|part| !unused(part));
}

exports! { GRAPH_MEMORY;
    "cuDeviceGraphMemTrim" 11040 call fn cuDeviceGraphMemTrim(device: c_int) |call| {
        let mut driver = call.lock();
        let (device, _) = driver.device(device)?;
        let kept = driver.graph_memory.get_mut(device).ok_or(INVALID_VALUE)?;
        trim(call.process, kept);
        Ok(())
    }

    "cuDeviceGetGraphMemAttribute" 11040 call fn cuDeviceGetGraphMemAttribute(
        device: c_int, attribute: u32, to: *mut c_void,
    ) |call| {
        let driver = call.lock();
        let (device, _) = driver.device(device)?;
        let kept = driver.graph_memory.get(device).ok_or(INVALID_VALUE)?;
        let value = match attribute {
            0 => kept.used(),
            1 => kept.used_high,
            2 => kept.reserved(),
            3 => kept.reserved_high,
            _ => return Err(INVALID_VALUE),
        };
        put(to.cast(), value)
    }

    "cuDeviceSetGraphMemAttribute" 11040 call fn cuDeviceSetGraphMemAttribute(
        device: c_int, attribute: u32, value: *mut c_void,
    ) |call| {
        let mut driver = call.lock();
        let (device, _) = driver.device(device)?;
        let kept = driver.graph_memory.get_mut(device).ok_or(INVALID_VALUE)?;
        if get::<u64>(value.cast_const().cast())? != 0 { return Err(INVALID_VALUE) }
        match attribute {
            1 => kept.used_high = kept.used(),
            3 => kept.reserved_high = kept.reserved(),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
}
