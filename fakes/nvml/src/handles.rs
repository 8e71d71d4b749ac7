//! Handles: numbers in the shape of pointers, good in one process, never followed. An instance's
//! handle holds its serial number, so that it dies with the instance.

use std::ffi::c_void;

use fake_machine::{Code, ComputeInstance, Gpu, GpuInstance};

use crate::calls::Call;

const GPU: u64 = 1;
const GPU_INSTANCE: u64 = 2;
const COMPUTE_INSTANCE: u64 = 3;
const MIG_DEVICE: u64 = 4;

/// Kinds of things that this process keeps by number.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Object {
    EventSet = 5,
    GpmSample = 6,
}

/// What a device handle stands for.
#[derive(Clone, Copy)]
pub(crate) enum Device<'a> {
    /// A physical GPU and its index.
    Gpu(u32, &'a Gpu),
    /// A MIG device on it.
    Mig(u32, &'a Gpu, &'a GpuInstance, &'a ComputeInstance),
}

impl<'a> Device<'a> {
    /// The physical GPU and its index.
    pub(crate) fn physical(self) -> (u32, &'a Gpu) {
        match self {
            Self::Gpu(index, gpu) | Self::Mig(index, gpu, ..) => (index, gpu),
        }
    }
}

impl Call {
    /// What a device handle stands for.
    pub(crate) fn device<T>(&self, handle: *mut T) -> Result<Device<'_>, Code> {
        let (kind, index, serial) = unpack(handle);
        let gpu = self.state.gpu(index)?;
        if gpu.lost {
            return Err(Code::GpuIsLost);
        }
        match kind {
            GPU => Ok(Device::Gpu(index, gpu)),
            MIG_DEVICE => {
                let devices = gpu.mig_devices().into_iter();
                let mut found = devices.filter(|(_, part)| part.serial == serial);
                let (instance, part) = found.next().ok_or(Code::NotFound)?;
                Ok(Device::Mig(index, gpu, instance, part))
            }
            _ => Err(Code::InvalidArgument),
        }
    }

    /// The GPU of a handle that must not be a MIG device's; such calls are not supported there.
    pub(crate) fn gpu<T>(&self, handle: *mut T) -> Result<(u32, &Gpu), Code> {
        match self.device(handle)? {
            Device::Gpu(index, gpu) => Ok((index, gpu)),
            Device::Mig(..) => Err(Code::NotSupported),
        }
    }

    /// The GPU instance of a handle, with its GPU and that one's index.
    pub(crate) fn gpu_instance<T>(
        &self,
        handle: *mut T,
    ) -> Result<(u32, &Gpu, &GpuInstance), Code> {
        let (index, gpu, serial) = self.within(handle, GPU_INSTANCE)?;
        let mut all = gpu.instances.iter();
        let instance = all.find(|other| other.serial == serial).ok_or(Code::NotFound)?;
        Ok((index, gpu, instance))
    }

    /// The compute instance of a handle, with all that it is in.
    pub(crate) fn compute_instance<T>(
        &self,
        handle: *mut T,
    ) -> Result<(u32, &Gpu, &GpuInstance, &ComputeInstance), Code> {
        let (index, gpu, serial) = self.within(handle, COMPUTE_INSTANCE)?;
        let mut all = gpu.mig_devices().into_iter();
        let (instance, part) = all.find(|(_, part)| part.serial == serial).ok_or(Code::NotFound)?;
        Ok((index, gpu, instance, part))
    }

    fn within<T>(&self, handle: *mut T, expected: u64) -> Result<(u32, &Gpu, u32), Code> {
        let (kind, index, serial) = unpack(handle);
        if kind != expected {
            return Err(Code::InvalidArgument);
        }
        let gpu = self.state.gpu(index)?;
        if gpu.lost { Err(Code::GpuIsLost) } else { Ok((index, gpu, serial)) }
    }
}

/// The handle of a GPU.
pub(crate) fn of_gpu<T>(index: u32) -> *mut T {
    pack(GPU, index, 0)
}

/// The handle of a GPU instance.
pub(crate) fn of_gpu_instance<T>(index: u32, instance: &GpuInstance) -> *mut T {
    pack(GPU_INSTANCE, index, instance.serial)
}

/// The handle of a compute instance.
pub(crate) fn of_compute_instance<T>(index: u32, part: &ComputeInstance) -> *mut T {
    pack(COMPUTE_INSTANCE, index, part.serial)
}

/// The handle of a MIG device.
pub(crate) fn of_mig_device<T>(index: u32, part: &ComputeInstance) -> *mut T {
    pack(MIG_DEVICE, index, part.serial)
}

/// The handle of something that this process keeps by number.
pub(crate) fn of_object<T>(kind: Object, number: u32) -> *mut T {
    pack(kind as u64, 0, number)
}

/// The number of something that this process keeps.
pub(crate) fn object<T>(expected: Object, handle: *mut T) -> Result<u32, Code> {
    match unpack(handle) {
        (kind, 0, number) if kind == expected as u64 => Ok(number),
        _ => Err(Code::InvalidArgument),
    }
}

// Bits: 8 for the kind, 8 for the index, 32 for the serial number, 8 that are 0.
fn pack<T>(kind: u64, index: u32, serial: u32) -> *mut T {
    let bits = kind << 48 | u64::from(index & 0xff) << 40 | u64::from(serial) << 8;
    std::ptr::without_provenance_mut::<c_void>(bits as usize).cast()
}

fn unpack<T>(handle: *mut T) -> (u64, u32, u32) {
    let bits = handle.addr() as u64;
    let byte = |shift: u64| (bits >> shift & 0xff) as u32;
    (bits >> 48, byte(40), (bits >> 8 & 0xffff_ffff) as u32)
}
