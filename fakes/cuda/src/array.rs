//! Arrays and mipmapped arrays: memory of which only the driver knows the order. Here it is rows.

use fake_gpu::MemoryKind;

use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::handles::Handle;
use crate::layouts::{Array3Descriptor, ArrayDescriptor, MemoryRequirements};
use crate::memory::{GRANULARITY, Wanted, What};
use crate::pointers::{get, put};
use crate::result::{Error, INVALID_HANDLE, INVALID_VALUE, Outcome};

/// An array.
pub(crate) struct Array {
    descriptor: Array3Descriptor,
    address: u64,
    /// It is a level of that mipmapped array, whose memory it is in.
    level_of: Option<Handle>,
}

/// An array in several sizes.
pub(crate) struct Mipmapped {
    descriptor: Array3Descriptor,
    levels: Vec<Handle>,
    address: u64,
}

/// Bytes of one channel by the format's number in cuda.h; of packed formats, of an element.
fn channel_bytes(format: u32) -> Option<u64> {
    match format {
        0x01 | 0x08 | 0xc0 | 0xc6 => Some(1),
        0x02 | 0x09 | 0x10 | 0xc1 | 0xc3 | 0xc7 | 0xc9 => Some(2),
        0x03 | 0x0a | 0x20 | 0xc2 | 0xc4 | 0xc8 | 0xca => Some(4),
        0xc5 | 0xcb => Some(8),
        // Block-compressed and video formats: 1 byte for a pixel is near enough to take memory.
        0x50..=0x5e | 0x91..=0xb5 => Some(1),
        _ => None,
    }
}

/// Bytes of a row, rows of a slice, slices.
fn shape(descriptor: &Array3Descriptor) -> Result<(u64, u64, u64), Error> {
    let element = channel_bytes(descriptor.format).ok_or(INVALID_VALUE)?;
    if descriptor.width == 0 || !matches!(descriptor.channels, 1 | 2 | 4) {
        return Err(INVALID_VALUE);
    }
    let row = (descriptor.width as u64).checked_mul(element * u64::from(descriptor.channels));
    let row = row.ok_or(INVALID_VALUE)?;
    Ok((row, descriptor.height.max(1) as u64, descriptor.depth.max(1) as u64))
}

fn size(descriptor: &Array3Descriptor) -> Result<u64, Error> {
    let (row, rows, slices) = shape(descriptor)?;
    row.checked_mul(rows).and_then(|n| n.checked_mul(slices)).ok_or(INVALID_VALUE)
}

fn three(flat: ArrayDescriptor) -> Array3Descriptor {
    let ArrayDescriptor { width, height, format, channels } = flat;
    Array3Descriptor { width, height, depth: 0, format, channels, flags: 0 }
}

impl Driver {
    fn array(&self, handle: Handle) -> Result<&Array, Error> {
        self.arrays.get(handle).ok_or(INVALID_HANDLE)
    }

    /// Where an array's memory begins.
    pub(crate) fn array_address(&self, handle: Handle) -> Result<u64, Error> {
        Ok(self.array(handle)?.address)
    }

    /// Where an array begins, bytes of a row and of a slice.
    pub(crate) fn array_shape(&self, handle: Handle) -> Result<(u64, u64, u64), Error> {
        let array = self.array(handle)?;
        let (row, rows, _) = shape(&array.descriptor)?;
        Ok((array.address, row, row * rows))
    }
}

impl Call {
    fn create_array(&self, to: *mut Handle, descriptor: Array3Descriptor) -> Outcome {
        let mut driver = self.lock();
        let context = self.current(&driver)?.0;
        driver.forbid_unsafe()?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        let bytes = size(&descriptor)?;
        let wanted = Wanted { bytes, kind: MemoryKind::Array, what: What::Array };
        let address = driver.allocate(self.process, context, wanted)?;
        put(to, driver.arrays.insert(Array { descriptor, address, level_of: None }))
    }

    fn create_mipmapped(
        &self,
        to: *mut Handle,
        descriptor: Array3Descriptor,
        levels: u32,
    ) -> Outcome {
        let mut driver = self.lock();
        let context = self.current(&driver)?.0;
        driver.forbid_unsafe()?;
        if to.is_null() || levels == 0 || levels > 32 {
            return Err(INVALID_VALUE);
        }
        let level = |at: u32| Array3Descriptor {
            width: (descriptor.width >> at).max(1),
            height: if descriptor.height == 0 { 0 } else { (descriptor.height >> at).max(1) },
            depth: if descriptor.depth == 0 { 0 } else { (descriptor.depth >> at).max(1) },
            ..descriptor
        };
        let sizes = (0..levels).map(|at| size(&level(at))).collect::<Result<Vec<u64>, Error>>()?;
        let bytes = sizes.iter().sum();
        let wanted = Wanted { bytes, kind: MemoryKind::Array, what: What::Array };
        let start = driver.allocate(self.process, context, wanted)?;
        let mipmapped = Mipmapped { descriptor, levels: Vec::new(), address: start };
        let handle = driver.mipmapped.insert(mipmapped);
        let mut address = start;
        for (at, bytes) in (0..levels).zip(sizes) {
            let array = Array { descriptor: level(at), address, level_of: Some(handle) };
            let array = driver.arrays.insert(array);
            if let Some(mipmapped) = driver.mipmapped.get_mut(handle) {
                mipmapped.levels.push(array);
            }
            address += bytes;
        }
        put(to, handle)
    }

    fn destroy_array(&self, handle: Handle) -> Outcome {
        let mut driver = self.lock();
        driver.forbid_unsafe()?;
        let array = driver.array(handle)?;
        if array.level_of.is_some() {
            return Err(INVALID_HANDLE);
        }
        let address = array.address;
        driver.arrays.remove(handle);
        driver.free(self.process, address)
    }
}

fn requirements(descriptor: &Array3Descriptor) -> Result<MemoryRequirements, Error> {
    let bytes = size(descriptor)?.next_multiple_of(GRANULARITY) as usize;
    let alignment = GRANULARITY as usize;
    Ok(MemoryRequirements { size: bytes, alignment, ..MemoryRequirements::default() })
}

exports! { ARRAY;
    "cuArrayCreate" 3020 call fn cuArrayCreate_v2(to: *mut Handle, from: *const ArrayDescriptor)
    |call| { call.create_array(to, three(get(from)?)) }

    "cuArray3DCreate" 3020 call fn cuArray3DCreate_v2(to: *mut Handle, from: *const Array3Descriptor)
    |call| { call.create_array(to, get(from)?) }

    "cuArrayDestroy" 2000 call fn cuArrayDestroy(array: Handle) |call| { call.destroy_array(array) }

    "cuArrayGetDescriptor" 3020 call fn cuArrayGetDescriptor_v2(
        to: *mut ArrayDescriptor, array: Handle,
    ) |call| {
        let Array3Descriptor { width, height, format, channels, .. } =
            call.lock().array(array)?.descriptor;
        put(to, ArrayDescriptor { width, height, format, channels })
    }

    "cuArray3DGetDescriptor" 3020 call fn cuArray3DGetDescriptor_v2(
        to: *mut Array3Descriptor, array: Handle,
    ) |call| { put(to, call.lock().array(array)?.descriptor) }

    "cuArrayGetMemoryRequirements" 11060 call fn cuArrayGetMemoryRequirements(
        to: *mut MemoryRequirements, array: Handle, device: i32,
    ) |call| {
        let driver = call.lock();
        driver.device(device)?;
        put(to, requirements(&driver.array(array)?.descriptor)?)
    }

    "cuMipmappedArrayCreate" 5000 call fn cuMipmappedArrayCreate(
        to: *mut Handle, from: *const Array3Descriptor, levels: u32,
    ) |call| { call.create_mipmapped(to, get(from)?, levels) }

    "cuMipmappedArrayGetLevel" 5000 call fn cuMipmappedArrayGetLevel(
        to: *mut Handle, mipmapped: Handle, level: u32,
    ) |call| {
        let driver = call.lock();
        let mipmapped = driver.mipmapped.get(mipmapped).ok_or(INVALID_HANDLE)?;
        put(to, *mipmapped.levels.get(level as usize).ok_or(INVALID_VALUE)?)
    }

    "cuMipmappedArrayDestroy" 5000 call fn cuMipmappedArrayDestroy(mipmapped: Handle) |call| {
        let mut driver = call.lock();
        driver.forbid_unsafe()?;
        let gone = driver.mipmapped.remove(mipmapped).ok_or(INVALID_HANDLE)?;
        for level in gone.levels {
            driver.arrays.remove(level);
        }
        driver.free(call.process, gone.address)
    }

    "cuMipmappedArrayGetMemoryRequirements" 11060 call fn cuMipmappedArrayGetMemoryRequirements(
        to: *mut MemoryRequirements, mipmapped: Handle, device: i32,
    ) |call| {
        let driver = call.lock();
        driver.device(device)?;
        let descriptor = driver.mipmapped.get(mipmapped).ok_or(INVALID_HANDLE)?.descriptor;
        put(to, requirements(&descriptor)?)
    }
}
