"""MIG through NVIDIA's own Python client: on, placed, refused, in use, off."""
import ctypes

import pynvml as n


def refused(code, call, *args):
    """The call fails with just that code."""
    try:
        call(*args)
    except n.NVMLError as error:
        assert error.value == code, f"{call.__name__}: {error} and not {code}"
        return
    raise AssertionError(f"{call.__name__} did not fail")


def create(gpu, profile, start, size):
    place = ctypes.byref(n.c_nvmlGpuInstancePlacement_t(start, size))
    return n.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile, place)


def devices(gpu):
    found = []
    for index in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except n.NVMLError_NotFound:
            break
    return found


n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
kinds = n.NVML_GPU_INSTANCE_PROFILE_1_SLICE, n.NVML_GPU_INSTANCE_PROFILE_3_SLICE
profile = n.nvmlDeviceGetGpuInstanceProfileInfo
# Only the first version tells of profiles while MIG mode is off.
refused(n.NVML_ERROR_NOT_SUPPORTED, profile, gpu, kinds[0], 2)
small, large = (profile(gpu, kind, version=1) for kind in kinds)
assert (small.id, small.memorySizeMB, small.instanceCount) == (19, 9728, 7), small
assert (large.id, large.sliceCount, large.multiprocessorCount) == (9, 3, 42), large
refused(n.NVML_ERROR_NOT_SUPPORTED, n.nvmlDeviceCreateGpuInstance, gpu, large.id)

assert n.nvmlDeviceGetMigMode(gpu) == [0, 0]
n.nvmlDeviceSetMigMode(gpu, n.NVML_DEVICE_MIG_ENABLE)
assert n.nvmlDeviceGetMigMode(gpu) == [1, 1]
assert profile(gpu, kinds[0], version=2).id == small.id
# Compute mode is a MIG device's then.
refused(n.NVML_ERROR_INVALID_ARGUMENT, n.nvmlDeviceGetComputeMode, gpu)
refused(n.NVML_ERROR_NOT_SUPPORTED, n.nvmlDeviceGetUtilizationRates, gpu)

# Two halves: the driver puts the first where most is left.
upper = n.nvmlDeviceCreateGpuInstance(gpu, large.id)
lower = create(gpu, large.id, 0, 4)
assert n.nvmlGpuInstanceGetInfo(upper).placement.start == 4
refused(n.NVML_ERROR_INSUFFICIENT_RESOURCES, n.nvmlDeviceCreateGpuInstance, gpu, small.id)
refused(n.NVML_ERROR_INSUFFICIENT_RESOURCES, create, gpu, small.id, 0, 1)
refused(n.NVML_ERROR_INVALID_ARGUMENT, create, gpu, large.id, 2, 4)
refused(n.NVML_ERROR_IN_USE, n.nvmlDeviceSetMigMode, gpu, n.NVML_DEVICE_MIG_DISABLE)

# One half is halved again; compute instances become devices.
n.nvmlGpuInstanceDestroy(upper)
refused(n.NVML_ERROR_NOT_FOUND, n.nvmlGpuInstanceGetInfo, upper)
assert n.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, small.id) == 3
single = create(gpu, small.id, 6, 1)
compute = {}
for instance, kind in [(lower, n.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE), (single, 0)]:
    info = n.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, kind, 0, version=2)
    made = n.nvmlGpuInstanceCreateComputeInstance(instance, info.id)
    compute[n.nvmlGpuInstanceGetInfo(instance).id] = made
refused(n.NVML_ERROR_IN_USE, n.nvmlGpuInstanceDestroy, lower)

found = devices(gpu)
assert len(found) == 2, found
names = [n.nvmlDeviceGetName(device) for device in found]
assert names == ["NVIDIA A100-SXM4-80GB MIG 3g.40gb", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"], names
for device in found:
    uuid = n.nvmlDeviceGetUUID(device)
    assert uuid.startswith("MIG-"), uuid
    again = n.nvmlDeviceGetHandleByUUID(uuid)
    assert n.nvmlDeviceGetUUID(again) == uuid
    assert n.nvmlDeviceIsMigDeviceHandle(device).value == 1
    parent = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    assert n.nvmlDeviceGetUUID(parent) == n.nvmlDeviceGetUUID(gpu)
attributes = n.nvmlDeviceGetAttributes_v2(found[1])
assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (14, 9728)
assert n.nvmlDeviceGetMemoryInfo(found[1]).total == 9728 << 20

for made in compute.values():
    n.nvmlComputeInstanceDestroy(made)
n.nvmlGpuInstanceDestroy(lower)
n.nvmlGpuInstanceDestroy(single)
n.nvmlDeviceSetMigMode(gpu, n.NVML_DEVICE_MIG_DISABLE)
assert n.nvmlDeviceGetMigMode(gpu) == [0, 0]
refused(n.NVML_ERROR_NOT_FOUND, n.nvmlDeviceGetUUID, found[0])
n.nvmlShutdown()
refused(n.NVML_ERROR_UNINITIALIZED, n.nvmlDeviceGetCount)
print("ok")
