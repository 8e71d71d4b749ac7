//! Compute instances: profiles, placements, creating and destroying.

use std::ffi::c_uint;

use fake_machine::{Code, ComputeProfile, Gpu, GpuInstance, InstanceProfile, compute_profiles};
use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t,
    nvmlComputeInstanceProfileInfo_t, nvmlComputeInstanceProfileInfo_v2_t,
    nvmlComputeInstanceProfileInfo_v3_t, nvmlGpuInstance_t,
};

use crate::calls::{Call, also, nvml};
use crate::handles;
use crate::pointers::{chars, check_version, get, put, put_whole_list};

/// NVML's list of kinds ends here.
const KINDS: c_uint = 9;

/// A profile by NVML's kind or the driver's number, which are the same, and what it lies in.
fn profile(
    gpu: &Gpu,
    within: &GpuInstance,
    id: c_uint,
) -> Result<(ComputeProfile, &'static InstanceProfile), Code> {
    if id >= KINDS {
        return Err(Code::InvalidArgument);
    }
    let outer = gpu.profile(within.profile_id)?;
    let found = compute_profiles(outer).into_iter().find(|profile| profile.id == id);
    found.map(|profile| (profile, outer)).ok_or(Code::NotSupported)
}

/// The only engine profile there is.
fn check_engine(engine: c_uint) -> Result<(), Code> {
    if engine == 0 { Ok(()) } else { Err(Code::InvalidArgument) }
}

/// Makes an instance and writes its handle.
fn create(
    call: &Call,
    handle: nvmlGpuInstance_t,
    profile_id: c_uint,
    start: Option<u32>,
    to: *mut nvmlComputeInstance_t,
) -> Result<(), Code> {
    let (index, _, instance) = call.gpu_instance(handle)?;
    if to.is_null() {
        return Err(Code::InvalidArgument);
    }
    let made = call.privileged(|state| {
        if state.gpu(index)?.instance(instance.id)?.serial != instance.serial {
            return Err(Code::NotFound);
        }
        let id = state.create_compute(index, instance.id, profile_id, start)?;
        let parts = &state.gpu(index)?.instance(instance.id)?.compute;
        parts.iter().find(|part| part.id == id).cloned().ok_or(Code::Unknown)
    })?;
    put(to, handles::of_compute_instance(index, &made))
}

nvml! {
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        handle: nvmlGpuInstance_t,
        kind: c_uint,
        engine: c_uint,
        to: *mut nvmlComputeInstanceProfileInfo_t,
    ) |call| {
        let (_, gpu, instance) = call.gpu_instance(handle)?;
        check_engine(engine)?;
        let (profile, outer) = profile(gpu, instance, kind)?;
        put(to, nvmlComputeInstanceProfileInfo_t {
            id: profile.id,
            sliceCount: profile.slices,
            instanceCount: profile.starts.len() as c_uint,
            multiprocessorCount: profile.sms,
            sharedCopyEngineCount: outer.copiers,
            sharedDecoderCount: outer.decoders,
            sharedEncoderCount: 0,
            sharedJpegCount: outer.jpegs,
            sharedOfaCount: outer.ofas,
        })
    }

    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        handle: nvmlGpuInstance_t,
        kind: c_uint,
        engine: c_uint,
        to: *mut nvmlComputeInstanceProfileInfo_v2_t,
    ) |call| {
        let (_, gpu, instance) = call.gpu_instance(handle)?;
        check_engine(engine)?;
        let (profile, outer) = profile(gpu, instance, kind)?;
        let version = get(to.cast::<c_uint>())?;
        let info = nvmlComputeInstanceProfileInfo_v2_t {
            version,
            id: profile.id,
            sliceCount: profile.slices,
            instanceCount: profile.starts.len() as c_uint,
            multiprocessorCount: profile.sms,
            sharedCopyEngineCount: outer.copiers,
            sharedDecoderCount: outer.decoders,
            sharedEncoderCount: 0,
            sharedJpegCount: outer.jpegs,
            sharedOfaCount: outer.ofas,
            name: chars(&format!("MIG {}", profile.name)),
        };
        // Version 3 is version 2 with a field more at its end.
        if check_version::<nvmlComputeInstanceProfileInfo_v3_t>(version, 3).is_ok() {
            put(to, info)?;
            let to = to.cast::<nvmlComputeInstanceProfileInfo_v3_t>();
            return crate::pointers::with(to, |info| {
                info.capabilities = 0;
                Ok(())
            });
        }
        check_version::<nvmlComputeInstanceProfileInfo_v2_t>(version, 2)?;
        put(to, info)
    }

    fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
        handle: nvmlGpuInstance_t, profile_id: c_uint, count: *mut c_uint
    ) |call| {
        call.needs_privilege()?;
        let (_, gpu, instance) = call.gpu_instance(handle)?;
        let (profile, _) = profile(gpu, instance, profile_id)?;
        put(count, instance.free_compute_starts(&profile).len() as c_uint)
    }

    fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
        handle: nvmlGpuInstance_t,
        profile_id: c_uint,
        to: *mut nvmlComputeInstancePlacement_t,
        count: *mut c_uint,
    ) |call| {
        call.needs_privilege()?;
        let (_, gpu, instance) = call.gpu_instance(handle)?;
        let (profile, _) = profile(gpu, instance, profile_id)?;
        if to.is_null() {
            return put(count, profile.starts.len() as c_uint);
        }
        let placement =
            |start: &u32| nvmlComputeInstancePlacement_t { start: *start, size: profile.slices };
        put_whole_list(to, count, profile.starts.iter().map(placement).collect())
    }

    fn nvmlGpuInstanceCreateComputeInstance(
        handle: nvmlGpuInstance_t, profile_id: c_uint, to: *mut nvmlComputeInstance_t
    ) |call| {
        create(call, handle, profile_id, None, to)
    }

    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        handle: nvmlGpuInstance_t,
        profile_id: c_uint,
        placement: *const nvmlComputeInstancePlacement_t,
        to: *mut nvmlComputeInstance_t,
    ) |call| {
        let placement = get(placement)?;
        let (_, gpu, instance) = call.gpu_instance(handle)?;
        if placement.size != profile(gpu, instance, profile_id)?.0.slices {
            return Err(Code::InvalidArgument);
        }
        create(call, handle, profile_id, Some(placement.start), to)
    }

    fn nvmlGpuInstanceGetComputeInstances(
        handle: nvmlGpuInstance_t,
        profile_id: c_uint,
        to: *mut nvmlComputeInstance_t,
        count: *mut c_uint,
    ) |call| {
        call.needs_privilege()?;
        let (index, gpu, instance) = call.gpu_instance(handle)?;
        profile(gpu, instance, profile_id)?;
        let of = instance.compute.iter().filter(|part| part.profile_id == profile_id);
        put_whole_list(to, count, of.map(|part| handles::of_compute_instance(index, part)).collect())
    }

    fn nvmlGpuInstanceGetComputeInstanceById(
        handle: nvmlGpuInstance_t, id: c_uint, to: *mut nvmlComputeInstance_t
    ) |call| {
        call.needs_privilege()?;
        let (index, _, instance) = call.gpu_instance(handle)?;
        let mut parts = instance.compute.iter();
        let part = parts.find(|part| part.id == id).ok_or(Code::NotFound)?;
        put(to, handles::of_compute_instance(index, part))
    }

    fn nvmlComputeInstanceGetInfo_v2(
        handle: nvmlComputeInstance_t, to: *mut nvmlComputeInstanceInfo_t
    ) |call| {
        let (index, _, instance, part) = call.compute_instance(handle)?;
        put(to, nvmlComputeInstanceInfo_t {
            device: handles::of_gpu(index),
            gpuInstance: handles::of_gpu_instance(index, instance),
            id: part.id,
            profileId: part.profile_id,
            placement: nvmlComputeInstancePlacement_t { start: part.start, size: part.size },
        })
    }

    fn nvmlComputeInstanceDestroy(handle: nvmlComputeInstance_t) |call| {
        let (index, _, instance, part) = call.compute_instance(handle)?;
        call.privileged(|state| {
            // Between the look and the change, the numbers may have gone to others.
            let now = state.gpu(index)?.instance(instance.id)?;
            if now.compute.iter().all(|other| other.serial != part.serial) {
                return Err(Code::NotFound);
            }
            state.destroy_compute(index, instance.id, part.id)
        })
    }
}

also! {
    fn nvmlComputeInstanceGetInfo(
        handle: nvmlComputeInstance_t, to: *mut nvmlComputeInstanceInfo_t
    ) is nvmlComputeInstanceGetInfo_v2;
}
