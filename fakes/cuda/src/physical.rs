//! Virtual memory management: addresses and physical memory apart. Physical memory lies in a file, so
//! that it can be mapped at several addresses and by other processes.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;

use fake_gpu::{Claim, MemoryKind, Place};

use crate::addresses::LARGE;
use crate::calls::{Call, Process, exports};
use crate::driver::Driver;
use crate::handles::Handle;
use crate::layouts::{AccessDescription, AllocationProperties, Location};
use crate::mapping;
use crate::memory::{Allocation, GRANULARITY, What};
use crate::pointers::{get, get_list, put};
use crate::pool_sharing::DESCRIPTOR;
use crate::result::{
    ALREADY_MAPPED, Error, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM,
    OUT_OF_MEMORY, Outcome,
};

/// Physical memory: freed when neither a handle nor a mapping is left.
pub(crate) struct Physical {
    pub(crate) size: u64,
    /// None for host memory.
    claim: Option<Claim>,
    device: usize,
    properties: AllocationProperties,
    file: File,
    handles: u32,
    mappings: u32,
}

const PINNED: c_int = 1;
const MANAGED: c_int = 2;

/// What lies behind the bytes of a file that stands for physical memory.
const MARK: [u8; 8] = *b"cudaphys";

impl Physical {
    pub(crate) fn handle_types(&self) -> u32 {
        self.properties.handle_types.cast_unsigned()
    }

    /// Writes behind the bytes what another process needs to know.
    fn describe(&self, place: Place) -> Outcome {
        let claim = self.claim.map_or(u64::MAX, |claim| claim.0);
        let words = [claim, self.size, u64::from(place.gpu)];
        let bytes: Vec<u8> =
            MARK.into_iter().chain(words.into_iter().flat_map(u64::to_le_bytes)).collect();
        self.file.write_all_at(&bytes, self.size).map_err(|_| OPERATING_SYSTEM)
    }
}

/// Claim, size and GPU from a file that another process has described.
pub(crate) fn described(file: &File) -> Option<(Option<Claim>, u64, u32)> {
    let length = file.metadata().ok()?.len();
    let mut bytes = [0; 32];
    let size = length.checked_sub(32)?;
    file.read_exact_at(&mut bytes, size).ok()?;
    let word = |at: usize| {
        let word = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(word))
    };
    if word(0)? != u64::from_le_bytes(MARK) || word(16)? != size {
        return None;
    }
    let claim = Some(word(8)?).filter(|claim| *claim != u64::MAX).map(Claim);
    Some((claim, size, u32::try_from(word(24)?).ok()?))
}

impl Driver {
    fn physical(&self, handle: u64) -> Result<&Physical, Error> {
        self.physical.get(handle as usize).filter(|p| p.handles > 0).ok_or(INVALID_VALUE)
    }

    /// The device on which physical memory with these properties lies; none for host memory, whose
    /// number does not count.
    fn place_of(&self, properties: &AllocationProperties) -> Result<Option<usize>, Error> {
        if !matches!(properties.kind, PINNED | MANAGED) {
            return Err(INVALID_VALUE);
        }
        match properties.location.kind {
            Location::DEVICE => Ok(Some(self.device(properties.location.id)?.0)),
            Location::HOST | Location::HOST_NUMA | Location::HOST_NUMA_CURRENT => Ok(None),
            _ => Err(INVALID_VALUE),
        }
    }

    fn create_physical(
        &mut self,
        process: &Process,
        size: u64,
        properties: AllocationProperties,
    ) -> Result<Handle, Error> {
        let device = self.place_of(&properties)?;
        if size == 0 || !size.is_multiple_of(GRANULARITY) {
            return Err(INVALID_VALUE);
        }
        let place = self.devices.get(device.unwrap_or(0)).ok_or(INVALID_VALUE)?.place;
        let claim = match device {
            None => None,
            Some(_) => {
                let taken = process.gpus.take(place, MemoryKind::Physical, size);
                Some(taken.map_err(|_| OUT_OF_MEMORY)?)
            }
        };
        let made = mapping::memory_file(size).ok_or(OUT_OF_MEMORY).and_then(|file| {
            let device = device.unwrap_or(0);
            let physical =
                Physical { size, claim, device, properties, file, handles: 1, mappings: 0 };
            physical.describe(place).map(|()| physical)
        });
        if made.is_err() {
            claim.map(|claim| process.gpus.give(claim));
        }
        Ok(self.physical.insert(made?))
    }

    /// Lets physical memory go if nobody holds it any more.
    fn settle_physical(&mut self, process: &Process, handle: Handle) {
        let Some(physical) = self.physical.get(handle) else { return };
        if physical.handles == 0 && physical.mappings == 0 {
            physical.claim.map(|claim| process.gpus.give(claim));
            self.physical.remove(handle);
        }
    }

    /// Whether a range lies within one reservation.
    fn is_reserved(&self, address: u64, size: u64) -> bool {
        let found = self.reserved.range(..=address).next_back();
        found.is_some_and(|(start, length)| address + size <= start + length)
    }

    fn map(&mut self, address: u64, size: u64, offset: u64, handle: Handle) -> Outcome {
        let physical = self.physical(handle as u64)?;
        let whole = [address, size, offset].iter().all(|n| n.is_multiple_of(GRANULARITY));
        if !whole || size == 0 || offset + size > physical.size || !self.is_reserved(address, size)
        {
            return Err(INVALID_VALUE);
        }
        let before = self.allocations.range(..address + size).next_back();
        if before.is_some_and(|(start, found)| start + found.size > address) {
            return Err(ALREADY_MAPPED);
        }
        if !mapping::map_file(address, size, &physical.file, offset) {
            return Err(OUT_OF_MEMORY);
        }
        let (device, what) = (physical.device, What::Mapped(handle, offset));
        if let Some(physical) = self.physical.get_mut(handle) {
            physical.mappings += 1;
        }
        self.keep(
            address,
            Allocation {
                size,
                context: 0,
                device,
                what,
                block: 0,
                serial: 0,
                sync_operations: false,
            },
        );
        Ok(())
    }

    /// Takes the mappings in a range away, which must be whole ones.
    fn unmap(&mut self, process: &Process, address: u64, size: u64) -> Outcome {
        let end = address.checked_add(size).ok_or(INVALID_VALUE)?;
        let inside = self.allocations.range(address..end);
        let mapped: Vec<(u64, u64, What)> =
            inside.map(|(start, found)| (*start, found.size, found.what)).collect();
        let all = mapped.iter().all(|(_, _, what)| matches!(what, What::Mapped(..)));
        let covered: u64 = mapped.iter().map(|(_, size, _)| size).sum();
        if size == 0 || !all || covered != size {
            return Err(INVALID_VALUE);
        }
        for (start, size, what) in mapped {
            self.allocations.remove(&start);
            mapping::unmap_file(start, size);
            if let What::Mapped(handle, _) = what {
                if let Some(physical) = self.physical.get_mut(handle) {
                    physical.mappings = physical.mappings.saturating_sub(1);
                }
                self.settle_physical(process, handle);
            }
        }
        Ok(())
    }

    fn import_physical(&mut self, process: &Process, fd: c_int) -> Result<Handle, Error> {
        let file = mapping::duplicate(fd).ok_or(INVALID_VALUE)?;
        let (claim, size, gpu) = described(&file).ok_or(INVALID_VALUE)?;
        let device = self.devices.iter().position(|device| device.place.gpu == gpu);
        let device = device.ok_or(INVALID_VALUE)?;
        // Within one process it is the same memory under one more handle.
        let same = |other: &Physical| claim.is_some() && other.claim == claim;
        if let Some(known) = self.physical.find(same).first().copied() {
            if let Some(physical) = self.physical.get_mut(known) {
                physical.handles += 1;
            }
            return Ok(known);
        }
        if !claim.is_none_or(|claim| process.gpus.keep(claim)) {
            return Err(INVALID_VALUE);
        }
        let kind = if claim.is_some() { Location::DEVICE } else { Location::HOST };
        let location = Location { kind, id: c_int::try_from(device).unwrap_or(0) };
        let properties = AllocationProperties {
            kind: PINNED,
            handle_types: DESCRIPTOR,
            location,
            ..AllocationProperties::default()
        };
        let physical = Physical { size, claim, device, properties, file, handles: 1, mappings: 0 };
        Ok(self.physical.insert(physical))
    }
}

impl Call {
    fn reserve(&self, size: u64, alignment: u64, hint: u64) -> Result<u64, Error> {
        let mut driver = self.lock();
        let bad = size == 0 || !size.is_multiple_of(GRANULARITY);
        if bad || alignment != 0 && !alignment.is_power_of_two() {
            return Err(INVALID_VALUE);
        }
        // Where the caller would like it is not promised.
        let _ = hint;
        let address = driver.arena.take(size, alignment.max(LARGE)).ok_or(OUT_OF_MEMORY)?;
        driver.reserved.insert(address, size);
        Ok(address)
    }
}

exports! { PHYSICAL;
    "cuMemAddressReserve" 10020 call fn cuMemAddressReserve(
        to: *mut u64, size: usize, alignment: usize, hint: u64, flags: u64,
    ) |call| {
        if to.is_null() || flags != 0 { return Err(INVALID_VALUE) }
        put(to, call.reserve(size as u64, alignment as u64, hint)?)
    }

    "cuMemAddressFree" 10020 call fn cuMemAddressFree(address: u64, size: usize) |call| {
        let mut driver = call.lock();
        let size = size as u64;
        if driver.reserved.get(&address) != Some(&size)
            || driver.allocations.range(address..address + size).next().is_some()
        {
            return Err(INVALID_VALUE);
        }
        driver.reserved.remove(&address);
        driver.arena.give(address, size);
        Ok(())
    }

    "cuMemCreate" 10020 call fn cuMemCreate(
        to: *mut u64, size: usize, properties: *const AllocationProperties, flags: u64,
    ) |call| {
        if to.is_null() || flags != 0 { return Err(INVALID_VALUE) }
        let mut driver = call.lock();
        driver.forbid_unsafe()?;
        let handle = driver.create_physical(call.process, size as u64, get(properties)?)?;
        put(to, handle as u64)
    }

    "cuMemRelease" 10020 call fn cuMemRelease(handle: u64) |call| {
        let mut driver = call.lock();
        driver.physical(handle)?;
        let handle = handle as usize;
        if let Some(physical) = driver.physical.get_mut(handle) {
            physical.handles -= 1;
        }
        driver.settle_physical(call.process, handle);
        Ok(())
    }

    "cuMemMap" 10020 call fn cuMemMap(
        address: u64, size: usize, offset: usize, handle: u64, flags: u64,
    ) |call| {
        if flags != 0 { return Err(INVALID_VALUE) }
        call.lock().map(address, size as u64, offset as u64, handle as usize)
    }

    "cuMemUnmap" 10020 call fn cuMemUnmap(address: u64, size: usize) |call| {
        call.lock().unmap(call.process, address, size as u64)
    }

    "cuMemSetAccess" 10020 call fn cuMemSetAccess(
        address: u64, size: usize, list: *const AccessDescription, count: usize,
    ) |call| {
        let list = get_list(list, count)?;
        let driver = call.lock();
        for access in &list {
            if access.location.kind == Location::DEVICE {
                driver.device(access.location.id)?;
            }
        }
        if count == 0 || !driver.knows(address, size as u64) { return Err(INVALID_VALUE) }
        Ok(())
    }

    // Every device may read and write what is mapped.
    "cuMemGetAccess" 10020 call fn cuMemGetAccess(
        flags: *mut u64, location: *const Location, address: u64,
    ) |call| {
        get(location)?;
        call.lock().allocation(address).ok_or(INVALID_VALUE)?;
        put(flags, 3)
    }

    "cuMemExportToShareableHandle" 10020 call fn cuMemExportToShareableHandle(
        to: *mut c_int, handle: u64, kind: c_int, flags: u64,
    ) |call| {
        let driver = call.lock();
        let physical = driver.physical(handle)?;
        if kind != DESCRIPTOR { return Err(NOT_SUPPORTED) }
        if physical.properties.handle_types & DESCRIPTOR == 0 || flags != 0 || to.is_null() {
            return Err(INVALID_VALUE);
        }
        let file = physical.file.try_clone().map_err(|_| OPERATING_SYSTEM)?;
        put(to, file.into_raw_fd())
    }

    // The descriptor itself is passed in place of a pointer.
    "cuMemImportFromShareableHandle" 10020 call fn cuMemImportFromShareableHandle(
        to: *mut u64, handle: *mut c_void, kind: c_int,
    ) |call| {
        if kind != DESCRIPTOR { return Err(NOT_SUPPORTED) }
        let fd = c_int::try_from(handle.addr()).map_err(|_| INVALID_VALUE)?;
        if to.is_null() { return Err(INVALID_VALUE) }
        put(to, call.lock().import_physical(call.process, fd)? as u64)
    }

    "cuMemGetAllocationGranularity" 10020 call fn cuMemGetAllocationGranularity(
        to: *mut usize, properties: *const AllocationProperties, option: u32,
    ) |call| {
        call.lock().place_of(&get(properties)?)?;
        if option > 1 { return Err(INVALID_VALUE) }
        put(to, GRANULARITY as usize)
    }

    "cuMemGetAllocationPropertiesFromHandle" 10020 call fn cuMemGetAllocationPropertiesFromHandle(
        to: *mut AllocationProperties, handle: u64,
    ) |call| { put(to, call.lock().physical(handle)?.properties) }

    "cuMemRetainAllocationHandle" 11000 call fn cuMemRetainAllocationHandle(
        to: *mut u64, address: *mut c_void,
    ) |call| {
        let mut driver = call.lock();
        if to.is_null() { return Err(INVALID_VALUE) }
        let found = driver.allocation(address.expose_provenance() as u64).ok_or(INVALID_VALUE)?;
        let What::Mapped(handle, _) = found.1.what else { return Err(INVALID_VALUE) };
        driver.physical.get_mut(handle).ok_or(INVALID_HANDLE)?.handles += 1;
        put(to, handle as u64)
    }
}
