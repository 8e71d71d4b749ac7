//! The driver's calls on MIG instances that `nvml-wrapper` leaves out: one function for each, which
//! takes and gives plain values. Instances go by the driver's numbers, never by handles kept.
#![allow(unsafe_code, reason = "calls through the driver's function table")]

use std::ffi::CStr;
use std::ptr::null_mut;

use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings as sys;

use crate::driver::{Driver, DriverError, Fault, check};

/// One past the last profile number that is asked for. The newest header ends at 0x12; a driver
/// answers "invalid argument" for numbers it does not know.
const PROFILES_ASKED: u32 = 0x20;
const INVALID_ARGUMENT: u32 = sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
/// Most instances of one profile, on any GPU known.
const INSTANCES_MAX: usize = 16;

/// A profile as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverProfile {
    pub(crate) id: u32,
    /// `None` where only its number is told; see `suffix`.
    pub(crate) name: Option<String>,
    /// What its name ends in behind the memory.
    pub(crate) suffix: &'static str,
    pub(crate) compute_slices: u32,
    pub(crate) instances_max: u32,
    pub(crate) memory_mib: u64,
}

/// A GPU instance as the driver describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriverInstance {
    pub(crate) id: u32,
    pub(crate) profile_id: u32,
    pub(crate) start: u32,
}

/// The MIG calls on one GPU.
pub(crate) struct MigCalls<'a> {
    driver: &'a Driver,
    device: Device<'a>,
    uuid: &'a str,
}

macro_rules! function {
    ($self:ident, $name:ident) => {
        match &$self.driver.nvml().lib().$name {
            Ok(function) => *function,
            Err(_) => return Err($self.error(stringify!($name), Fault::TooOld)),
        }
    };
}

impl<'a> MigCalls<'a> {
    pub(crate) fn new(driver: &'a Driver, uuid: &'a str) -> Result<Self, DriverError> {
        Ok(Self { driver, device: driver.device(uuid)?, uuid })
    }

    fn error(&self, call: &'static str, fault: Fault) -> DriverError {
        DriverError::call(call, fault).on(self.uuid)
    }

    fn check(&self, call: &'static str, code: u32) -> Result<(), DriverError> {
        check(call, code).map_err(|error| error.on(self.uuid))
    }

    fn handle(&self) -> sys::nvmlDevice_t {
        // SAFETY: the handle is used for calls of the same library, while the driver is borrowed.
        unsafe { self.device.handle() }
    }

    /// Every profile of the GPU.
    pub(crate) fn profiles(&self) -> Result<Vec<DriverProfile>, DriverError> {
        let mut found = Vec::new();
        for number in 0..PROFILES_ASKED {
            match self.profile(number) {
                Ok(profile) => found.push(profile),
                Err(error) if error.is(&Fault::NotSupported) => {}
                Err(error) if error.is(&Fault::Code(INVALID_ARGUMENT)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn profile(&self, number: u32) -> Result<DriverProfile, DriverError> {
        let Ok(function) = &self.driver.nvml().lib().nvmlDeviceGetGpuInstanceProfileInfoV else {
            return self.nameless_profile(number);
        };
        // SAFETY: plain integers and bytes; zero is a value of each.
        let mut info: sys::nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
        // NVML's convention: the struct's size with its version in the top byte.
        info.version = (size_of_val(&info) as u32) | (2 << 24);
        // SAFETY: the struct is the one that its version field says, and lives through the call.
        let code = unsafe { function(self.handle(), number, &raw mut info) };
        match self.check("nvmlDeviceGetGpuInstanceProfileInfoV", code) {
            // Said of a profile that the GPU lacks, and of every one while MIG mode is off (header).
            Err(error) if error.is(&Fault::NotSupported) => return self.nameless_profile(number),
            other => other?,
        }
        let name: [u8; 96] = info.name.map(|character| character as u8);
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
        Ok(DriverProfile {
            id: info.id,
            // Some releases say `MIG 1g.10gb`.
            name: Some(name.trim_start_matches("MIG ").to_owned()),
            suffix: suffix(number),
            compute_slices: info.sliceCount,
            instances_max: info.instanceCount,
            memory_mib: info.memorySizeMB,
        })
    }

    /// While MIG mode is off: the older call, which gives no names.
    fn nameless_profile(&self, number: u32) -> Result<DriverProfile, DriverError> {
        let function = function!(self, nvmlDeviceGetGpuInstanceProfileInfo);
        // SAFETY: plain integers; zero is a value of each.
        let mut info: sys::nvmlGpuInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the struct is this function's and lives through the call.
        let code = unsafe { function(self.handle(), number, &raw mut info) };
        self.check("nvmlDeviceGetGpuInstanceProfileInfo", code)?;
        Ok(DriverProfile {
            id: info.id,
            name: None,
            suffix: suffix(number),
            compute_slices: info.sliceCount,
            instances_max: info.instanceCount,
            memory_mib: info.memorySizeMB,
        })
    }

    /// Starts and sizes, in memory slices, that a profile may have.
    pub(crate) fn placements(&self, profile_id: u32) -> Result<Vec<(u32, u32)>, DriverError> {
        let call = "nvmlDeviceGetGpuInstancePossiblePlacements_v2";
        let function = function!(self, nvmlDeviceGetGpuInstancePossiblePlacements_v2);
        let mut count = 0;
        // SAFETY: a null array asks for the count only.
        let code = unsafe { function(self.handle(), profile_id, null_mut(), &raw mut count) };
        self.check(call, code)?;
        let none = sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 };
        let mut found = vec![none; count as usize];
        // SAFETY: the array has room for the count that the driver has just given.
        let code =
            unsafe { function(self.handle(), profile_id, found.as_mut_ptr(), &raw mut count) };
        self.check(call, code)?;
        found.truncate(count as usize);
        Ok(found.iter().map(|placement| (placement.start, placement.size)).collect())
    }

    /// The instances of one profile.
    pub(crate) fn instances(
        &self,
        profile: &(u32, u8),
    ) -> Result<Vec<DriverInstance>, DriverError> {
        let call = "nvmlDeviceGetGpuInstances";
        let function = function!(self, nvmlDeviceGetGpuInstances);
        let mut handles = vec![null_mut(); INSTANCES_MAX.max(usize::from(profile.1))];
        let mut count = handles.len() as u32;
        // SAFETY: the array has room for more instances than the profile can have.
        let code =
            unsafe { function(self.handle(), profile.0, handles.as_mut_ptr(), &raw mut count) };
        self.check(call, code)?;
        handles.truncate(count as usize);
        handles.into_iter().map(|handle| self.instance_info(handle)).collect()
    }

    fn instance_info(
        &self,
        instance: sys::nvmlGpuInstance_t,
    ) -> Result<DriverInstance, DriverError> {
        let function = function!(self, nvmlGpuInstanceGetInfo);
        // SAFETY: integers and a pointer; zero is a value of each.
        let mut info: sys::nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the handle comes from the driver a moment ago; the struct lives through the call.
        let code = unsafe { function(instance, &raw mut info) };
        self.check("nvmlGpuInstanceGetInfo", code)?;
        Ok(DriverInstance { id: info.id, profile_id: info.profileId, start: info.placement.start })
    }

    fn instance(&self, id: u32) -> Result<sys::nvmlGpuInstance_t, DriverError> {
        let function = function!(self, nvmlDeviceGetGpuInstanceById);
        let mut found = null_mut();
        // SAFETY: the out pointer lives through the call.
        let code = unsafe { function(self.handle(), id, &raw mut found) };
        self.check("nvmlDeviceGetGpuInstanceById", code)?;
        Ok(found)
    }

    /// The first memory slice of a GPU instance.
    pub(crate) fn start(&self, id: u32) -> Result<u32, DriverError> {
        Ok(self.instance_info(self.instance(id)?)?.start)
    }

    /// Makes a GPU instance at a placement and gives its number.
    pub(crate) fn create(
        &self,
        profile_id: u32,
        (start, size): (u32, u32),
    ) -> Result<u32, DriverError> {
        let function = function!(self, nvmlDeviceCreateGpuInstanceWithPlacement);
        let placement = sys::nvmlGpuInstancePlacement_t { start, size };
        let mut made = null_mut();
        // SAFETY: both pointers live through the call.
        let code =
            unsafe { function(self.handle(), profile_id, &raw const placement, &raw mut made) };
        self.check("nvmlDeviceCreateGpuInstanceWithPlacement", code)?;
        Ok(self.instance_info(made)?.id)
    }

    /// Removes a GPU instance, which must have no compute instance.
    pub(crate) fn destroy(&self, id: u32) -> Result<(), DriverError> {
        let function = function!(self, nvmlGpuInstanceDestroy);
        let handle = self.instance(id)?;
        // SAFETY: the handle comes from the driver a moment ago and is not used again.
        let code = unsafe { function(handle) };
        self.check("nvmlGpuInstanceDestroy", code)
    }

    /// Makes the compute instance that fills a GPU instance of so many slices.
    pub(crate) fn create_compute(&self, instance: u32, slices: u8) -> Result<(), DriverError> {
        let describe = function!(self, nvmlGpuInstanceGetComputeInstanceProfileInfo);
        let create = function!(self, nvmlGpuInstanceCreateComputeInstance);
        let handle = self.instance(instance)?;
        let shared = sys::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;
        // SAFETY: plain integers; zero is a value of each.
        let mut info: sys::nvmlComputeInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the handle comes from the driver a moment ago; the struct lives through the call.
        let code = unsafe { describe(handle, compute_profile(slices), shared, &raw mut info) };
        self.check("nvmlGpuInstanceGetComputeInstanceProfileInfo", code)?;
        let mut made = null_mut();
        // SAFETY: as above.
        let code = unsafe { create(handle, info.id, &raw mut made) };
        self.check("nvmlGpuInstanceCreateComputeInstance", code)
    }

    /// Removes a compute instance.
    pub(crate) fn destroy_compute(&self, instance: u32, compute: u32) -> Result<(), DriverError> {
        let find = function!(self, nvmlGpuInstanceGetComputeInstanceById);
        let destroy = function!(self, nvmlComputeInstanceDestroy);
        let handle = self.instance(instance)?;
        let mut found = null_mut();
        // SAFETY: the handle comes from the driver a moment ago; the pointer lives through the call.
        let code = unsafe { find(handle, compute, &raw mut found) };
        self.check("nvmlGpuInstanceGetComputeInstanceById", code)?;
        // SAFETY: the handle comes from the driver a moment ago and is not used again.
        let code = unsafe { destroy(found) };
        self.check("nvmlComputeInstanceDestroy", code)
    }

    /// Numbers of GPU instance and compute instance of a MIG device.
    pub(crate) fn numbers(&self, mig_device: &Device<'_>) -> Result<(u32, u32), DriverError> {
        let gpu_instance = function!(self, nvmlDeviceGetGpuInstanceId);
        let compute_instance = function!(self, nvmlDeviceGetComputeInstanceId);
        let (mut gpu, mut compute) = (0, 0);
        // SAFETY: the handle is of this library; the out pointers live through the calls.
        let codes = unsafe {
            let handle = mig_device.handle();
            let first = gpu_instance(handle, &raw mut gpu);
            (first, compute_instance(handle, &raw mut compute))
        };
        self.check("nvmlDeviceGetGpuInstanceId", codes.0)?;
        self.check("nvmlDeviceGetComputeInstanceId", codes.1)?;
        Ok((gpu, compute))
    }

    /// The GPU, for the calls that the wrapper has.
    pub(crate) fn device(&self) -> &Device<'a> {
        &self.device
    }

    /// Its UUID.
    pub(crate) fn uuid(&self) -> &'a str {
        self.uuid
    }
}

/// How the name of a profile with this number ends (header, `NVML_GPU_INSTANCE_PROFILE_*`).
fn suffix(number: u32) -> &'static str {
    match number {
        // 1_SLICE_REV1 and 2_SLICE_REV1
        0x7 | 0x8 => "+me",
        // GFX, of one, two, four and three slices
        0xa..=0xc | 0x11 => "+gfx",
        // NO_ME
        0xd | 0xe => "-me",
        // ALL_ME
        0xf | 0x10 => "+me.all",
        _ => "",
    }
}

/// The driver's number of the compute profile with so many slices.
fn compute_profile(slices: u8) -> u32 {
    match slices {
        2 => sys::NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE,
        3 => sys::NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE,
        4 => sys::NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE,
        6 => sys::NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE,
        7 => sys::NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE,
        8 => sys::NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE,
        _ => sys::NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE,
    }
}
