//! GPU instances: profiles, placements, creating and destroying.

use std::ffi::c_uint;

use fake_machine::{Code, Gpu, InstanceProfile, instance_profiles};
use nvml_wrapper_sys::bindings::{
    NVML_GPU_INSTANCE_PROFILE_CAPS_P2P, nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t,
    nvmlGpuInstanceProfileInfo_v3_t,
};

use crate::calls::{Call, also, nvml};
use crate::handles;
use crate::pointers::{chars, check_version, get, put, put_whole_list};

/// NVML's list of kinds ends here.
const KINDS: c_uint = 0x12;

fn of_kind(gpu: &Gpu, kind: c_uint) -> Result<&'static InstanceProfile, Code> {
    if kind >= KINDS {
        return Err(Code::InvalidArgument);
    }
    let mut profiles = instance_profiles(&gpu.model).iter();
    profiles.find(|profile| profile.kind == kind).ok_or(Code::NotSupported)
}

/// Only an instance that is the whole GPU reaches its peers.
fn reaches_peers(profile: &InstanceProfile) -> u32 {
    u32::from(profile.slices == 7)
}

/// The GPU, if MIG mode is on: the versioned questions for profiles are "not supported if device
/// doesn't have MIG mode enabled" (nvml.h), unlike the first one.
fn divided(call: &Call, device: nvmlDevice_t) -> Result<&Gpu, Code> {
    let (_, gpu) = call.gpu(device)?;
    if gpu.mig.current { Ok(gpu) } else { Err(Code::NotSupported) }
}

/// Fills a versioned profile; both versions begin with their version.
fn put_profile(
    profile: &InstanceProfile,
    to: *mut nvmlGpuInstanceProfileInfo_v2_t,
) -> Result<(), Code> {
    let version = get(to.cast::<c_uint>())?;
    if check_version::<nvmlGpuInstanceProfileInfo_v3_t>(version, 3).is_ok() {
        return put(
            to.cast(),
            nvmlGpuInstanceProfileInfo_v3_t {
                version,
                id: profile.id,
                sliceCount: profile.slices,
                instanceCount: profile.instances_max,
                multiprocessorCount: profile.sms,
                copyEngineCount: profile.copiers,
                decoderCount: profile.decoders,
                encoderCount: 0,
                jpegCount: profile.jpegs,
                ofaCount: profile.ofas,
                memorySizeMB: profile.memory_mib,
                name: chars(&format!("MIG {}", profile.name)),
                capabilities: reaches_peers(profile) * NVML_GPU_INSTANCE_PROFILE_CAPS_P2P,
            },
        );
    }
    check_version::<nvmlGpuInstanceProfileInfo_v2_t>(version, 2)?;
    put(
        to,
        nvmlGpuInstanceProfileInfo_v2_t {
            version,
            id: profile.id,
            isP2pSupported: reaches_peers(profile),
            sliceCount: profile.slices,
            instanceCount: profile.instances_max,
            multiprocessorCount: profile.sms,
            copyEngineCount: profile.copiers,
            decoderCount: profile.decoders,
            encoderCount: 0,
            jpegCount: profile.jpegs,
            ofaCount: profile.ofas,
            memorySizeMB: profile.memory_mib,
            name: chars(&format!("MIG {}", profile.name)),
        },
    )
}

/// Makes an instance and writes its handle.
fn create(
    call: &Call,
    device: nvmlDevice_t,
    profile_id: c_uint,
    start: Option<u32>,
    to: *mut nvmlGpuInstance_t,
) -> Result<(), Code> {
    let (index, _) = call.gpu(device)?;
    if to.is_null() {
        return Err(Code::InvalidArgument);
    }
    let made = call.privileged(|state| {
        let id = state.create_instance(index, profile_id, start)?;
        state.gpu(index)?.instance(id).cloned()
    })?;
    put(to, handles::of_gpu_instance(index, &made))
}

nvml! {
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        device: nvmlDevice_t, kind: c_uint, to: *mut nvmlGpuInstanceProfileInfo_t
    ) |call| {
        let profile = of_kind(call.gpu(device)?.1, kind)?;
        put(to, nvmlGpuInstanceProfileInfo_t {
            id: profile.id,
            isP2pSupported: reaches_peers(profile),
            sliceCount: profile.slices,
            instanceCount: profile.instances_max,
            multiprocessorCount: profile.sms,
            copyEngineCount: profile.copiers,
            decoderCount: profile.decoders,
            encoderCount: 0,
            jpegCount: profile.jpegs,
            ofaCount: profile.ofas,
            memorySizeMB: profile.memory_mib,
        })
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoV(
        device: nvmlDevice_t, kind: c_uint, to: *mut nvmlGpuInstanceProfileInfo_v2_t
    ) |call| {
        put_profile(of_kind(divided(call, device)?, kind)?, to)
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(
        device: nvmlDevice_t, profile_id: c_uint, to: *mut nvmlGpuInstanceProfileInfo_v2_t
    ) |call| {
        put_profile(divided(call, device)?.profile(profile_id)?, to)
    }

    fn nvmlDeviceGetGpuInstanceRemainingCapacity(
        device: nvmlDevice_t, profile_id: c_uint, count: *mut c_uint
    ) |call| {
        call.needs_privilege()?;
        put(count, call.gpu(device)?.1.remaining(profile_id)?)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        device: nvmlDevice_t,
        profile_id: c_uint,
        to: *mut nvmlGpuInstancePlacement_t,
        count: *mut c_uint,
    ) |call| {
        call.needs_privilege()?;
        let profile = call.gpu(device)?.1.profile(profile_id)?;
        if to.is_null() {
            return put(count, profile.starts.len() as c_uint);
        }
        let placement = |start: &u32| nvmlGpuInstancePlacement_t {
            start: *start,
            size: profile.memory_slices,
        };
        put_whole_list(to, count, profile.starts.iter().map(placement).collect())
    }

    fn nvmlDeviceCreateGpuInstance(
        device: nvmlDevice_t, profile_id: c_uint, to: *mut nvmlGpuInstance_t
    ) |call| {
        create(call, device, profile_id, None, to)
    }

    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        device: nvmlDevice_t,
        profile_id: c_uint,
        placement: *const nvmlGpuInstancePlacement_t,
        to: *mut nvmlGpuInstance_t,
    ) |call| {
        let placement = get(placement)?;
        let profile = call.gpu(device)?.1.profile(profile_id)?;
        if placement.size != profile.memory_slices {
            return Err(Code::InvalidArgument);
        }
        create(call, device, profile_id, Some(placement.start), to)
    }

    fn nvmlDeviceGetGpuInstances(
        device: nvmlDevice_t, profile_id: c_uint, to: *mut nvmlGpuInstance_t, count: *mut c_uint
    ) |call| {
        call.needs_privilege()?;
        let (index, gpu) = call.gpu(device)?;
        if !gpu.mig.current {
            return Err(Code::NotSupported);
        }
        gpu.profile(profile_id)?;
        let of = gpu.instances.iter().filter(|instance| instance.profile_id == profile_id);
        let found = of.map(|instance| handles::of_gpu_instance(index, instance)).collect();
        put_whole_list(to, count, found)
    }

    fn nvmlDeviceGetGpuInstanceById(
        device: nvmlDevice_t, id: c_uint, to: *mut nvmlGpuInstance_t
    ) |call| {
        call.needs_privilege()?;
        let (index, gpu) = call.gpu(device)?;
        if !gpu.mig.current {
            return Err(Code::NotSupported);
        }
        put(to, handles::of_gpu_instance(index, gpu.instance(id)?))
    }

    fn nvmlGpuInstanceGetInfo(handle: nvmlGpuInstance_t, to: *mut nvmlGpuInstanceInfo_t) |call| {
        let (index, _, instance) = call.gpu_instance(handle)?;
        put(to, nvmlGpuInstanceInfo_t {
            device: handles::of_gpu(index),
            id: instance.id,
            profileId: instance.profile_id,
            placement: nvmlGpuInstancePlacement_t { start: instance.start, size: instance.size },
        })
    }

    fn nvmlGpuInstanceDestroy(handle: nvmlGpuInstance_t) |call| {
        let (index, _, instance) = call.gpu_instance(handle)?;
        call.privileged(|state| {
            // Between the look and the change, the number may have gone to another instance.
            if state.gpu(index)?.instance(instance.id)?.serial != instance.serial {
                return Err(Code::NotFound);
            }
            state.destroy_instance(index, instance.id)
        })
    }
}

also! {
    fn nvmlDeviceGetGpuInstancePossiblePlacements(
        device: nvmlDevice_t,
        profile_id: c_uint,
        to: *mut nvmlGpuInstancePlacement_t,
        count: *mut c_uint,
    ) is nvmlDeviceGetGpuInstancePossiblePlacements_v2;
}
