//! Memory that came by a file descriptor of another interface. One that stands for physical memory of
//! this driver is that memory, booked where it was made; any other is booked nowhere.

use std::fs::File;

use fake_gpu::Claim;

use crate::addresses::LARGE;
use crate::calls::{Process, exports};
use crate::driver::Driver;
use crate::handles::Handle;
use crate::layouts::{ExternalBuffer, ExternalDescription};
use crate::mapping;
use crate::memory::{Allocation, What};
use crate::physical::described;
use crate::pointers::{get, put};
use crate::result::{Error, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};

/// External memory, mapped as long as it is imported.
pub(crate) struct External {
    address: u64,
    size: u64,
    claim: Option<Claim>,
    buffers: Vec<u64>,
}

const OPAQUE_FD: u32 = 1;
const DMA_BUF_FD: u32 = 9;

impl Driver {
    fn import_external(
        &mut self,
        process: &Process,
        size: u64,
        file: &File,
    ) -> Result<Handle, Error> {
        let ours = described(file);
        let size = size.checked_next_multiple_of(LARGE).ok_or(INVALID_VALUE)?;
        // Reading behind the end of a file would end the process.
        if file.metadata().map_or(0, |about| about.len()) < size && ours.is_none() {
            file.set_len(size).map_err(|_| INVALID_VALUE)?;
        }
        // The size is that of the memory, not of a part.
        if ours.is_some_and(|(_, whole, _)| whole != size) {
            return Err(INVALID_VALUE);
        }
        let claim = ours.and_then(|(claim, ..)| claim);
        if !claim.is_none_or(|claim| process.gpus.keep(claim)) {
            return Err(INVALID_VALUE);
        }
        let address = self.arena.take(size, LARGE);
        let mapped = address.filter(|at| mapping::map_file(*at, size, file, 0));
        if mapped.is_none() {
            claim.map(|claim| process.gpus.give(claim));
        }
        let address = mapped.ok_or(OUT_OF_MEMORY)?;
        Ok(self.external.insert(External { address, size, claim, buffers: Vec::new() }))
    }
}

exports! { EXTERNAL;
    "cuImportExternalMemory" 10000 call fn cuImportExternalMemory(
        to: *mut Handle, from: *const ExternalDescription,
    ) |call| {
        let from = get(from)?;
        let mut driver = call.lock();
        call.current(&driver)?;
        driver.forbid_unsafe()?;
        if !matches!(from.kind, OPAQUE_FD | DMA_BUF_FD) { return Err(NOT_SUPPORTED) }
        if from.size == 0 || to.is_null() { return Err(INVALID_VALUE) }
        let file = mapping::duplicate(from.handle.fd).ok_or(INVALID_VALUE)?;
        let handle = driver.import_external(call.process, from.size, &file)?;
        // The descriptor is the driver's from now on.
        // SAFETY: by the interface's contract nobody else closes it after this call.
        unsafe { libc::close(from.handle.fd) };
        put(to, handle)
    }

    "cuExternalMemoryGetMappedBuffer" 10000 call fn cuExternalMemoryGetMappedBuffer(
        to: *mut u64, external: Handle, buffer: *const ExternalBuffer,
    ) |call| {
        let buffer = get(buffer)?;
        let mut driver = call.lock();
        let (context, of) = call.current(&driver)?;
        let device = of.device;
        let found = driver.external.get_mut(external).ok_or(INVALID_HANDLE)?;
        let end = buffer.offset.checked_add(buffer.size).ok_or(INVALID_VALUE)?;
        if buffer.size == 0 || end > found.size || to.is_null() { return Err(INVALID_VALUE) }
        let address = found.address + buffer.offset;
        found.buffers.push(address);
        put(to, driver.keep(address, Allocation {
            size: buffer.size,
            context,
            device,
            what: What::Variable,
            block: 0,
            serial: 0,
            sync_operations: false,
        }))
    }

    "cuDestroyExternalMemory" 10000 call fn cuDestroyExternalMemory(external: Handle) |call| {
        let mut driver = call.lock();
        let gone = driver.external.remove(external).ok_or(INVALID_HANDLE)?;
        for buffer in gone.buffers {
            driver.allocations.remove(&buffer);
        }
        mapping::unmap_file(gone.address, gone.size);
        driver.arena.give(gone.address, gone.size);
        gone.claim.map(|claim| call.process.gpus.give(claim));
        Ok(())
    }
}
